#include "server/sync/sync.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/sync/setup.h"

enum { TICK_MS = 500 };

struct task { /* one repo */
    struct list node;
    struct sync *sync;
    const char *name;
    char *name_own;
    struct setup *setup;   /* NULL: not synced any more, goes when its run has ended */
    struct setup *running; /* the run's */
    struct run_job job;    /* the run's: setup's with its own flags */
    struct run *run;       /* or NULL */
    bool ended;            /* run_close() is due */
    bool due;
    uint64_t next_unix_s; /* 0: never */
    uint64_t last_id;
    uint64_t runs[RUN_INTERRUPTED + 1];
    uint64_t wire_bytes;
};

struct sync {
    struct run_world world;
    struct lock lock;
    struct cond news;
    struct list tasks; /* by name */
    unsigned together;
    bool stop;
    pthread_t thread;
    struct lock seen_lock; /* guards what follows: loops take it, and nobody blocks under it */
    struct sync_view *seen;
    size_t seen_count;
};

/* --- the schedule --- */

static uint64_t jitter_of(const struct task *t)
{
    uint64_t span_s = t->setup->conf.jitter_ms / 1000;

    return span_s != 0 ? slice_hash(slice_str(t->name)) % (span_s + 1) : 0;
}

/* last_unix_s: when the last run began, 0: it never ran. What was missed while we were away is due at once. */
static void plan_next(struct task *t, uint64_t last_unix_s, uint64_t now_unix_s)
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

static void on_run_ended(void *arg, struct run *r)
{
    struct task *t = arg;

    (void)r;
    lock_take(&t->sync->lock);
    t->ended = true;
    cond_broadcast(&t->sync->news);
    lock_drop(&t->sync->lock);
}

/* Under the lock. */
static void launch(struct task *t, bool dry, bool force)
{
    t->due = false;
    t->running = t->setup;
    t->running->holds++;
    t->job = t->setup->job;
    t->job.dry = dry;
    t->job.force = force;
    t->ended = false;
    t->run = run_open(&t->sync->world, &t->job, ++t->last_id, on_run_ended, t);
}

static bool same_host(const struct setup *a, const struct setup *b)
{
    struct slice x = slice_str(a->job.upstream[0].url), y = slice_str(b->job.upstream[0].url);

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
        if (o->run != NULL && !o->ended) {
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
    free(t->name_own);
    free(t);
}

/* Joins runs that have ended. The lock is given back meanwhile. */
static bool reap_one(struct sync *s)
{
    LIST_EACH (&s->tasks, it) {
        struct task *t = LIST_ITEM(it, struct task, node);
        struct run *r = t->run;
        struct run_report last;
        uint64_t now = clock_unix_s();
        if (r == NULL || !t->ended) {
            continue;
        }
        run_look(r, &last);
        t->runs[last.outcome]++;
        t->wire_bytes += last.wire_bytes;
        lock_drop(&s->lock);
        run_close(&r);
        lock_take(&s->lock);
        t->run = NULL;
        setup_release(&t->running);
        plan_next(t, now, now);
        if (t->setup == NULL) {
            task_free(t);
        }
        cond_broadcast(&s->news);
        return true;
    }
    return false;
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
            plan_next(t, now, now);
            continue;
        }
        t->due = true;
        if (may_begin(s, t)) {
            launch(t, false, false);
        }
    }
}

static int view_of(struct sync *s, struct task *t, struct sync_view *v, struct err *e);

static void refresh(struct sync *s)
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

static void *schedule(void *arg)
{
    struct sync *s = arg;

    lock_take(&s->lock);
    while (!s->stop) {
        while (reap_one(s)) {
        }
        begin_due(s);
        refresh(s);
        (void)cond_wait_ms(&s->news, &s->lock, TICK_MS);
    }
    lock_drop(&s->lock);
    return NULL;
}

/* --- opening, setting, closing --- */

