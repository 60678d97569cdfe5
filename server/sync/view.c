/* view.c - what people see of the repos that are synced. */
#include <stdio.h>
#include <stdlib.h>

#include "server/sync/sync_priv.h"

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
        rc = rc == E_NOTFOUND ? 0 : rc;
    }
    if (rc == 0) {
        rc = head_get(s->world.store, repo, SLICE(SYNC_TREE), &v->head, e);
        v->head.seq = rc == 0 ? v->head.seq : 0;
    }
    if (rc == 0) {
        rc = head_held(s->world.store, repo, SLICE(SYNC_TREE), &v->hold, e);
    }
    return rc == E_NOTFOUND ? 0 : rc;
}

void sync_refresh(struct sync *s)
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
