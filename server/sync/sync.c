#include "server/sync/sync.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/crash.h"
#include "server/sync/hook.h"
#include "server/store/partial.h"
#include "server/sync/sync_priv.h"

struct sync *sync_open(const struct run_world *w)
{
    struct sync *s = NEW(struct sync);

    s->world = *w;
    s->together = 1;
    lock_init(&s->lock, LOCK_SYNC);
    cond_init(&s->news);
    lock_init(&s->seen_lock, LOCK_LEAF);
    list_init(&s->tasks);
    s->thread = thread_start("sync", schedule_main, s);
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

/* One whose repo went and whose run has not ended is taken up again: a repo has one run at a time. */
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
        if (!same) {
            t->due = false;
            task_plan_next(t, t->next_unix_s != 0 ? now : 0, now);
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

int sync_need(struct sync *s, struct slice repo, struct task **out, struct err *e)
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
    rc = sync_need(s, repo, &t, e);
    /* Whoever has seen the last one's outcome may begin the next: its thread is about to be joined. */
    while (rc == 0 && t->run != NULL && (t->ended || run_is_over(t->run))) {
        cond_wait(&s->news, &s->lock);
        rc = sync_need(s, repo, &t, e);
    }
    if (rc == 0 && t->run != NULL) {
        rc = err_set(e, E_BUSY,
                     "run %" PRIu64 " of \"%s\" is under way, a repo has one at a time, wait for "
                     "it or stop it",
                     t->last_id, t->name);
    }
    if (rc == 0) {
        rc = task_launch(t, dry, force, e);
        *id = t->last_id;
    }
    lock_drop(&s->lock);
    return rc;
}

void sync_await(struct sync *s, struct slice repo, uint64_t id, uint64_t ms)
{
    uint64_t until_ms = clock_now_ms() + ms, now_ms;
    struct task *t;

    lock_take(&s->lock);
    while ((t = find(s, repo)) != NULL && t->run != NULL && !t->ended && t->last_id == id &&
           (now_ms = clock_now_ms()) < until_ms) {
        (void)cond_wait_ms(&s->news, &s->lock, until_ms - now_ms);
    }
    lock_drop(&s->lock);
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
        cond_wait(&s->news, &s->lock);
        rc = sync_need(s, repo, &t, e);
    }
    lock_drop(&s->lock);
    return rc;
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

/* The head and what is known of it move together: killed in between, nothing would wait and be live. */
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
        rc = publish_held(s, repo, &st, out->seq, e);
    }
    if (rc == 0) {
        s->world.on_published(s->world.arg, repo);
        hook_approved(s, repo, out);
    }
    return rc;
}
