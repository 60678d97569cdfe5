#include "server/sync/sync.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/crash.h"
#include "common/os/lock.h"
#include "server/store/partial.h"
#include "server/sync/cron.h"
#include "server/sync/hook.h"

struct task { /* one repo */
    struct list node;
    struct sync *sync;
    char *name;
    struct setup *setup;   /* NULL: not synced any more, goes when its run has ended */
    struct setup *running; /* the run's */
    struct run_job job;    /* the run's: setup's with its own flags */
    struct sync_run *run;  /* or NULL */
    bool begun;            /* it has its number: last_id */
    bool ended;            /* run_close() is due */
    struct err refused;    /* code 0: the last run has begun */
    bool due;
    uint64_t next_unix_s; /* 0: never */
    uint64_t last_id;
    /* Of a cluster: */
    bool elsewhere; /* another mirror has claimed the repo */
    bool planned;   /* next_unix_s is by the report of these two: */
    uint64_t planned_id;
    enum run_outcome planned_outcome;
    /* of this life: the disk may have been too full for its row. id 0: none */
    struct run_report last;
    uint64_t runs[RUN_INTERRUPTED + 1];
    uint64_t wire_bytes;
    uint64_t fresh, changed, gone, kept, files, attempts_failed, took_s;
};

struct sync {
    struct run_world world;
    struct lock lock;
    struct cond news;
    struct list tasks; /* by name */
    unsigned together;
    bool stop;
    bool joined; /* the thread */
    pthread_t thread;
    _Atomic bool rows_changed;
    uint64_t followed_ms;  /* when the rows were last looked at */
    struct lock seen_lock; /* guards what follows: loops take it, and nobody blocks under it */
    struct sync_view *seen;
    size_t seen_count;
};

struct setup {
    unsigned holds; /* under sync.lock */
    struct sync_repo_settings of;
    const struct sync_conf *conf;
    struct run_upstream *upstream; /* job.upstreams of them */
    struct run_job job;
    struct cron cron;
    bool scheduled;
};

static void count_sync_run(struct task *t, const struct run_report *last);
static int sync_need(struct sync *s, struct slice repo, struct task **out, struct err *e);

static bool is_alone(const struct sync *s)
{
    return s->world.claims == NULL;
}

/* --- setup ---
 *
 * A synced repo as the configuration has it: what a run needs of it, kept until the run has ended.
 *
 * owns     counted, under sync.lock; holds the configuration that it was made from
 */

/* NULL is fine */
static void setup_release(struct setup **sp)
{
    struct setup *u = *sp;

    *sp = NULL;
    if (u == NULL || --u->holds != 0) {
        return;
    }
    for (size_t i = 0; i < u->job.upstreams; i++) {
        struct origin *o = (struct origin *)(uintptr_t)u->job.upstream[i].origin;
        origin_free(&o);
    }
    free(u->upstream);
    u->of.release(u->of.held);
    free(u);
}

/* Its key is the origin's own; another bucket of the same service is reached by the same ones. */
static bool same_key(const char *a, const char *b)
{
    return strncmp(a, "s3://", 5) == 0 && strncmp(b, "s3://", 5) == 0;
}

static int add_upstreams(struct setup *u, const struct sync_repo_settings *r, struct err *e)
{
    const struct origin_settings *first = &r->conf->origin;
    size_t others = first->urls_count > 1 ? first->urls_count - 1 : 0;
    size_t n = 1 + others + u->conf->upstreams_count;
    struct run_upstream *up = mem_array(n, sizeof *up);
    int rc = 0;

    u->job.upstream = u->upstream = up;
    up[0].url = r->conf->origin.url;
    up[0].origin = r->repo->origin != NULL ? origin_hold(r->repo->origin) : NULL;
    u->job.upstreams = 1;
    for (size_t i = 1; rc == 0 && i < n; i++) {
        struct origin_settings set = r->conf->origin;
        struct origin *o = NULL;
        set.url = up[i].url = i <= others ? first->urls[i] : u->conf->upstreams[i - 1 - others];
        set.moved_from_count = set.urls_count = 0;
        if (i > others && !same_key(set.url, r->conf->origin.url)) {
            set.authorization = NULL;
        }
        if (origin_speaks(set.url)) {
            rc = origin_new(r->repo->name, &set, &o, e);
        }
        up[i].origin = o;
        u->job.upstreams += rc == 0;
    }
    return rc;
}

/* What stands alone in its file was read as a token of HTTP's: others have no such word before
 * it. */
