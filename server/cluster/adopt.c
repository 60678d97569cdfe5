#include "server/cluster/adopt.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/cluster/checkpoint.h"
#include "server/cluster/held.h"
#include "server/cluster/retry.h"
#include "server/store/batch.h"

/* In TABLE_META. */
#define ADOPTING_KEY SLICE("cluster adopting")
#define FOUNDING_KEY SLICE("cluster founding")

enum {
    PASSES_MAX = 20,    /* of uploads, before and between holds */
    QUICK_MS = 2000,    /* a pass that takes less leaves little for the hold */
    HOLD_MS = 20000,    /* so long commits may wait for the rest */
    SETTLE_MS = 10000,  /* so long they may wait for entry 1; then they are refused */
    FINISH_MS = 60000,  /* at the start */
    REQUEST_MS = 30000, /* other requests */
    FORGET_BYTES = 1 << 20,
    TRAILS_MAX = 1000, /* heads of checkpoints that an interrupted call has left */
};

/* --- rows of the store --- */

static int has_meta(struct store *s, struct slice key, bool *yes, struct err *e)
{
    struct buf value = BUF_INIT(LOG_ENTRY_BYTES_MAX);
    int rc = store_get(s, TABLE_META, key, &value, e);

    *yes = rc == 0;
    buf_free(&value);
    return rc == E_NOTFOUND ? 0 : rc;
}

static int drop_row(struct store *s, struct slice key, struct err *e)
{
    struct batch *b = batch_new();

    batch_del(b, TABLE_META, key);
    return store_commit(s, &b, COMMIT_SYNC, e);
}

struct forgetting {
    struct store *store;
    struct batch *batch;
    enum table table;
    bool nodes_only;
    struct err *e;
};

static int on_row_to_forget(void *arg, struct slice key, struct slice value)
{
    struct forgetting *f = arg;
    int rc = 0;

    (void)value;
    if (f->nodes_only && (key.n == 0 || key.p[key.n - 1] != CONTENT_NODE)) {
        return 0;
    }
    batch_del(f->batch, f->table, key);
    if (batch_bytes(f->batch) >= FORGET_BYTES) {
        rc = store_commit_alone(f->store, &f->batch, COMMIT_LAZY, f->e);
        f->batch = batch_new();
    }
    return rc;
}

static int forget_table(struct forgetting *f, enum table t, struct err *e)
{
    int rc;

    f->table = t;
    f->batch = batch_new();
    f->e = e;
    rc = store_scan_once(f->store, t, SLICE_NONE, SLICE_NONE, on_row_to_forget, f, e);
    if (rc != 0) {
        batch_free(&f->batch);
        return rc;
    }
    return store_commit_alone(f->store, &f->batch, COMMIT_SYNC, e);
}

int adopt_forget_places(struct store *s, bool nodes_only, struct err *e)
{
    struct forgetting f = {.store = s, .nodes_only = nodes_only};
    int rc = forget_table(&f, TABLE_PLACE, e);

    if (rc == 0 && !nodes_only) {
        rc = forget_table(&f, TABLE_INDEX, e);
        rc = rc != 0 ? rc : forget_table(&f, TABLE_COLLECT, e);
        rc = rc != 0 ? rc : forget_table(&f, TABLE_CLAIM, e);
    }
    return rc;
}

int adopt_check_alone(struct store *s, struct err *e)
{
    enum sequencer_rows rows;
    bool adopting = false;
    int rc = sequencer_look(s, &rows, e);

    if (rc == 0 && rows == ROWS_OF_CLUSTER) {
        return err_set(e, E_CONFIG,
                       "%s is the state_dir of a mirror of a cluster, whose rows other mirrors "
                       "share, but the configuration has no cluster section; put the section back, "
                       "and run `mirrorctl cluster leave --local` to let the mirror stand alone",
                       store_folder(s));
    }
    /* What it collects from now on would be missing for what the bucket has already. */
    rc = rc != 0 ? rc : has_meta(s, ADOPTING_KEY, &adopting, e);
    return rc == 0 && adopting ? drop_row(s, ADOPTING_KEY, e) : rc;
}

