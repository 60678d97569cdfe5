#include "server/cluster/leave.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/cluster/adopt.h"
#include "server/cluster/held.h"
#include "server/store/batch.h"

#define LEFT_KEY SLICE("cluster left") /* in TABLE_META, during FORGET */

enum {
    HOLD_MS = 20000, /* so long commits may wait for the rest */
    IDLE_MS = 5000,  /* of these, for the commits before */
    HOLDS_MAX = 5,
    REPORT_MS = 200,
};

/* --- FETCH --- */

struct fetching {
    const struct leave_settings *set;
    const struct held_blob *blob;
    size_t count;
    uint64_t end_ms;  /* 0: there is no limit */
    struct lock lock; /* LOCK_LEAF; guards what follows */
    struct cond changed;
    size_t next;
    unsigned running;
    uint64_t done_bytes;
    bool ended; /* by the caller */
    struct err failed;
};

static bool is_over(const struct fetching *f)
{
    return f->ended || f->failed.code != 0 || f->next == f->count;
}

static void *run_fetcher(void *arg)
{
    struct fetching *f = arg;

    lock_take(&f->lock);
    while (!is_over(f)) {
        const struct held_blob *b = &f->blob[f->next++];
        struct err e = {0};
        int rc;

        lock_drop(&f->lock);
        rc = tree_content_fetch(f->set->trees, &b->digest, &e);
        lock_take(&f->lock);
        f->done_bytes += rc == 0 ? b->size_bytes : 0;
        if (rc != 0 && f->failed.code == 0) {
            f->failed = e;
            f->failed.code = rc == E_NOTFOUND ? E_CORRUPT : rc;
        }
    }
    f->running--;
    cond_signal(&f->changed);
    lock_drop(&f->lock);
    return NULL;
}

/* Under the lock: reports until the threads have ended. */
static void watch_fetchers(struct fetching *f, uint64_t before_bytes, uint64_t total_bytes)
{
    while (f->running != 0) {
        uint64_t done = before_bytes + f->done_bytes;
        bool end;

        lock_drop(&f->lock);
        end = atomic_load(f->set->stop) || (f->end_ms != 0 && clock_now_ms() >= f->end_ms) ||
              f->set->on_progress(f->set->arg, done, max_u64(done, total_bytes)) != 0;
        lock_take(&f->lock);
        f->ended = f->ended || end;
        if (f->running != 0) {
            cond_wait_ms(&f->changed, &f->lock, REPORT_MS);
        }
    }
}

static int fetch_blobs(struct fetching *f, struct left *out, uint64_t total_bytes, struct err *e)
{
    pthread_t thread[LEAVE_FETCHERS];

    lock_init(&f->lock, LOCK_LEAF);
    cond_init(&f->changed);
    f->running = LEAVE_FETCHERS;
    for (size_t i = 0; i < LEAVE_FETCHERS; i++) {
        thread[i] = thread_start("leave", run_fetcher, f);
    }
    lock_take(&f->lock);
    watch_fetchers(f, out->bytes, total_bytes);
    lock_drop(&f->lock);
    for (size_t i = 0; i < LEAVE_FETCHERS; i++) {
        pthread_join(thread[i], NULL);
    }
    cond_fini(&f->changed);
    lock_fini(&f->lock);
    out->bytes += f->done_bytes;
    if (f->failed.code != 0) {
        *e = f->failed;
        return e->code;
    }
    return f->ended ? err_set(e, E_CANCELLED, "stopped; what was fetched stays here") : 0;
}

/* All of it must be here at once. */
static int check_trees_fit(struct store *s, uint64_t all_bytes, struct err *e)
{
    char need[UNITS_TEXT], room[UNITS_TEXT], advice[SPACE_ADVICE];
    struct store_space space;

    store_space(s, &space);
    if (all_bytes <= space.quota_bytes) {
        return 0;
    }
    size_format(all_bytes, need);
    size_format(space.quota_bytes, room);
    return err_set(e, E_NOSPACE, "the trees hold %s, and the store has room for %s; %s", need, room,
                   store_space_advice(&space, advice));
}

static int fetch_missing(const struct leave_settings *set, uint64_t end_ms, struct left *out,
                         struct err *e)
{
    struct fetching f = {.set = set, .end_ms = end_ms};
    struct held_blob *blob = NULL;
    uint64_t all = 0, total = out->bytes;
    int rc = held_list(set->store, set->trees, HELD_NOT_HERE, &blob, &f.count, &all, e);

    rc = rc != 0 ? rc : check_trees_fit(set->store, all, e);
    for (size_t i = 0; i < f.count; i++) {
        total += blob[i].size_bytes;
    }
    f.blob = blob;
    rc = rc != 0 ? rc : fetch_blobs(&f, out, total, e);
    free(blob);
    return rc;
}