static const char *bare_authorization(const char *authorization)
{
    static const char word[] = "Bearer ";
    bool has = authorization != NULL && strncmp(authorization, word, sizeof word - 1) == 0;

    return has ? authorization + sizeof word - 1 : authorization;
}

/* Takes what r holds, also when it fails. */
static int setup_new(const struct sync_repo_settings *r, struct setup **out, struct err *e)
{
    struct setup *u = NEW(struct setup);
    const struct origin_settings *o = &r->conf->origin;
    int rc = 0;

    u->holds = 1;
    u->of = *r;
    u->conf = r->conf->sync;
    u->job = (struct run_job){
        .repo = r->conf->name,
        .conf = u->conf,
        .secret = origin_speaks(o->url) ? NULL : bare_authorization(o->authorization),
        .ca_file = o->ca_file,
        .proxy = o->proxy,
        .no_proxy = o->no_proxy,
        .connect_ms = o->connect_ms,
        .stall_ms = o->stall_ms,
    };
    u->scheduled = u->conf->schedule != NULL;
    if (u->scheduled) {
        rc = cron_parse(slice_str(u->conf->schedule), &u->cron, e);
    }
    rc = rc != 0 ? rc : add_upstreams(u, r, e);
    if (rc != 0) {
        setup_release(&u);
    }
    *out = u;
    return rc;
}

/* --- view ---
 *
 * What people see of the repos that are synced.
 */

static int view_of(struct sync *s, struct task *t, struct sync_view *v, struct err *e)
{
    struct slice repo = slice_str(t->name);
    struct sync_state st;
    int rc = sync_state_get(s->world.store, repo, &st, e);

    *v = (struct sync_view){.running = t->run != NULL && t->begun && !t->ended,
                            .waiting = t->due && t->run == NULL,
                            .elsewhere = t->elsewhere && t->run == NULL,
                            .next_unix_s = t->next_unix_s};
    memcpy(v->runs, t->runs, sizeof v->runs);
    v->wire_bytes = t->wire_bytes;
    v->fresh = t->fresh;
    v->changed = t->changed;
    v->gone = t->gone;
    v->kept = t->kept;
    v->files = t->files;
    v->attempts_failed = t->attempts_failed;
    v->took_s = t->took_s;
    snprintf(v->name, sizeof v->name, "%s", t->name);
    snprintf(v->upstream, sizeof v->upstream, "%s", t->setup->job.upstream[0].url);
    snprintf(v->schedule, sizeof v->schedule, "%s",
             t->setup->conf->schedule != NULL ? t->setup->conf->schedule : "");
    if (rc != 0) {
        return rc;
    }
    v->paused = st.paused;
    v->held_seq = st.held_seq;
    v->failures = st.failures;
    v->last_ok_unix_s = st.last_ok_unix_s;
    if (v->running) {
        run_look(t->run, &v->last);
        v->ever = true;
    } else {
        rc = history_get(s->world.store, repo, 0, &v->last, e);
        if (t->last.id != 0 && (rc == E_NOTFOUND || (rc == 0 && v->last.id < t->last.id) ||
                                (rc == 0 && v->last.outcome == RUN_RUNNING))) {
            v->last = t->last;
            rc = 0;
        }
        v->ever = rc == 0;
        if (v->ever && v->last.outcome == RUN_RUNNING && !is_alone(s) && !v->elsewhere) {
            v->last.outcome = RUN_INTERRUPTED; /* its mirror has gone */
        }
        rc = rc == E_NOTFOUND ? 0 : rc;
    }
    if (rc == 0) {
        rc = head_get(s->world.store, repo, SLICE(SYNC_TREE), &v->head, e);
        v->head.seq = rc == 0 ? v->head.seq : 0;
    }
    rc = rc != 0 ? rc : head_held(s->world.store, repo, SLICE(SYNC_TREE), &v->hold, e);
    return rc == E_NOTFOUND ? 0 : rc;
}

/* what sync_glance() tells */
static void sync_refresh(struct sync *s)
{
    struct sync_view *old, *view;
    struct err e = {0};
    size_t count = 0, room = 0;

    LIST_EACH (&s->tasks, it) {
        room += it != NULL;
    }
    view = mem_array(room + 1, sizeof *view);
    LIST_EACH (&s->tasks, it2) {
        struct task *t = LIST_ITEM(it2, struct task, node);
        count += t->setup != NULL && view_of(s, t, &view[count], &e) == 0;
    }
    lock_take(&s->seen_lock);
    old = s->seen;
    s->seen = view;
    s->seen_count = count;
    lock_drop(&s->seen_lock);
    free(old);
}

