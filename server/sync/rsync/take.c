/* take.c - files asked of an rsync daemon: they wait, are asked for many at once, and are answered in that order.
 *
 * A take whose digest does not hold is asked for again, with full sums if it was a delta, then whole, and then given up.
 */
#include <event2/event.h>
#include <stdlib.h>

#include "server/sync/rsync/rsync_engine.h"

/* Bytes of bases, before the loop has its say. */
enum { SUMS_A_TURN = 64 << 20, COPIED_A_TURN = 64 << 20 };

enum try { TRY_DELTA, TRY_FULL, TRY_WHOLE, TRY_LAST };

struct take {
    struct list node; /* waiting, or asked, in order */
    struct engine *engine;
    struct take_events ev;
    void *arg;
    bool cancelled; /* its answer is still to come, and goes nowhere */
    bool asked;
    enum try attempt;
    int32_t index;
    uint64_t listed_bytes;
    int64_t mtime_ns;
    struct blob *basis;
    uint64_t came_bytes;
    uint64_t found_bytes; /* of those, in the basis */
    bool begins;          /* the basis is the beginning of the file */
    unsigned class;       /* delta.h */
};

static struct take *first_of(const struct list *l)
{
    return list_empty(l) ? NULL : LIST_ITEM(l->next, struct take, node);
}

static void take_free(struct take *t)
{
    list_remove_if(&t->node);
    blob_release(&t->basis);
    free(t);
}

void rsync_takes_free(struct engine *g)
{
    struct take *t;

    while ((t = first_of(&g->waiting)) != NULL || (t = first_of(&g->asked)) != NULL) {
        take_free(t);
    }
}

bool rsync_takes_answered(const struct engine *g)
{
    return list_empty(&g->waiting) && list_empty(&g->asked);
}

/* --- asking ------------------------------------------------------------------------------------------------------------ */

/* Sums of the basis; false: it cannot be read, so the visit is over. */
static bool write_sums(struct engine *g, struct take *t, uint64_t *spent)
{
    const struct sums_head *h;
    uint32_t i;
    struct err e = {.code = 0};

    while (pull_may_ask(g->pull) && (h = pull_asking(g->pull, &i)) != NULL) {
        uint32_t n = sums_block(h, i);
        int rc = blob_read(t->basis, (uint64_t)i * h->block_bytes, g->block, n, &e);
        if (rc != 0) {
            rsync_ended(g, rc, &e);
            return false;
        }
        pull_block(g->pull, slice_of(g->block, n));
        *spent += n;
        if (*spent > SUMS_A_TURN) {
            event_active(g->kick, EV_TIMEOUT, 0);
            break;
        }
    }
    return true;
}

static void ask(struct engine *g, struct take *t)
{
    uint64_t basis = t->attempt < TRY_WHOLE && t->basis != NULL ? blob_size_bytes(t->basis) : 0;

    list_remove(&t->node);
    list_push_back(&g->asked, &t->node);
    t->asked = true;
    t->came_bytes = t->found_bytes = 0;
    pull_ask(g->pull, t->index, t->listed_bytes, basis, t->attempt == TRY_FULL);
}

/* As many requests as the machine takes now. */
void rsync_fill(struct engine *g)
{
    uint64_t spent = 0;

    while (!g->broken && !g->closed && g->listed && !g->finished && pull_may_ask(g->pull) &&
           spent <= SUMS_A_TURN) {
        uint32_t i;
        struct take *t;
        if (pull_asking(g->pull, &i) != NULL) { /* of the last one that was asked */
            t = LIST_ITEM(g->asked.prev, struct take, node);
            if (!write_sums(g, t, &spent)) {
                return;
            }
            continue;
        }
        t = first_of(&g->waiting);
        if (t == NULL) {
            if (g->finishing && list_empty(&g->asked)) {
                pull_end_phase(g->pull);
            }
            break;
        }
        ask(g, t);
    }
    if (g->link != NULL && !g->broken && !g->closed) {
        link_pump(g->link);
    }
}

/* --- answers ----------------------------------------------------------------------------------------------------------- */

/* What the pipeline answered: an error of a take ends that one alone. */
static int answered(struct engine *g, struct take *t, int rc)
{
    if (g->closed) {
        return E_CANCELLED;
    }
    if (rc < 0) {
        struct err e = {.code = 0};
        err_set(&e, rc, "%s", err_plain(rc));
        t->cancelled = true; /* the rest of its answer goes nowhere */
        t->ev.on_done(t->arg, rc, &e, NULL);
        return g->closed ? E_CANCELLED : 0;
    }
    return rc == TAKE_PAUSE ? PULL_PAUSE : 0;
}

int rsync_on_begin(void *arg, int32_t index)
{
    struct engine *g = arg;
    struct take *t = first_of(&g->asked);

    CHECK(t != NULL && t->index == index);
    return t->cancelled ? 0 : answered(g, t, t->ev.on_begin(t->arg, 0, SLICE_NONE));
}