/* --- whose bucket is it? --- */

static int has_entry_one(struct bucket *b, bool *yes, struct err *e)
{
    struct buf entry = BUF_INIT(LOG_ENTRY_BYTES_MAX);
    char key[LOG_KEY_ROOM];
    int rc;

    log_key(1, key);
    rc = bucket_get(b, key, &entry, e);
    *yes = rc == 0;
    buf_free(&entry);
    return rc == E_NOTFOUND ? 0 : rc;
}

static int on_checkpoint(void *arg, const struct checkpoint_found *found)
{
    *(uint64_t *)arg = max_u64(*(uint64_t *)arg, found->seq);
    return 0;
}

/* A checkpoint of a later entry says that entry 1 existed: it may have been trimmed. */
static int is_founded(struct bucket *b, bool *yes, struct err *e)
{
    uint64_t newest = 0;
    int rc = has_entry_one(b, yes, e);

    if (rc == 0 && !*yes) {
        rc = checkpoint_list(b, 1, on_checkpoint, &newest, e);
        *yes = newest > 1;
    }
    return rc;
}

static int refuse_used_bucket(struct bucket *b, struct err *e)
{
    return err_set(e, E_EXISTS,
                   "%.150s has a cluster already, and this mirror has repositories, tokens or pins "
                   "that are not the cluster's: it can join with an empty state_dir, or move into "
                   "an empty bucket or prefix",
                   bucket_place(b));
}

static int judge_bucket(struct bucket *b, const struct identity *id, const char *node,
                        struct err *e)
{
    bool founded;
    int rc = is_founded(b, &founded, e);

    return rc != 0                                        ? rc
           : founded || strcmp(id->adopted_by, node) != 0 ? refuse_used_bucket(b, e)
                                                          : 0;
}

int adopt_may_begin(struct bucket *b, const char *node, struct err *e)
{
    struct identity id = IDENTITY_INIT;
    int rc = identity_read(b, &id, e);

    rc = rc == E_NOTFOUND ? 0 : rc != 0 ? rc : judge_bucket(b, &id, node, e);
    identity_free(&id);
    return rc;
}

int adopt_check_founded(struct bucket *b, const struct identity *id, const char *node,
                        struct err *e)
{
    bool founded;
    int rc;

    if (id->adopted_by[0] == '\0' || strcmp(id->adopted_by, node) == 0) {
        return 0;
    }
    rc = is_founded(b, &founded, e);
    return rc != 0 || founded ? rc
                              : err_set(e, E_AGAIN,
                                        "the mirror with the id %s is moving into this bucket: "
                                        "this one can join when `mirrorctl cluster adopt` has "
                                        "ended there",
                                        id->adopted_by);
}

/* --- CLAIM --- */

struct trails {
    char key[TRAILS_MAX][CHECKPOINT_KEY_ROOM];
    size_t n;
};

static int on_trail(void *arg, const struct checkpoint_found *found)
{
    struct trails *t = arg;

    memcpy(t->key[t->n++], found->key, CHECKPOINT_KEY_ROOM);
    return 0;
}

/* A checkpoint of a FOUND that was taken back. Nobody has read it: there is no entry 1. */
static int drop_checkpoints(struct bucket *b, struct err *e)
{
    struct trails *t = NEW(struct trails);
    int rc = checkpoint_list(b, TRAILS_MAX, on_trail, t, e);

    for (size_t i = 0; rc == 0 && i < t->n; i++) {
        rc = bucket_delete(b, t->key[i], e);
    }
    free(t);
    return rc;
}

/* What the store believes to be in the bucket must be in this one. And a node that has a place
 * stands for all nodes below it, so none of them may have been collected. */