size_t sync_glance(struct sync *s, struct sync_view *out, size_t room)
{
    size_t n;

    lock_take(&s->seen_lock);
    n = s->seen_count < room ? s->seen_count : room;
    if (n != 0) {
        memcpy(out, s->seen, n * sizeof *out);
    }
    lock_drop(&s->seen_lock);
    return n;
}

int sync_look(struct sync *s, struct slice repo, struct sync_view *out, struct err *e)
{
    struct task *t;
    int rc;

    lock_take(&s->lock);
    rc = sync_need(s, repo, &t, e);
    rc = rc != 0 ? rc : view_of(s, t, out, e);
    lock_drop(&s->lock);
    return rc;
}

/* They are notified after the lock is released, because a receiver may be slow. */
int sync_each(struct sync *s, int (*each)(void *arg, const struct sync_view *v), void *arg,
              struct err *e)
{
    struct sync_view *view;
    size_t count = 0, room = 0;
    int rc = 0;

    lock_take(&s->lock);
    LIST_EACH (&s->tasks, it) {
        room += it != NULL;
    }
    view = mem_array(room + 1, sizeof *view);
    LIST_EACH (&s->tasks, it2) {
        struct task *t = LIST_ITEM(it2, struct task, node);
        if (t->setup != NULL && rc == 0) {
            rc = view_of(s, t, &view[count++], e);
        }
    }
    lock_drop(&s->lock);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = each(arg, &view[i]);
    }
    free(view);
    return rc;
}

/* --- schedule ---
 *
 * When runs begin, which may go together, and what becomes of those that have ended: one thread for
 * all repos.
 */

enum { TICK_MS = 500, AGAIN_S = 60, FOLLOW_MS = 5000, PREFER_S = 5 };

static uint64_t jitter_of(const struct task *t)
{
    uint64_t span_s = t->setup->conf->jitter_ms / 1000;

    return span_s != 0 ? slice_hash(slice_str(t->name)) % (span_s + 1) : 0;
}

/* last_unix_s: when the last run began, 0: it never ran. What was missed while we were away is due
 * at once. */
static void task_plan_next(struct task *t, uint64_t last_unix_s, uint64_t now_unix_s)
{
    uint64_t next;

    if (t->setup == NULL || !t->setup->scheduled) {
        t->next_unix_s = 0;
        return;
    }
    if (last_unix_s == 0) {
        /* A cron line names its times; an interval begins now. */
        next = t->setup->cron.every_s != 0 ? now_unix_s : cron_next(&t->setup->cron, now_unix_s);
    } else {
        next = cron_next(&t->setup->cron, last_unix_s);
    }
    t->next_unix_s = next == UINT64_MAX ? 0 : next + jitter_of(t);
}

static void on_run_begun(void *arg, struct sync_run *r, const struct err *why)
{
    struct task *t = arg;
    struct run_report look;

    run_look(r, &look);
    lock_take(&t->sync->lock);
    t->begun = why == NULL;
    if (t->begun) {
        t->last_id = look.id;
    } else {
        t->refused = *why;
    }
    cond_broadcast(&t->sync->news);
    lock_drop(&t->sync->lock);
}

static void on_run_ended(void *arg, struct sync_run *r)
{
    struct task *t = arg;

    lock_take(&t->sync->lock);
    if (t->begun) {
        run_look(r, &t->last);
    }
    t->ended = true;
    cond_broadcast(&t->sync->news);
    lock_drop(&t->sync->lock);
}

/* of run_open() */
static int task_launch(struct task *t, bool dry, bool force, struct err *e)
{
    const struct run_events ev = {on_run_begun, on_run_ended, t};
    int rc;

    t->due = false;
    t->running = t->setup;
    t->running->holds++;
    t->job = t->setup->job;
    t->job.dry = dry;
    t->job.force = force;
    t->ended = false;
    t->begun = is_alone(t->sync);
    err_clear(&t->refused);
    rc = run_open(&t->sync->world, &t->job, t->last_id + 1, &ev, &t->run, e);
    if (rc != 0) {
        setup_release(&t->running);
    } else if (t->begun) {
        t->last_id++;
    }
    return rc;
}

/* A bucket's is that of its service. */
static struct slice first_url(const struct setup *u)
{
    const struct run_upstream *up = &u->job.upstream[0];

    return slice_str(up->origin != NULL ? origin_url(up->origin) : up->url);
}

