/* schedule.c - when runs begin, which may go together, and what becomes of those that have ended: one thread for all repos. */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/sync/sync_priv.h"

enum { TICK_MS = 500, AGAIN_S = 60 };

static uint64_t jitter_of(const struct task *t)
{
    uint64_t span_s = t->setup->conf->jitter_ms / 1000;

    return span_s != 0 ? slice_hash(slice_str(t->name)) % (span_s + 1) : 0;
}

void task_plan_next(struct task *t, uint64_t last_unix_s, uint64_t now_unix_s)
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

    lock_take(&t->sync->lock);
    run_look(r, &t->last);
    t->ended = true;
    cond_broadcast(&t->sync->news);
    lock_drop(&t->sync->lock);
}

int task_launch(struct task *t, bool dry, bool force, struct err *e)
{
    int rc;

    t->due = false;
    t->running = t->setup;
    t->running->holds++;
    t->job = t->setup->job;
    t->job.dry = dry;
    t->job.force = force;
    t->ended = false;
    rc = run_open(&t->sync->world, &t->job, t->last_id + 1, on_run_ended, t, &t->run, e);
    if (rc == 0) {
        t->last_id++;
    } else {
        setup_release(&t->running);
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

void task_free(struct task *t)
{
    list_remove_if(&t->node);
    setup_release(&t->setup);
    setup_release(&t->running);
    free(t->name);
    free(t);
}

static void count(struct task *t, const struct run_report *last)
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
        count(t, &last);
        lock_drop(&s->lock);
        run_close(&r);
        lock_take(&s->lock);
        t->run = NULL;
        setup_release(&t->running);
        task_plan_next(t, now, now);
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

static void begin(struct task *t, uint64_t now_unix_s)
{
    struct err e = {0};

    if (task_launch(t, false, false, &e) != 0) {
        log_warn("sync.start", "repo=%s why=\"%s\" again_s=%d", t->name, e.text, AGAIN_S);
        t->next_unix_s = now_unix_s + AGAIN_S;
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
            begin(t, now);
        }
    }
}

void *schedule_main(void *sync)
{
    struct sync *s = sync;

    lock_take(&s->lock);
    while (!s->stop) {
        while (reap_one(s)) {
        }
        begin_due(s);
        sync_refresh(s);
        (void)cond_wait_ms(&s->news, &s->lock, TICK_MS);
    }
    lock_drop(&s->lock);
    return NULL;
}