static int check_places(const struct adopt_settings *set, const struct identity *id, struct err *e)
{
    struct buf before = BUF_INIT(IDENTITY_BYTES_MAX);
    struct batch *b = batch_new();
    bool same, goes_on;
    int rc = store_get(set->store, TABLE_META, IDENTITY_ROW, &before, e);

    same = rc == 0 && slice_eq(buf_slice(&before), buf_slice(&id->text));
    rc = rc == E_NOTFOUND ? 0 : rc;
    rc = rc != 0 ? rc : has_meta(set->store, ADOPTING_KEY, &goes_on, e);
    if (rc == 0 && !(same && goes_on)) {
        rc = adopt_forget_places(set->store, same, e);
    }
    batch_put(b, TABLE_META, IDENTITY_ROW, buf_slice(&id->text));
    batch_put(b, TABLE_META, ADOPTING_KEY, SLICE(""));
    if (rc == 0) {
        rc = store_commit(set->store, &b, COMMIT_SYNC, e);
    }
    batch_free(&b);
    buf_free(&before);
    return rc;
}

static int claim_bucket(const struct adopt_settings *set, struct err *e)
{
    struct identity id = IDENTITY_INIT;
    int rc = identity_create(set->bucket, set->node, &id, e);

    rc = rc != 0 ? rc : judge_bucket(set->bucket, &id, set->node, e);
    rc = rc != 0 ? rc : drop_checkpoints(set->bucket, e);
    rc = rc != 0 ? rc : check_places(set, &id, e);
    identity_free(&id);
    return rc;
}

/* --- UPLOAD and HOLD --- */

struct pass {
    const struct adopt_settings *set;
    uint64_t before_bytes; /* of earlier passes */
    uint64_t total_bytes;
    uint64_t end_ms; /* 0: there is no limit */
};

static int on_bytes(void *arg, uint64_t n)
{
    struct pass *p = arg;
    uint64_t done = p->before_bytes + n;

    if (atomic_load(p->set->stop) || (p->end_ms != 0 && clock_now_ms() >= p->end_ms)) {
        return 1;
    }
    return p->set->on_progress(p->set->arg, done, max_u64(done, p->total_bytes));
}

static int run_pass(struct pass *p, struct err *e)
{
    uint64_t n;
    int rc = tree_content_upload_all(p->set->trees, on_bytes, p, &n, e);

    p->before_bytes += n;
    return rc;
}

/* Until a pass is quick. */
static int upload(struct pass *p, unsigned *passes, struct err *e)
{
    uint64_t began_ms;
    int rc;

    p->end_ms = 0;
    do {
        began_ms = clock_now_ms();
        rc = run_pass(p, e);
    } while (rc == 0 && ++*passes < PASSES_MAX && clock_now_ms() - began_ms > QUICK_MS);
    return rc;
}

static int measure_uploads(struct pass *p, struct err *e)
{
    struct held_blob *blob = NULL;
    uint64_t all;
    size_t n = 0;
    int rc = held_list(p->set->store, p->set->trees, HELD_NOT_IN_BUCKET, &blob, &n, &all, e);

    for (size_t i = 0; i < n; i++) {
        p->total_bytes += blob[i].size_bytes;
    }
    free(blob);
    return rc;
}

/* --- FOUND --- */

static int put_founding(const struct adopt_settings *set, struct buf *entry, struct err *e)
{
    struct batch *b = batch_new();
    uint8_t node[LOG_ENTRY_NODE_BYTES];
    int rc;

    CHECK(slice_hex(slice_str(set->node), node, sizeof node));
    rc = sequencer_first_entry(set->store, node, set->boot, entry, b, e);
    if (rc == 0) {
        batch_put(b, TABLE_META, FOUNDING_KEY, buf_slice(entry));
        batch_del(b, TABLE_META, ADOPTING_KEY);
        rc = store_commit(set->store, &b, COMMIT_SYNC, e);
    }
    batch_free(&b);
    return rc;
}