static bool same_host(const struct setup *a, const struct setup *b)
{
    struct slice x = first_url(a), y = first_url(b);

    for (unsigned i = 0; i < 3; i++) { /* scheme, nothing, host */
        struct slice p = slice_cut(&x, '/'), q = slice_cut(&y, '/');
        if (i == 2) {
            return slice_ieq(p, q);
        }
    }
    return false;
}

static bool may_begin(struct sync *s, const struct task *t)
{
    unsigned active = 0;

    LIST_EACH (&s->tasks, it) {
        const struct task *o = LIST_ITEM(it, struct task, node);
        if (o->run != NULL && !o->ended && run_is_busy(o->run)) {
            active++;
            if (same_host(o->running, t->setup)) {
                return false;
            }
        }
    }
    return active < s->together;
}

static bool is_paused(struct sync *s, const struct task *t)
{
    struct sync_state st;
    struct err e = {0};

    if (sync_state_get(s->world.store, slice_str(t->name), &st, &e) != 0) {
        log_warn("sync.state", "repo=%s why=\"%s\"", t->name, e.text);
        return true;
    }
    return st.paused;
}

static void task_free(struct task *t)
{
    list_remove_if(&t->node);
    setup_release(&t->setup);
    setup_release(&t->running);
    free(t->name);
    free(t);
}

static void count_sync_run(struct task *t, const struct run_report *last)
{
    bool good = last->outcome == RUN_PUBLISHED || last->outcome == RUN_UNCHANGED ||
                last->outcome == RUN_HELD || last->outcome == RUN_PLANNED ||
                last->outcome == RUN_STOPPED;

    t->wire_bytes += last->wire_bytes;
    t->files += last->files_done;
    if (last->outcome == RUN_PUBLISHED) {
        t->fresh += last->fresh;
        t->changed += last->changed;
        t->gone += last->gone;
        t->kept += last->kept;
    }
    t->attempts_failed += last->attempts - (good && last->attempts != 0);
    t->took_s = last->ended_unix_s - min_u64(last->started_unix_s, last->ended_unix_s);
}

/* --- what the other mirrors of a cluster have done --- */

static bool was_cut_off(const struct run_report *last)
{
    return last->outcome == RUN_RUNNING || last->outcome == RUN_INTERRUPTED;
}

/* When the run after the last one is due. NULL: there was none. */
static void plan_by_report(struct task *t, const struct run_report *last, uint64_t now_unix_s)
{
    bool mine = last == NULL || strcmp(last->mirror, claims_self(t->sync->world.claims)) == 0;

    t->due = false;
    if (last != NULL && was_cut_off(last) && !last->dry && t->setup->scheduled) {
        t->next_unix_s = now_unix_s;
    } else {
        task_plan_next(t, last == NULL ? 0 : max_u64(last->started_unix_s, last->ended_unix_s),
                       now_unix_s);
    }
    t->next_unix_s += t->next_unix_s != 0 && !mine ? PREFER_S : 0;
}

/* Plans anew if there is a new report. */
static void follow_report(struct task *t, uint64_t now_unix_s)
{
    struct run_report last = {0};
    struct err e = {0};
    int rc = history_get(t->sync->world.store, slice_str(t->name), 0, &last, &e);

    if (rc != 0 && rc != E_NOTFOUND) {
        log_warn("sync.history", "repo=%s why=\"%s\"", t->name, e.text);
        return;
    }
    if (!t->planned || t->planned_id != last.id || t->planned_outcome != last.outcome) {
        plan_by_report(t, rc == 0 ? &last : NULL, now_unix_s);
        t->planned = true;
        t->planned_id = last.id;
        t->planned_outcome = last.outcome;
    }
}

static void follow_task(struct task *t, uint64_t now_unix_s)
{
    struct claim_look claim;
    struct err e = {0};

    if (t->setup == NULL) {
        return;
    }
    if (t->run != NULL) {
        if (t->begun && !t->ended && run_has_lost_claim(t->run)) {
            run_stop(t->run);
        }
        return;
    }
    if (claim_look(t->sync->world.claims, slice_str(t->name), &claim, &e) != 0) {
        log_warn("sync.claim", "repo=%s why=\"%s\"", t->name, e.text);
        return;
    }
    t->elsewhere = claim.state == CLAIM_THEIRS;
    if (t->elsewhere) {
        t->due = t->planned = false;
        t->next_unix_s = 0;
    } else {
        follow_report(t, now_unix_s);
    }
}