/* --- PART --- */

static int part(struct store *s, struct err *e)
{
    struct batch *b = batch_new();
    int rc = sequencer_forget(s, b, e);

    if (rc == 0) {
        batch_del(b, TABLE_META, IDENTITY_ROW);
        batch_put(b, TABLE_META, LEFT_KEY, SLICE(""));
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    batch_free(&b);
    return rc;
}

/* Whether no entry of this mirror is on its way. */
static int check_settled(struct cluster_sequencer *q, struct err *e)
{
    struct sequencer_status st;

    sequencer_status(q, &st);
    return st.in_doubt || st.stopped || st.failures != 0
               ? err_set(e, E_AGAIN, "the cluster's log cannot be followed now (%.150s); try again",
                         st.why.text)
               : 0;
}

/* E_TIMEOUT: there was too much to fetch; the mirror follows the log again. E_BUSY: clients were
 * still publishing. */
static int part_held(const struct leave_settings *set, struct left *out, struct err *e)
{
    uint64_t began_ms = clock_now_ms();
    bool parted = false;
    int rc = sequencer_hold(set->sequencer, IDLE_MS, e);

    if (rc != 0) {
        return err_set(e, E_BUSY,
                       "changes of clients are still being uploaded to the bucket; try again when "
                       "they are done");
    }
    rc = check_settled(set->sequencer, e);
    if (rc != 0) {
        sequencer_release(set->sequencer);
        return rc;
    }
    sequencer_part(set->sequencer);
    rc = fetch_missing(set, began_ms + HOLD_MS, out, e);
    if (rc == E_CANCELLED && clock_now_ms() >= began_ms + HOLD_MS) {
        rc = err_set(e, E_TIMEOUT, "the rest takes too long");
    }
    rc = rc != 0 ? rc : part(set->store, e);
    parted = rc == 0;
    if (parted) {
        set->on_parted(set->arg);
        sequencer_release(set->sequencer);
    } else {
        (void)!sequencer_join_until(set->sequencer, set->stop, NULL);
        rc = atomic_load(set->stop) ? err_set(e, E_CANCELLED, "this mirror is shutting down") : rc;
    }
    out->held_ms = clock_now_ms() - began_ms;
    return rc;
}

/* --- all of it --- */

int leave_run(const struct leave_settings *set, struct left *out, struct err *e)
{
    unsigned holds = 0;
    int rc;

    *out = (struct left){0};
    set->source->stay = true;
    do {
        rc = fetch_missing(set, 0, out, e);
        rc = rc != 0 ? rc : part_held(set, out, e);
    } while (rc == E_TIMEOUT && ++holds < HOLDS_MAX);
    if (rc == E_TIMEOUT) {
        rc = err_set(e, E_BUSY,
                     "the other mirrors publish more than can be fetched; try again when they "
                     "publish less");
    }
    if (rc != 0) {
        set->source->stay = false;
        return rc;
    }
    return leave_finish(set->store, e);
}

int leave_finish(struct store *s, struct err *e)
{
    struct buf row = BUF_INIT(256);
    struct batch *b;
    int rc = store_get(s, TABLE_META, LEFT_KEY, &row, e);

    buf_free(&row);
    if (rc != 0) {
        return rc == E_NOTFOUND ? 0 : rc;
    }
    rc = adopt_forget_places(s, false, e);
    if (rc == 0) {
        b = batch_new();
        batch_del(b, TABLE_META, LEFT_KEY);
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    return rc;
}

/* --- without the bucket --- */

int leave_offline(struct store *s, bool force, uint64_t *missing, uint64_t *missing_bytes,
                  struct err *e)
{
    struct tree_content *t = tree_content_open(&(struct tree_content_settings){.store = s});
    struct held_blob *blob = NULL;
    enum sequencer_rows rows;
    uint64_t all;
    size_t n = 0;
    int rc = sequencer_look(s, &rows, e);

    *missing_bytes = 0;
    if (rc == 0 && rows != ROWS_OF_CLUSTER) {
        rc = err_set(e, E_NOTFOUND, "%s is not the state_dir of a mirror of a cluster",
                     store_folder(s));
    }
    rc = rc != 0 ? rc : held_list(s, t, HELD_NOT_HERE, &blob, &n, &all, e);
    for (size_t i = 0; i < n; i++) {
        *missing_bytes += blob[i].size_bytes;
    }
    *missing = n;
    if (rc == 0 && n != 0 && !force) {
        rc = err_set(e, E_CORRUPT, "%zu files that trees hold are not on this disk", n);
    }
    rc = rc != 0 ? rc : part(s, e);
    rc = rc != 0 ? rc : leave_finish(s, e);
    free(blob);
    tree_content_close(&t);
    return rc;
}