struct sync *sync_open(const struct run_world *w)
{
    struct sync *s = NEW(struct sync);

    s->world = *w;
    s->together = 1;
    lock_init(&s->lock, LOCK_SYNC);
    cond_init(&s->news);
    lock_init(&s->seen_lock, LOCK_LEAF);
    list_init(&s->tasks);
    s->thread = thread_start("sync", schedule, s);
    return s;
}

static struct task *find(struct sync *s, struct slice name)
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
    int rc = history_get(s->world.store, slice_str(t->name), 0, &last, &e);

    if (rc != 0) {
        if (rc != E_NOTFOUND) {
            log_warn("sync.history", "repo=%s why=\"%s\"", t->name, e.text);
        }
        plan_next(t, 0, now);
        return;
    }
    t->last_id = last.id;
    plan_next(t, last.started_unix_s, now);
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

static void task_set(struct sync *s, const char *name, struct setup *u)
{
    struct task *t = find(s, slice_str(name));
    uint64_t now = clock_unix_s();

    if (t != NULL) {
        setup_release(&t->setup);
        t->setup = u;
        t->due = false;
        plan_next(t, t->next_unix_s != 0 ? now : 0, now);
        return;
    }
    t = NEW(struct task);
    t->sync = s;
    t->name = t->name_own = mem_strdup(name);
    t->setup = u;
    look_back(s, t);
    list_push_back(&s->tasks, &t->node);
}

int sync_set(struct sync *s, const struct sync_repo_settings *repos, size_t count,
             unsigned together, struct err *e)
{
    struct setup **fresh = mem_array(count + 1, sizeof *fresh);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = setup_new(&repos[i], &fresh[i], e);
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
                } else {
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
    return rc;
}