/* After a change of the rows, and now and then: a mirror that goes changes no row. */
static void follow_others(struct sync *s)
{
    uint64_t now_ms = clock_now_ms(), now_unix_s = clock_unix_s();

    if (!atomic_exchange(&s->rows_changed, false) && now_ms - s->followed_ms < FOLLOW_MS) {
        return;
    }
    s->followed_ms = now_ms;
    LIST_EACH (&s->tasks, it) {
        follow_task(LIST_ITEM(it, struct task, node), now_unix_s);
    }
}

void sync_rows_changed(struct sync *s)
{
    atomic_store(&s->rows_changed, true);
}

static void try_later(struct task *t, const struct err *why, uint64_t now_unix_s)
{
    log_warn("sync.start", "repo=%s why=\"%s\" again_s=%d", t->name, why->text, AGAIN_S);
    t->next_unix_s = now_unix_s + AGAIN_S;
}

/* A run is over, or has not begun. */
static void task_plan_after(struct task *t, uint64_t now_unix_s)
{
    if (is_alone(t->sync)) {
        task_plan_next(t, now_unix_s, now_unix_s);
    } else if (t->refused.code != 0 && t->refused.code != E_BUSY && t->next_unix_s != 0 &&
               t->next_unix_s <= now_unix_s) {
        try_later(t, &t->refused, now_unix_s);
    } else {
        follow_task(t, now_unix_s);
    }
}

/* Joins runs that have ended. The lock is given back meanwhile. */
static bool reap_one(struct sync *s)
{
    LIST_EACH (&s->tasks, it) {
        struct task *t = LIST_ITEM(it, struct task, node);
        struct sync_run *r = t->run;
        struct run_report last;
        uint64_t now = clock_unix_s();
        if (r == NULL || !t->ended) {
            continue;
        }
        if (t->begun) {
            run_look(r, &last);
            t->runs[last.outcome]++;
            count_sync_run(t, &last);
        }
        lock_drop(&s->lock);
        run_close(&r);
        lock_take(&s->lock);
        t->run = NULL;
        setup_release(&t->running);
        task_plan_after(t, now);
        if (t->setup == NULL) { /* not synced any more */
            char *name = mem_strdup(t->name);
            task_free(t);
            lock_drop(&s->lock);
            run_drop_left(s->world.store, slice_str(name));
            lock_take(&s->lock);
            free(name);
        }
        cond_broadcast(&s->news);
        return true;
    }
    return false;
}

static void begin_sync_task(struct task *t, uint64_t now_unix_s)
{
    struct err e = {0};

    if (task_launch(t, false, false, &e) != 0) {
        try_later(t, &e, now_unix_s);
    }
}

static void begin_due(struct sync *s)
{
    uint64_t now = clock_unix_s();

    LIST_EACH (&s->tasks, it) {
        struct task *t = LIST_ITEM(it, struct task, node);
        if (t->run != NULL || t->setup == NULL || t->next_unix_s == 0 || now < t->next_unix_s) {
            continue;
        }
        if (is_paused(s, t)) {
            t->due = false;
            task_plan_next(t, now, now);
            continue;
        }
        t->due = true;
        if (may_begin(s, t)) {
            begin_sync_task(t, now);
        }
    }
}

/* its thread */
static void *schedule_main(void *sync)
{
    struct sync *s = sync;

    lock_take(&s->lock);
    while (!s->stop) {
        while (reap_one(s)) {
        }
        if (!is_alone(s)) {
            follow_others(s);
        }
        begin_due(s);
        sync_refresh(s);
        (void)cond_wait_ms(&s->news, &s->lock, TICK_MS);
    }
    lock_drop(&s->lock);
    return NULL;
}

struct sync *sync_open(const struct run_world *w)
{
    struct sync *s = NEW(struct sync);

    s->world = *w;
    s->together = 1;
    s->rows_changed = true;
    lock_init(&s->lock, LOCK_SYNC);
    cond_init(&s->news);
    lock_init(&s->seen_lock, LOCK_LEAF);
    list_init(&s->tasks);
    s->thread = thread_start("sync", schedule_main, s);
    return s;
}

static struct task *find_sync_task(struct sync *s, struct slice name)
{
    LIST_EACH (&s->tasks, it) {
        struct task *t = LIST_ITEM(it, struct task, node);
        if (t->setup != NULL && slice_eqs(name, t->name)) {
            return t;
        }
    }
    return NULL;
}