/* Four bytes of the wire may name 128 KiB of the basis. */
static int copied(struct engine *g, size_t n)
{
    g->copied_bytes += n;
    if (g->copied_bytes < COPIED_A_TURN) {
        return 0;
    }
    g->copied_bytes = 0;
    g->resting = true;
    event_active(g->kick, EV_TIMEOUT, 0);
    return PULL_PAUSE;
}

int rsync_on_bytes(void *arg, struct slice bytes, bool here)
{
    struct engine *g = arg;
    struct take *t = first_of(&g->asked);
    int rc;

    t->came_bytes += bytes.n;
    if (t->cancelled) {
        return here ? copied(g, bytes.n) : 0;
    }
    rc = answered(g, t, here ? t->ev.on_copy(t->arg, bytes) : t->ev.on_body(t->arg, bytes));
    return rc == 0 && here ? copied(g, bytes.n) : rc;
}

int rsync_read_basis(void *arg, uint64_t off, void *to, size_t n, struct err *e)
{
    struct engine *g = arg;
    struct take *t = first_of(&g->asked);

    t->found_bytes += n;
    return blob_read(t->basis, off, to, n, e);
}

static void done(struct take *t, int rc, const struct err *why)
{
    struct take_got got = {.mtime_ns = SYNC_TIME_UNKNOWN};

    list_remove(&t->node);
    /* Not as long as it was listed: it changed meanwhile, and the next run has to look again. */
    if (rc == 0 && t->came_bytes != t->listed_bytes && t->mtime_ns > INT64_MIN / 2) {
        got.mtime_ns = t->mtime_ns - 1000000000;
    }
    if (!t->cancelled) {
        t->ev.on_done(t->arg, rc, why, rc == 0 ? &got : NULL);
    }
    take_free(t);
}

int rsync_on_end(void *arg, int32_t index, bool good)
{
    struct engine *g = arg;
    struct take *t = first_of(&g->asked);
    bool again = !good && !t->cancelled && t->attempt < TRY_LAST;
    struct err e = {.code = 0};

    CHECK(t->index == index);
    if (good && t->attempt == TRY_DELTA && !t->begins) { /* a beginning says nothing of changes */
        delta_learn(&g->delta, t->class, t->found_bytes, t->came_bytes);
    }
    if (good || t->cancelled) {
        done(t, 0, NULL);
    } else {
        g->site.log(g->site.log_arg, "the digest of entry %d does not hold%s", (int)index,
                    again ? ", asked for again" : "");
        if (again) {
            t->attempt = t->attempt == TRY_DELTA ? TRY_FULL : TRY_LAST;
            list_remove(&t->node);
            list_push_front(&g->waiting, &t->node);
            t->asked = false;
        } else {
            done(t, err_set(&e, E_CORRUPT, "the peer's digest does not hold"), &e);
        }
    }
    if (!g->closed) {
        rsync_fill(g);
    }
    return g->closed ? E_CANCELLED : 0;
}

void rsync_on_missing(void *arg, int32_t index)
{
    struct engine *g = arg;
    struct err e = {.code = 0};

    LIST_EACH (&g->asked, it) {
        struct take *t = LIST_ITEM(it, struct take, node);
        if (t->index == index) {
            done(t, err_set(&e, E_NOTFOUND, "the peer cannot read it any more"), &e);
            break;
        }
    }
    if (!g->closed) {
        rsync_fill(g);
    }
}

/* --- doors ------------------------------------------------------------------------------------------------------------- */

struct take *rsync_take(struct engine *g, const struct take_want *w, const struct take_events *ev,
                        void *arg)
{
    struct take *t = NEW(struct take);

    CHECK(w->entry->type == SYNC_FILE && g->listed && !g->finishing);
    *t = (struct take){.engine = g,
                       .ev = *ev,
                       .arg = arg,
                       .attempt = TRY_WHOLE,
                       .index = (int32_t)w->entry->ref,
                       .listed_bytes = w->entry->size_bytes,
                       .mtime_ns = w->entry->mtime_ns};
    if (w->basis != NULL &&
        (w->basis_begins ||
         delta_pays(&g->delta, w->entry->path, w->entry->size_bytes, blob_size_bytes(w->basis)))) {
        t->class = delta_class(w->entry->path);
        t->basis = blob_hold(w->basis);
        t->begins = w->basis_begins;
        t->attempt = TRY_DELTA;
    }
    list_push_back(&g->waiting, &t->node);
    event_active(g->kick, EV_TIMEOUT, 0);
    return t;
}

void rsync_go_on(struct engine *g)
{
    g->resting = false;
    if (pull_paused(g->pull)) {
        pull_resume(g->pull);
        link_pause(g->link, false);
    }
}

void rsync_resume(struct take *t)
{
    if (t == first_of(&t->engine->asked) && !t->engine->resting) {
        rsync_go_on(t->engine);
    }
}

void rsync_cancel(struct take **tp)
{
    struct take *t = *tp;

    if (t == NULL) {
        return;
    }
    *tp = NULL;
    t->cancelled = true;
    if (t->asked) {
        rsync_resume(t);
    } else {
        take_free(t);
    }
}