void sync_close(struct sync **sp)
{
    struct sync *s = *sp;

    *sp = NULL;
    if (s == NULL) {
        return;
    }
    lock_take(&s->lock);
    s->stop = true;
    cond_broadcast(&s->news);
    lock_drop(&s->lock);
    pthread_join(s->thread, NULL);
    LIST_EACH (&s->tasks, it) {
        struct task *t = LIST_ITEM(it, struct task, node);
        if (t->run != NULL) {
            run_stop(t->run);
        }
    }
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

static int need(struct sync *s, struct slice repo, struct task **out, struct err *e)
{
    *out = find(s, repo);
    return *out != NULL ? 0
                        : err_set(e, E_NOTFOUND,
                                  "repo \"" SLICE_FMT "\" is not synced, it has no sync section, "
                                  "see mirrord.conf(5)",
                                  SLICE_ARG(repo));
}

int sync_start(struct sync *s, struct slice repo, bool dry, bool force, uint64_t *id, struct err *e)
{
    struct task *t;
    int rc;

    lock_take(&s->lock);
    rc = need(s, repo, &t, e);
    if (rc == 0 && t->run != NULL) {
        rc = err_set(e, E_BUSY,
                     "run %" PRIu64 " of \"%s\" is under way, a repo has one at a time, wait for "
                     "it or stop it",
                     t->last_id, t->name);
    }
    if (rc == 0) {
        launch(t, dry, force);
        *id = t->last_id;
    }
    lock_drop(&s->lock);
    return rc;
}

int sync_cancel(struct sync *s, struct slice repo, struct err *e)
{
    struct task *t;
    int rc;

    lock_take(&s->lock);
    rc = need(s, repo, &t, e);
    if (rc == 0 && t->run != NULL && !t->ended) {
        run_stop(t->run);
    }
    lock_drop(&s->lock);
    return rc;
}

static int change_state(struct sync *s, struct slice repo, const struct sync_state *st,
                        struct err *e)
{
    struct batch *b = batch_new();

    sync_state_put(b, repo, st);
    return store_commit(s->world.store, &b, COMMIT_SYNC, e);
}

/* A run under way writes the state's row at its end: it is stopped first, so that what is changed here stays. */
static int stop_and_wait(struct sync *s, struct slice repo, struct err *e)
{
    struct task *t;
    int rc;

    lock_take(&s->lock);
    rc = need(s, repo, &t, e);
    if (rc == 0 && t->run != NULL && !t->ended) {
        run_stop(t->run);
    }
    while (rc == 0 && t->run != NULL) {
        cond_wait(&s->news, &s->lock);
        rc = need(s, repo, &t, e);
    }
    lock_drop(&s->lock);
    return rc;
}

int sync_pause(struct sync *s, struct slice repo, bool pause, struct err *e)
{
    struct sync_state st;
    struct task *t;
    int rc;

    if (pause) {
        rc = stop_and_wait(s, repo, e);
    } else {
        lock_take(&s->lock);
        rc = need(s, repo, &t, e);
        lock_drop(&s->lock);
    }
    if (rc == 0) {
        rc = sync_state_get(s->world.store, repo, &st, e);
    }
    if (rc == 0) {
        st.paused = pause;
        rc = change_state(s, repo, &st, e);
    }
    return rc;
}

int sync_approve(struct sync *s, struct slice repo, struct snap *out, struct err *e)
{
    struct sync_state st;
    char version[32];
    int rc = stop_and_wait(s, repo, e);

    if (rc == 0) {
        rc = sync_state_get(s->world.store, repo, &st, e);
    }
    if (rc == 0 && st.held_seq == 0) {
        rc = err_set(e, E_NOTFOUND, "nothing of \"" SLICE_FMT "\" is held", SLICE_ARG(repo));
    }
    if (rc == 0) {
        snprintf(version, sizeof version, "v%" PRIu64, st.held_seq);
        rc = snap_find(s->world.store, repo, SLICE(SYNC_TREE), slice_str(version), out, e);
    }
    if (rc == 0) {
        rc = head_set(s->world.store, repo, SLICE(SYNC_TREE), out->seq, e);
    }
    if (rc == 0) {
        s->world.on_published(s->world.arg, repo);
        st.held_seq = 0;
        st.cursor_bytes = 0;
        rc = change_state(s, repo, &st, e);
    }
    return rc;
}

/* --- looking --- */

static int view_of(struct sync *s, struct task *t, struct sync_view *v, struct err *e)
{
    struct slice repo = slice_str(t->name);
    struct sync_state st;
    int rc = sync_state_get(s->world.store, repo, &st, e);

    *v = (struct sync_view){.running = t->run != NULL && !t->ended,
                            .waiting = t->due && t->run == NULL,
                            .next_unix_s = t->next_unix_s};
    memcpy(v->runs, t->runs, sizeof v->runs);
    v->wire_bytes = t->wire_bytes;
    snprintf(v->name, sizeof v->name, "%s", t->name);
    snprintf(v->upstream, sizeof v->upstream, "%s", t->setup->job.upstream[0].url);
    snprintf(v->schedule, sizeof v->schedule, "%s",
             t->setup->conf.schedule != NULL ? t->setup->conf.schedule : "");
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
        v->ever = rc == 0;
        rc = rc == E_NOTFOUND ? 0 : rc;
    }
    if (rc == 0) {
        rc = head_get(s->world.store, repo, SLICE(SYNC_TREE), &v->head, e);
        v->head.seq = rc == 0 ? v->head.seq : 0;
        rc = rc == E_NOTFOUND ? 0 : rc;
    }
    return rc;
}

int sync_look(struct sync *s, struct slice repo, struct sync_view *out, struct err *e)
{
    struct task *t;
    int rc;

    lock_take(&s->lock);
    rc = need(s, repo, &t, e);
    if (rc == 0) {
        rc = view_of(s, t, out, e);
    }
    lock_drop(&s->lock);
    return rc;
}

/* They are told when the lock is given back: who is told may be slow. */
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