/* A run that the last life did not end goes on at once: what it fetched is here. */
static void look_back(struct sync *s, struct task *t)
{
    struct run_report last;
    struct err e = {0};
    uint64_t now = clock_unix_s();
    int rc;

    if (!is_alone(s)) {
        follow_task(t, now);
        return;
    }
    rc = history_get(s->world.store, slice_str(t->name), 0, &last, &e);
    if (rc != 0) {
        if (rc != E_NOTFOUND) {
            log_warn("sync.history", "repo=%s why=\"%s\"", t->name, e.text);
        }
        task_plan_next(t, 0, now);
        return;
    }
    t->last_id = last.id;
    task_plan_next(t, last.started_unix_s, now);
    if (last.outcome == RUN_RUNNING) {
        last.outcome = RUN_INTERRUPTED;
        last.ended_unix_s = now;
        (void)!history_put(s->world.store, slice_str(t->name), &last, &e);
    }
    if ((last.outcome == RUN_INTERRUPTED || last.outcome == RUN_STOPPED) && !last.dry &&
        t->setup->scheduled) {
        t->next_unix_s = now;
    }
}

/* One whose repo went and whose run has not ended is taken up again: a repo has one run at a
 * time. */
static struct task *find_ending(struct sync *s, struct slice name)
{
    LIST_EACH (&s->tasks, it) {
        struct task *t = LIST_ITEM(it, struct task, node);
        if (slice_eqs(name, t->name)) {
            return t;
        }
    }
    return NULL;
}

static bool same_times(const struct setup *a, const struct setup *b)
{
    return a->scheduled == b->scheduled && a->conf->jitter_ms == b->conf->jitter_ms &&
           (!a->scheduled || strcmp(a->conf->schedule, b->conf->schedule) == 0);
}

static void task_set(struct sync *s, const char *name, struct setup *u)
{
    struct task *t = find_ending(s, slice_str(name));
    uint64_t now = clock_unix_s();

    if (t != NULL) {
        /* Who reloads more often than a run is due would put it off for ever. */
        bool same = t->setup != NULL && same_times(t->setup, u);
        setup_release(&t->setup);
        t->setup = u;
        if (!same && is_alone(s)) {
            t->due = false;
            task_plan_next(t, t->next_unix_s != 0 ? now : 0, now);
        } else if (!same) {
            t->planned = false;
            follow_task(t, now);
        }
        return;
    }
    t = NEW(struct task);
    t->sync = s;
    t->name = mem_strdup(name);
    t->setup = u;
    look_back(s, t);
    list_push_back(&s->tasks, &t->node);
}

struct named {
    const struct sync_repo_settings *repos;
    size_t count;
};

static bool is_nobodys(void *arg, const struct partial *p)
{
    const struct named *n = arg;
    struct slice path = partial_name(p);
    struct slice repo = slice_cut(&path, '\0');

    for (size_t i = 0; i < n->count; i++) {
        if (slice_eqs(repo, n->repos[i].repo->name)) {
            return false;
        }
    }
    return true;
}

int sync_set(struct sync *s, const struct sync_repo_settings *repos, size_t count,
             unsigned together, struct err *e)
{
    struct setup **fresh = mem_array(count + 1, sizeof *fresh);
    int rc = 0;

    for (size_t i = 0; i < count; i++) {
        if (rc == 0) {
            rc = setup_new(&repos[i], &fresh[i], e);
        } else {
            repos[i].release(repos[i].held);
        }
    }
    lock_take(&s->lock);
    for (size_t i = 0; rc != 0 && i < count; i++) {
        setup_release(&fresh[i]);
    }
    if (rc == 0) {
        s->together = together;
        LIST_EACH (&s->tasks, it) {
            struct task *t = LIST_ITEM(it, struct task, node);
            size_t i = 0;
            while (i < count && strcmp(repos[i].repo->name, t->name) != 0) {
                i++;
            }
            if (i == count) {
                setup_release(&t->setup);
                if (t->run == NULL) {
                    task_free(t);
                } else if (!t->ended) { /* else it is being closed */
                    run_stop(t->run);
                }
            }
        }
        for (size_t i = 0; i < count; i++) {
            task_set(s, repos[i].repo->name, fresh[i]);
        }
        cond_broadcast(&s->news);
    }
    lock_drop(&s->lock);
    free(fresh);
    if (rc == 0) {
        struct named n = {repos, count};
        partials_lose(s->world.store, PARTIAL_SYNC, is_nobodys, &n);
        partials_drop_lost(s->world.store);
    }
    return rc;
}

static bool all_have_ended(struct sync *s)
{
    LIST_EACH (&s->tasks, it) {
        const struct task *t = LIST_ITEM(it, struct task, node);
        if (t->run != NULL && !t->ended) {
            return false;
        }
    }
    return true;
}