/* Entry 1 was never sent, so nobody has read the checkpoint. */
static int take_back(const struct adopt_settings *set, struct err *e)
{
    struct batch *b = batch_new();
    int rc = sequencer_forget(set->store, b, e);

    if (rc == 0) {
        batch_del(b, TABLE_META, FOUNDING_KEY);
        batch_put(b, TABLE_META, ADOPTING_KEY, SLICE(""));
        rc = store_commit(set->store, &b, COMMIT_SYNC, e);
    }
    batch_free(&b);
    return rc;
}

static int write_checkpoint(struct store *s, struct bucket *b, const atomic_bool *stop,
                            struct err *e)
{
    struct retry again = {.limit_ms = REQUEST_MS, .stop = stop};
    uint64_t seq;
    int rc;

    do {
        rc = sequencer_write_checkpoint(s, b, identity_random(), &seq, e);
    } while (rc != 0 && retry_wait(&again, rc));
    return rc;
}

/* E_EXISTS: another entry. E_NOTFOUND: none, so far. */
static int look_at_entry(struct bucket *b, struct slice entry, struct err *e)
{
    struct buf there = BUF_INIT(LOG_ENTRY_BYTES_MAX);
    char key[LOG_KEY_ROOM];
    int rc;

    log_key(1, key);
    rc = bucket_get(b, key, &there, e);
    if (rc == 0 && !slice_eq(buf_slice(&there), entry)) {
        rc =
            err_set(e, E_EXISTS,
                    "another mirror has written entry 1 of the log in %.150s; empty this bucket or "
                    "prefix",
                    bucket_place(b));
    }
    buf_free(&there);
    return rc;
}

static int try_entry(struct bucket *b, struct slice entry, struct err *e)
{
    char key[LOG_KEY_ROOM];
    int rc;

    log_key(1, key);
    rc = bucket_create(b, key, entry, e);
    if (rc != 0) { /* an earlier try may have arrived, or may still */
        int found = look_at_entry(b, entry, e);
        rc = found == E_NOTFOUND ? rc : found;
    }
    return rc;
}

/* Once it was sent, only its arrival ends this: the same bytes are created until they are there. */
static int settle_entry(const struct adopt_settings *set, struct slice entry, struct err *e)
{
    struct err refusal = {0};
    bool refused = false;
    int rc;

    do {
        struct retry again = {.limit_ms = SETTLE_MS, .stop = set->stop};
        do {
            rc = try_entry(set->bucket, entry, e);
        } while (rc != 0 && rc != E_EXISTS && retry_wait(&again, E_AGAIN));
        if (rc != 0 && rc != E_EXISTS && !refused) {
            err_set(&refusal, E_AGAIN,
                    "this mirror is moving into a bucket that does not answer (%.150s); try again",
                    e->text);
            log_warn("cluster.founding", "why=\"%s\"", e->text);
            sequencer_refuse(set->sequencer, &refusal);
            refused = true;
        }
    } while (rc != 0 && rc != E_EXISTS && !atomic_load(set->stop));
    if (refused && rc == 0) {
        sequencer_refuse(set->sequencer, NULL);
    }
    return rc;
}

static int found(const struct adopt_settings *set, struct err *e)
{
    struct buf entry = BUF_INIT(LOG_ENTRY_BYTES_MAX);
    int rc = put_founding(set, &entry, e);

    if (rc == 0) {
        rc = write_checkpoint(set->store, set->bucket, set->stop, e);
        if (rc != 0 && !atomic_load(set->stop)) {
            struct err why = {0};
            int back = take_back(set, &why);
            if (back != 0) {
                log_error("cluster.founding", "why=\"%s\"", why.text);
            }
            buf_free(&entry);
            return rc;
        }
        rc = rc != 0 ? rc : settle_entry(set, buf_slice(&entry), e);
        rc = rc != 0 ? rc : drop_row(set->store, FOUNDING_KEY, e);
    }
    buf_free(&entry);
    return rc;
}

/* --- all of it --- */