void sync_stop(struct sync *s, uint64_t wait_ms)
{
    uint64_t until_ms = clock_now_ms() + wait_ms, now_ms;

    if (s == NULL) {
        return;
    }
    lock_take(&s->lock);
    s->stop = true;
    cond_broadcast(&s->news);
    lock_drop(&s->lock);
    if (!s->joined) {
        pthread_join(s->thread, NULL);
        s->joined = true;
    }
    lock_take(&s->lock);
    LIST_EACH (&s->tasks, it) {
        struct task *t = LIST_ITEM(it, struct task, node);
        if (t->run != NULL && !t->ended) {
            run_interrupt(t->run);
        }
    }
    while (!all_have_ended(s) && (now_ms = clock_now_ms()) < until_ms) {
        (void)cond_wait_ms(&s->news, &s->lock, until_ms - now_ms);
    }
    lock_drop(&s->lock);
}

void sync_close(struct sync **sp)
{
    struct sync *s = *sp;

    *sp = NULL;
    if (s == NULL) {
        return;
    }
    sync_stop(s, 0);
    LIST_EACH (&s->tasks, it2) {
        struct task *t = LIST_ITEM(it2, struct task, node);
        run_close(&t->run);
        task_free(t);
    }
    cond_fini(&s->news);
    lock_fini(&s->lock);
    lock_fini(&s->seen_lock);
    free(s->seen);
    free(s);
}

/* --- by hand --- */

static int sync_need(struct sync *s, struct slice repo, struct task **out, struct err *e)
{
    *out = find_sync_task(s, repo);
    return *out != NULL ? 0
                        : err_set(e, E_NOTFOUND,
                                  "repo \"" SLICE_FMT
                                  "\" is not synced: it has no sync section; see mirrord.conf(5)",
                                  SLICE_ARG(repo));
}

/* Under the lock. The task may be another one afterwards. */
static int wait_for_news(struct sync *s, struct slice repo, struct task **t, struct err *e)
{
    if (!s->stop) {
        cond_wait(&s->news, &s->lock);
    }
    return s->stop ? err_set(e, E_CANCELLED, "this mirror is shutting down")
                   : sync_need(s, repo, t, e);
}

int sync_start(struct sync *s, struct slice repo, bool dry, bool force, uint64_t *id, struct err *e)
{
    struct task *t;
    int rc;

    lock_take(&s->lock);
    rc = sync_need(s, repo, &t, e);
    /* Whoever has seen the last one's outcome may begin the next: its thread is about to be
     * joined. */
    while (rc == 0 && t->run != NULL && (!t->begun || t->ended || run_is_over(t->run))) {
        rc = wait_for_news(s, repo, &t, e);
    }
    if (rc == 0 && t->run != NULL) {
        rc = err_set(
            e, E_BUSY,
            "run %" PRIu64
            " of \"%s\" is under way, and a repo has only one at a time; wait for it or stop it",
            t->last_id, t->name);
    }
    if (rc == 0 && s->stop) {
        rc = err_set(e, E_CANCELLED, "this mirror is shutting down");
    }
    rc = rc != 0 ? rc : task_launch(t, dry, force, e);
    while (rc == 0 && t->run != NULL && !t->begun && !t->ended) { /* it claims the repo */
        rc = wait_for_news(s, repo, &t, e);
    }
    if (rc == 0 && t->refused.code != 0) {
        *e = t->refused;
        rc = e->code;
    }
    *id = rc == 0 ? t->last_id : 0;
    lock_drop(&s->lock);
    return rc;
}

void sync_await(struct sync *s, struct slice repo, uint64_t id, uint64_t ms)
{
    uint64_t until_ms = clock_now_ms() + ms, now_ms;
    struct task *t;

    lock_take(&s->lock);
    while ((t = find_sync_task(s, repo)) != NULL && t->run != NULL && !t->ended &&
           t->last_id == id && (now_ms = clock_now_ms()) < until_ms) {
        (void)cond_wait_ms(&s->news, &s->lock, until_ms - now_ms);
    }
    lock_drop(&s->lock);
}

/* Ends the claim of another mirror: its run publishes nothing any more, and stops. */
static int revoke_claim(struct sync *s, struct slice repo, struct err *e)
{
    struct claim_look claim;
    struct batch *b;
    int rc = claim_look(s->world.claims, repo, &claim, e);

    if (rc != 0 || claim.state == CLAIM_FREE || claim.state == CLAIM_OURS) {
        return rc;
    }
    b = batch_new();
    claim_end(b, repo, &claim.row);
    rc = store_commit(s->world.store, &b, COMMIT_SYNC, e);
    return rc == E_CHANGED ? 0 : rc; /* that run is over */
}