/* *held_ms: commits waited. E_TIMEOUT: there was too much to upload. */
static int move_held(struct pass *p, uint64_t *held_ms, struct err *e)
{
    const struct adopt_settings *set = p->set;
    uint64_t began_ms = clock_now_ms();
    int rc = sequencer_hold(set->sequencer, HOLD_MS, e);

    p->end_ms = began_ms + HOLD_MS;
    rc = rc != 0 ? rc : run_pass(p, e);
    if (rc == E_CANCELLED && clock_now_ms() >= p->end_ms) {
        rc = err_set(e, E_TIMEOUT, "the rest takes too long");
    }
    rc = rc != 0 ? rc : found(set, e);
    rc = rc != 0 ? rc : sequencer_join_until(set->sequencer, set->stop, e);
    *held_ms = clock_now_ms() - began_ms;
    return rc;
}

/* After a failure: whether the mirror stands alone still. */
static bool has_own_rows(struct store *s)
{
    enum sequencer_rows rows;

    return sequencer_look(s, &rows, NULL) == 0 && rows != ROWS_OF_CLUSTER;
}

int adopt_run(const struct adopt_settings *set, struct adopted *out, struct err *e)
{
    struct pass p = {.set = set};
    unsigned passes = 0;
    int rc = claim_bucket(set, e);

    *out = (struct adopted){0};
    rc = rc != 0 ? rc : measure_uploads(&p, e);
    while (rc == 0) {
        rc = upload(&p, &passes, e);
        if (rc != 0) {
            break;
        }
        rc = move_held(&p, &out->held_ms, e);
        if (rc == 0) {
            break;
        }
        if (has_own_rows(set->store)) {
            sequencer_release(set->sequencer);
        } else {
            sequencer_refuse(set->sequencer, e);
        }
        if (rc == E_TIMEOUT && passes < PASSES_MAX) {
            rc = 0;
        } else if (rc == E_TIMEOUT) {
            rc =
                err_set(e, E_BUSY,
                        "more is published than can be uploaded to the bucket; try again when less "
                        "is published");
        }
    }
    out->bytes = p.before_bytes;
    return rc;
}

int adopt_finish(struct store *s, struct bucket *b, const atomic_bool *stop, struct err *e)
{
    struct retry again = {.limit_ms = FINISH_MS, .stop = stop};
    struct buf entry = BUF_INIT(LOG_ENTRY_BYTES_MAX), before = BUF_INIT(IDENTITY_BYTES_MAX);
    struct identity id = IDENTITY_INIT;
    int rc = store_get(s, TABLE_META, FOUNDING_KEY, &entry, e);

    if (rc != 0) {
        buf_free(&entry);
        return rc == E_NOTFOUND ? 0 : rc;
    }
    rc = store_get(s, TABLE_META, IDENTITY_ROW, &before, e);
    while (rc == 0) {
        rc = identity_read(b, &id, e);
        if (rc == E_NOTFOUND || (rc == 0 && !slice_eq(buf_slice(&before), buf_slice(&id.text)))) {
            rc = err_set(e, E_CONFIG,
                         "%.150s is not the bucket that this mirror was moving into any more; "
                         "correct the cluster section",
                         bucket_place(b));
            break;
        }
        rc = rc != 0 ? rc : look_at_entry(b, buf_slice(&entry), e);
        if (rc == E_NOTFOUND) {
            rc = write_checkpoint(s, b, stop, e);
            rc = rc != 0 ? rc : try_entry(b, buf_slice(&entry), e);
        }
        if (rc == 0 || !retry_wait(&again, rc)) {
            break;
        }
        rc = 0;
    }
    rc = rc != 0 ? rc : drop_row(s, FOUNDING_KEY, e);
    if (rc == 0) {
        log_info("cluster.founded", "bucket=\"%s\"", bucket_place(b));
    }
    identity_free(&id);
    buf_free(&before);
    buf_free(&entry);
    return rc;
}