/* wait: until its thread is joined, too. */
static int stop_run(struct sync *s, struct slice repo, bool wait, struct err *e)
{
    struct task *t;
    int rc;

    lock_take(&s->lock);
    rc = sync_need(s, repo, &t, e);
    if (rc == 0 && t->run != NULL && !t->ended) {
        run_stop(t->run);
    }
    while (rc == 0 && wait && t->run != NULL) {
        rc = wait_for_news(s, repo, &t, e);
    }
    lock_drop(&s->lock);
    return rc != 0 || is_alone(s) ? rc : revoke_claim(s, repo, e);
}

int sync_cancel(struct sync *s, struct slice repo, struct err *e)
{
    return stop_run(s, repo, false, e);
}

/* A run under way writes the state's row at its end: who changes that stops it first. */
static int stop_and_wait(struct sync *s, struct slice repo, struct err *e)
{
    return stop_run(s, repo, true, e);
}

int sync_pause(struct sync *s, struct slice repo, bool pause, struct err *e)
{
    struct batch *b;
    struct task *t;
    int rc;

    lock_take(&s->lock);
    rc = sync_need(s, repo, &t, e);
    lock_drop(&s->lock);
    if (rc != 0) {
        return rc;
    }
    b = batch_new();
    sync_state_pause(b, repo, pause);
    rc = store_commit(s->world.store, &b, COMMIT_SYNC, e);
    return rc == 0 && pause ? stop_and_wait(s, repo, e)
                            : rc; /* in this order: none begins in between */
}

static void say_for_hook(void *arg, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void say_for_hook(void *arg, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    log_info("sync.hook", "repo=%s %s", (const char *)arg, text);
}

/* What hook_published does for a run it does for people too. The thread that asked waits for it. */
static void hook_approved(struct sync *s, struct slice repo, const struct snap *sn)
{
    struct run_report r = {.outcome = RUN_PUBLISHED, .seq = sn->seq, .root = sn->root};
    struct hook_site site = {.base = event_base_new(), .say = say_for_hook};
    struct setup *u = NULL;
    struct task *t;
    struct err e = {0};

    CHECK(site.base != NULL);
    lock_take(&s->lock);
    if (sync_need(s, repo, &t, &e) == 0) {
        u = t->setup;
        u->holds++;
    }
    lock_drop(&s->lock);
    if (u != NULL) {
        site.arg = (void *)(uintptr_t)u->job.repo;
        r.started_unix_s = r.ended_unix_s = clock_unix_s();
        snprintf(r.upstream, sizeof r.upstream, "%s", u->job.upstream[0].url);
        if (hook_run(&site, u->conf, HOOK_PUBLISHED, u->job.repo, &r, &e) != 0) {
            log_warn("sync.hook", "repo=%s why=\"%s\"", u->job.repo, e.text);
        }
        lock_take(&s->lock);
        setup_release(&u);
        lock_drop(&s->lock);
    }
    event_base_free(site.base);
}

/* The head and what is known of it move together: killed in between, nothing would wait and be
 * live. */
static int publish_held(struct sync *s, struct slice repo, struct sync_state *st, uint64_t seq,
                        struct err *e)
{
    struct batch *b = batch_new();
    int rc = head_set(s->world.store, repo, SLICE(SYNC_TREE), seq, b, e);

    if (rc == 0) {
        st->held_seq = 0;
        st->cursor_bytes = 0;
        sync_state_put(b, repo, st);
        rc = store_commit(s->world.store, &b, COMMIT_SYNC, e);
        crash_point("sync.approved");
    }
    batch_free(&b);
    return rc;
}

int sync_approve(struct sync *s, struct slice repo, struct snap *out, struct err *e)
{
    struct sync_state st;
    char version[32];
    int rc = stop_and_wait(s, repo, e);

    rc = rc != 0 ? rc : sync_state_get(s->world.store, repo, &st, e);
    if (rc == 0 && st.held_seq == 0) {
        rc = err_set(e, E_NOTFOUND, "repo \"" SLICE_FMT "\" has no held snapshot", SLICE_ARG(repo));
    }
    if (rc == 0) {
        snprintf(version, sizeof version, "v%" PRIu64, st.held_seq);
        rc = snap_find(s->world.store, repo, SLICE(SYNC_TREE), slice_str(version), out, e);
    }
    rc = rc != 0 ? rc : publish_held(s, repo, &st, out->seq, e);
    if (rc == 0) {
        s->world.on_published(s->world.arg, repo);
        hook_approved(s, repo, out);
    }
    return rc;
}
