#include "server/cluster/collect.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>

#include "common/base/endian.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/cluster/content_fetch.h"
#include "server/cluster/dead_list.h"
#include "server/cluster/orphans.h"
#include "server/cluster/retry.h"
#include "server/cluster/rewrite.h"
#include "server/store/gc.h"
#include "server/store/head.h"

/* What the first mirror of a cluster has created; any object does, for the Date of its response. */
#define CLOCK_KEY "cluster.json"

enum {
    TICK_MS = 1000,
    AGAIN_MS = 10 * 60 * 1000, /* after a run that failed */
    CLOCK_BYTES_MAX = 4096,
    NOTED_BYTES_MAX = 16 << 20,
    ROUND_ROWS_MAX = 1 << 21,    /* of the indexes that one entry ends: 195 MB of places */
    ROUND_INDEXES_MAX = 1 << 14, /* 40 bytes each in that entry */
    ROUNDS_MAX = 64,             /* of a run */
    TRIES = 8,                   /* of a round that others disturb */
    SMALL_INDEX_ROWS = 4096,
    MERGE_INDEXES = 32, /* so many small indexes become one */
    DELETERS = 8,
    LISTS_MAX = 256, /* that are looked at in one tick */
    RETRY_MS = 30000,
    SKEW_SHARE = 16, /* of orphan_age_s: for clocks of gateways that differ */
};

/* A list of condemned objects that this mirror has seen. */
struct waiting_list {
    struct condemned condemned;
    bool there;           /* still */
    uint64_t seen_unix_s; /* by the bucket's clock */
    uint64_t seen_seq;
};

/* What a mirror does by itself. */
enum work { WORK_DELETE, WORK_RUN, WORKS };

struct failing {
    uint64_t failures; /* in a row */
    uint64_t since_unix_s;
    struct err why; /* of the last one; code 0: none */
};

struct collect {
    struct collect_settings set;
    pthread_t thread;
    atomic_bool stop;
    struct lock lock; /* LOCK_LEAF; guards what follows, to `failing` */
    struct cond changed;
    bool running;
    bool noting;      /* versions that are published, for the run */
    struct buf noted; /* each: tree's key (4 + n), root */
    bool places_ended;
    bool own_run_ended; /* no row says that a run of this mirror goes on that does not */
    uint64_t deleted, deleted_bytes;
    struct failing failing[WORKS];
    /* The thread's own. */
    struct waiting_list *waiting;
    size_t lists, list_room;
    uint64_t idle_since_unix_s;
    uint64_t again_ms; /* not before: the last run failed */
};

/* --- the bucket's clock --- */

static int bucket_now(struct collect *c, uint64_t *now_unix_s, struct err *e)
{
    struct retry again = {.limit_ms = RETRY_MS, .stop = &c->stop};
    struct buf any = BUF_INIT(CLOCK_BYTES_MAX);
    int rc;

    do {
        rc = bucket_get_dated(c->set.bucket, CLOCK_KEY, &any, now_unix_s, e);
        rc = rc == E_NOTFOUND ? 0 : rc;
    } while (rc != 0 && retry_wait(&again, rc));
    buf_free(&any);
    return rc == 0 && *now_unix_s == 0
               ? err_set(e, E_UNSUPPORTED, "the bucket's responses have no Date")
               : rc;
}

/* --- versions that are published during a run --- */

static void note_version(struct collect *c, struct slice tree, const struct digest *root)
{
    buf_be(&c->noted, 4, tree.n);
    buf_adds(&c->noted, tree);
    buf_add(&c->noted, root->b, DIGEST_BYTES);
}

/* Under the lock. */
static void note_step(struct collect *c, const struct batch_step *st)
{
    struct slice tree;
    struct snap sn;
    uint64_t seq;

    if (st->table == TABLE_COLLECT && st->op == OP_DEL) {
        c->places_ended = true;
    }
    if (c->noting && st->table == TABLE_SNAP && st->op == OP_PUT &&
        snap_key_parse(st->key, &tree, &seq) && snap_decode(st->value, seq, &sn, NULL) == 0) {
        note_version(c, tree, &sn.root);
    }
}

void collect_note(struct collect *c, const struct batch *const *b, size_t n)
{
    struct batch_step st;

    lock_take(&c->lock);
    for (size_t i = 0; i < n; i++) {
        for (size_t at = 0; batch_next(b[i], &at, &st);) {
            note_step(c, &st);
        }
    }
    lock_drop(&c->lock);
}

static void note_begin(struct collect *c)
{
    lock_take(&c->lock);
    buf_free(&c->noted);
    c->noted = BUF_INIT(NOTED_BYTES_MAX);
    c->noting = true;
    lock_drop(&c->lock);
}

static void note_end(struct collect *c)
{
    lock_take(&c->lock);
    c->noting = false;
    lock_drop(&c->lock);
}

/* --- a run --- */

struct run {
    struct collect *c;
    bool dry;
    collect_progress *progress;
    void *arg;
    struct collect_report *out;
    /* of a round */
    struct generation generation;
    struct mark mark;
    struct index_row *row;
    size_t rows, row_room;
    struct index_survey *survey, *merged; /* of each row: as it is, and if small packs are copied */
    bool *chosen;
    bool merge;
    size_t choices;
    struct rewrite *rewrite;
    bool has_report; /* of the first round */
    struct named named;
};

static int show(struct run *x, const char *what, uint64_t done, uint64_t total, struct err *e)
{
    if (atomic_load(&x->c->stop)) {
        return err_set(e, E_CANCELLED, "this mirror is shutting down");
    }
    return x->progress != NULL && x->progress(x->arg, what, done, total) != 0
               ? err_set(e, E_CANCELLED, "the collection was interrupted")
               : 0;
}

static void forget_round(struct run *x)
{
    rewrite_close(&x->rewrite);
    mark_free(&x->mark);
    free(x->row);
    free(x->survey);
    free(x->merged);
    free(x->chosen);
    x->row = NULL;
    x->survey = x->merged = NULL;
    x->chosen = NULL;
    x->rows = x->row_room = x->choices = 0;
}

/* --- mark --- */

static int on_index_row(void *arg, struct slice key, struct slice value)
{
    struct run *x = arg;

    if (x->rows == x->row_room) {
        x->row_room = x->row_room != 0 ? 2 * x->row_room : 256;
        x->row = realloc(x->row, x->row_room * sizeof x->row[0]);
        CHECK(x->row != NULL);
    }
    return index_decode(key, value, &x->row[x->rows++], NULL);
}

/* Versions that are published from the moment of note_begin() on are noted, so they are in the
 * view, or noted, or both. */
static int mark(struct run *x, struct err *e)
{
    struct store *s = x->c->set.store;
    struct kv_view *view;
    int rc;

    note_begin(x->c);
    rc = generation_get(s, &x->generation, e);
    view = store_view_open(s);
    rc = rc != 0 ? rc : mark_run(s, view, NULL, &x->mark, e);
    if (rc == 0) {
        rc = store_view_scan(s, view, TABLE_INDEX, SLICE_NONE, SLICE_NONE, on_index_row, x, e);
    }
    store_view_close(&view);
    return rc;
}

/* On the sequencer's thread: all entries before the slot that is tried are applied and noted. */
static int on_admission(struct store *s, void *arg, struct err *e)
{
    struct run *x = arg;
    struct buf noted;
    struct slice rest, tree;
    struct digest root;
    uint64_t n;
    int rc;

    lock_take(&x->c->lock);
    noted = x->c->noted;
    x->c->noted = BUF_INIT(NOTED_BYTES_MAX);
    lock_drop(&x->c->lock);
    rest = buf_slice(&noted);
    rc = noted.rc != 0 ? E_CHANGED : 0; /* too many */
    while (rc == 0 && slice_be(&rest, 4, &n)) {
        tree = slice_first(rest, (size_t)n);
        memcpy(root.b, rest.p + n, DIGEST_BYTES);
        rest = slice_from(rest, (size_t)n + DIGEST_BYTES);
        rc = mark_version(s, &x->mark, tree, &root, e);
    }
    if (rc == E_CHANGED || (rc == 0 && x->rewrite != NULL && rewrite_lost_any(x->rewrite))) {
        rc = err_set(e, E_CHANGED, "what was about to be collected was published again");
    }
    buf_free(&noted);
    return rc;
}

/* --- what is in the indexes --- */

static int read_indexes(struct run *x, struct err *e)
{
    struct buf bytes = BUF_INIT(CONTENT_INDEX_BYTES_MAX);
    size_t small = 0;
    int rc = 0;

    x->survey = mem_array(x->rows + 1, sizeof x->survey[0]);
    x->merged = mem_array(x->rows + 1, sizeof x->merged[0]);
    x->chosen = mem_array(x->rows + 1, sizeof x->chosen[0]);
    for (size_t i = 0; rc == 0 && i < x->rows; i++) {
        struct content_index ix;
        rc = show(x, "reading indexes", i, x->rows, e);
        rc = rc != 0 ? rc
                     : content_index_get(x->c->set.bucket, x->row[i].nonce, 0, &x->c->stop, &bytes,
                                         &ix, e);
        if (rc == 0) {
            index_survey(&ix, &x->mark, false, &x->survey[i]);
            index_survey(&ix, &x->mark, true, &x->merged[i]);
            named_add(&x->named, x->row[i].nonce, &ix);
            small += ix.count < SMALL_INDEX_ROWS;
        }
    }
    x->merge = small >= MERGE_INDEXES;
    buf_free(&bytes);
    return rc;
}

static bool is_wanted(const struct run *x, size_t i)
{
    return !index_survey_is_clean(&x->survey[i]) ||
           (x->merge && x->survey[i].rows < SMALL_INDEX_ROWS);
}

/* *more: there are more than one entry can end. */
static void choose(struct run *x, bool *more)
{
    uint64_t rows = 0;

    *more = false;
    for (size_t i = 0; i < x->rows; i++) {
        const struct index_survey *s = &x->survey[i];
        if (!is_wanted(x, i)) {
            continue;
        }
        if (x->choices != 0 &&
            (rows + s->rows > ROUND_ROWS_MAX || x->choices == ROUND_INDEXES_MAX)) {
            *more = true;
            continue;
        }
        x->chosen[i] = true;
        x->choices++;
        rows += s->rows;
    }
}

/* Nodes and files of indexes that stay are live, and so is all that they rely on. */
static int keep_others(struct run *x, struct err *e)
{
    struct buf bytes = BUF_INIT(CONTENT_INDEX_BYTES_MAX);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < x->rows; i++) {
        struct content_index ix;
        if (x->chosen[i] || x->survey[i].dead_rows == 0) {
            continue;
        }
        rc = show(x, "keeping other indexes", i, x->rows, e);
        rc = rc != 0 ? rc
                     : content_index_get(x->c->set.bucket, x->row[i].nonce, 0, &x->c->stop, &bytes,
                                         &ix, e);
        rc = rc != 0 ? rc : index_keep(&ix, x->c->set.store, &x->mark, e);
    }
    buf_free(&bytes);
    return rc;
}

/* What the first round finds is what a dry run reports. */
static void report(struct run *x)
{
    struct collect_report *out = x->out;

    if (x->has_report) {
        return;
    }
    x->has_report = true;
    out->indexes = x->rows;
    for (size_t i = 0; i < x->rows; i++) {
        const struct index_survey *s = x->merge ? &x->merged[i] : &x->survey[i];
        out->objects += s->objects;
        out->bytes += s->bytes;
        if (x->dry && is_wanted(x, i)) {
            out->condemned += s->dead_objects + 1;
            out->condemned_bytes += s->dead_bytes;
            out->copied_bytes += s->copied_bytes;
        }
    }
}

/* --- condemn --- */

static int rewrite_chosen(struct run *x, struct err *e)
{
    struct buf bytes = BUF_INIT(CONTENT_INDEX_BYTES_MAX);
    size_t done = 0;
    int rc = 0;

    x->rewrite = rewrite_open(
        &(struct rewrite_settings){.bucket = x->c->set.bucket,
                                   .mark = &x->mark,
                                   .stop = &x->c->stop,
                                   .merge = x->merge,
                                   .read_back = x->c->set.ops->reads_back(x->c->set.arg)});
    for (size_t i = 0; rc == 0 && i < x->rows; i++) {
        struct content_index ix;
        if (!x->chosen[i]) {
            continue;
        }
        rc = show(x, "writing indexes anew", done++, x->choices, e);
        rc = rc != 0 ? rc
                     : content_index_get(x->c->set.bucket, x->row[i].nonce, 0, &x->c->stop, &bytes,
                                         &ix, e);
        rc = rc != 0 ? rc : rewrite_index(x->rewrite, &x->row[i], &ix, e);
    }
    buf_free(&bytes);
    return rc;
}

/* *more: stays true if something was collected. */
static int condemn(struct run *x, bool *more, struct err *e)
{
    struct batch *b = batch_new();
    struct rewritten done;
    int rc = rewrite_finish(x->rewrite, b, &done, e);

    if (rc != 0) {
        batch_free(&b);
        return rc;
    }
    generation_require(b, &x->generation);
    generation_change(b);
    batch_check(b, on_admission, x);
    rc = store_commit(x->c->set.store, &b, COMMIT_SYNC, e);
    if (rc == 0) {
        x->out->condemned += done.objects;
        x->out->condemned_bytes += done.bytes;
        x->out->copied_bytes += done.copied_bytes;
        *more = *more && done.dropped != 0;
        log_info("cluster.condemned",
                 "indexes=%zu objects=%" PRIu64 " bytes=%" PRIu64 " copied_bytes=%" PRIu64,
                 x->choices, done.objects, done.bytes, done.copied_bytes);
    }
    return rc;
}

static int round_once(struct run *x, bool *more, struct err *e)
{
    int rc = show(x, "marking", 0, 0, e);

    *more = false;
    rc = rc != 0 ? rc : mark(x, e);
    rc = rc != 0 ? rc : read_indexes(x, e);
    if (rc == 0) {
        report(x);
        choose(x, more);
    }
    if (rc == 0 && x->choices != 0 && !x->dry) {
        rc = *more ? keep_others(x, e) : 0;
        rc = rc != 0 ? rc : rewrite_chosen(x, e);
        rc = rc != 0 ? rc : condemn(x, more, e);
    }
    note_end(x->c);
    forget_round(x);
    *more = *more && !x->dry;
    return rc;
}

/* Another mirror published what was about to be collected, or collects, too. */
static bool was_disturbed(int rc)
{
    return rc == E_CHANGED || rc == E_NOTFOUND;
}

static int run_rounds(struct run *x, struct err *e)
{
    unsigned tries = 0;
    bool more = true;
    int rc = 0;

    for (unsigned i = 0; more && i < ROUNDS_MAX; i++) {
        do {
            rc = round_once(x, &more, e);
        } while (was_disturbed(rc) && ++tries < TRIES);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* --- deleting --- */

static int delete_object(struct collect *c, const struct dead_object *o, struct err *e)
{
    struct retry again = {.limit_ms = RETRY_MS, .stop = &c->stop};
    char key[CONTENT_KEY_ROOM];
    int rc;

    dead_object_key(o, key);
    do {
        rc = bucket_delete(c->set.bucket, key, e);
    } while (rc != 0 && retry_wait(&again, rc));
    if (rc == 0) {
        lock_take(&c->lock);
        c->deleted++;
        c->deleted_bytes += o->size_bytes;
        lock_drop(&c->lock);
    }
    return rc;
}

/* A list that several threads work on. */
struct deletion {
    struct collect *c;
    struct lock lock; /* LOCK_LEAF; guards what follows */
    struct slice objects;
    int rc; /* of the first that failed; the others end then */
    struct err why;
};

static void *run_deleter(void *arg)
{
    struct deletion *x = arg;
    struct dead_object o;
    struct err why = {0};
    bool more;
    int rc = 0;

    do {
        lock_take(&x->lock);
        if (rc != 0 && x->rc == 0) {
            x->rc = rc;
            x->why = why;
        }
        more = x->rc == 0 && dead_list_next(&x->objects, &o);
        lock_drop(&x->lock);
        rc = more ? delete_object(x->c, &o, &why) : 0;
    } while (more);
    return NULL;
}

/* One request deletes one object: stores disagree about requests that delete many. */
static int delete_objects(struct collect *c, struct slice objects, struct err *e)
{
    struct deletion x = {.c = c, .objects = objects};
    pthread_t thread[DELETERS];

    lock_init(&x.lock, LOCK_LEAF);
    for (size_t i = 0; i < DELETERS; i++) {
        thread[i] = thread_start("delete", run_deleter, &x);
    }
    for (size_t i = 0; i < DELETERS; i++) {
        pthread_join(thread[i], NULL);
    }
    lock_fini(&x.lock);
    if (x.rc != 0) {
        *e = x.why;
    }
    return x.rc;
}

/* --- orphans --- */

/* Indexes that have come since the round looked. */
static int on_later_index(void *arg, struct slice key, struct slice value)
{
    struct run *x = arg;
    struct buf bytes = BUF_INIT(CONTENT_INDEX_BYTES_MAX);
    struct content_index ix;
    struct index_row row;
    int rc = index_decode(key, value, &row, NULL);

    if (rc == 0 && !set64_has(&x->named.indexes, row.nonce)) {
        rc = content_index_get(x->c->set.bucket, row.nonce, 0, &x->c->stop, &bytes, &ix, NULL);
        if (rc == 0) {
            named_add(&x->named, row.nonce, &ix);
        }
    }
    buf_free(&bytes);
    return rc;
}

static int name_all(struct run *x, struct err *e)
{
    struct store *s = x->c->set.store;
    int rc = store_scan(s, TABLE_INDEX, SLICE_NONE, SLICE_NONE, on_later_index, x, e);

    if (rc != 0 && e != NULL && e->code == 0) {
        err_set(e, rc, "an index of the cluster's bucket cannot be read");
    }
    return rc != 0 ? rc : named_add_condemned(&x->named, s, x->c->set.bucket, e);
}

static int say_orphans(struct run *x, uint64_t before_unix_s, struct err *e)
{
    uint64_t earlier_unix_s;
    struct batch *b;
    int rc = orphans_get(x->c->set.store, &earlier_unix_s, e);

    if (rc != 0) {
        return rc;
    }
    b = batch_new();
    orphans_put(b, before_unix_s, earlier_unix_s);
    generation_change(b);
    rc = store_commit(x->c->set.store, &b, COMMIT_SYNC, e);
    return rc == E_CHANGED ? err_set(e, E_BUSY, "another mirror is deleting orphans") : rc;
}

/* A publish that named one of them is in the log before the entry, and then it is named now; or it
 * is not in the log, and then it uploads anew. */
static int delete_orphans(struct run *x, struct orphans *o, uint64_t before_unix_s, struct err *e)
{
    int rc = say_orphans(x, before_unix_s, e);

    rc = rc != 0 ? rc : name_all(x, e);
    if (rc == 0) {
        orphans_spare(o, &x->named);
        rc = delete_objects(x->c, buf_slice(&o->objects), e);
    }
    if (rc == 0 && o->count != 0) {
        log_info("cluster.orphans_deleted", "objects=%" PRIu64 " bytes=%" PRIu64, o->count,
                 o->bytes);
    }
    return rc;
}

static int collect_orphans(struct run *x, struct err *e)
{
    uint64_t age_s = x->c->set.orphan_age_s, now_unix_s = 0, before_unix_s;
    struct orphans o = {.count = 0};
    int rc = show(x, "looking for orphans", 0, 0, e);

    rc = rc != 0 ? rc : bucket_now(x->c, &now_unix_s, e);
    rc = rc != 0 ? rc : name_all(x, e);
    before_unix_s = now_unix_s - min_u64(now_unix_s, age_s);
    if (rc == 0) {
        rc = orphans_list(x->c->set.bucket, &x->named,
                          before_unix_s - min_u64(before_unix_s, age_s / SKEW_SHARE), &x->c->stop,
                          &o, e);
    }
    if (rc == 0 && o.count != 0 && !x->dry) {
        rc = delete_orphans(x, &o, before_unix_s, e);
    }
    if (rc == 0) {
        x->out->orphans = o.count;
        x->out->orphan_bytes = o.bytes;
    }
    orphans_free(&o);
    return rc;
}

/* --- one at a time --- */

static int end_run(struct collect *c, const struct collect_run *mine,
                   const struct collect_report *done, struct err *e)
{
    struct batch *b = batch_new();
    struct collect_run ended = *mine;
    int rc;

    ended.condemned = done->condemned;
    ended.condemned_bytes = done->condemned_bytes;
    ended.orphans = done->orphans;
    ended.orphan_bytes = done->orphan_bytes;
    rc = bucket_now(c, &ended.ended_unix_s, e);
    if (rc != 0) {
        batch_free(&b);
        return rc;
    }
    collect_run_put(b, &ended, mine);
    return store_commit(c->set.store, &b, COMMIT_SYNC, e);
}

static int try_to_claim(struct collect *c, struct collect_run *out, struct err *e)
{
    struct collect_run last;
    struct batch *b = NULL;
    int rc = collect_run_get(c->set.store, &last, e);
    bool none = rc == E_NOTFOUND;

    if (rc != 0 && !none) {
        return rc;
    }
    if (!none && last.ended_unix_s == 0 && strcmp(last.node, c->set.node) != 0 &&
        c->set.ops->is_alive(c->set.arg, last.node)) {
        return err_set(e, E_BUSY, "mirror %.8s is collecting; `mirrorctl cluster status` shows it",
                       last.node);
    }
    *out = (struct collect_run){.number = last.number + 1};
    memcpy(out->node, c->set.node, sizeof out->node);
    rc = bucket_now(c, &out->began_unix_s, e);
    if (rc == 0) {
        b = batch_new();
        collect_run_put(b, out, none ? NULL : &last);
        rc = store_commit(c->set.store, &b, COMMIT_SYNC, e);
    }
    return rc;
}

/* Says in the log that this mirror is collecting, so that no other one does. The row may change
 * meanwhile because an earlier run was ended. */
static int claim_run(struct collect *c, struct collect_run *out, struct err *e)
{
    int rc = E_CHANGED;

    for (unsigned i = 0; rc == E_CHANGED && i < TRIES; i++) {
        rc = try_to_claim(c, out, e);
    }
    return rc == E_CHANGED ? err_set(e, E_BUSY, "another mirror has just begun to collect") : rc;
}

static bool enter(struct collect *c)
{
    bool free_now;

    lock_take(&c->lock);
    free_now = !c->running && !atomic_load(&c->stop);
    c->running = c->running || free_now;
    lock_drop(&c->lock);
    return free_now;
}

static void leave(struct collect *c)
{
    lock_take(&c->lock);
    c->running = false;
    cond_signal(&c->changed);
    lock_drop(&c->lock);
}

static int run_all(struct run *x, struct err *e)
{
    struct collect_run mine;
    struct err why = {0};
    int rc = x->dry ? 0 : claim_run(x->c, &mine, e), ended;

    if (rc != 0) {
        return rc;
    }
    rc = run_rounds(x, e);
    rc = rc != 0 ? rc : collect_orphans(x, e);
    ended = x->dry ? 0 : end_run(x->c, &mine, x->out, &why);
    if (ended != 0) {
        lock_take(&x->c->lock);
        x->c->own_run_ended = false; /* the thread sees to it */
        lock_drop(&x->c->lock);
    }
    if (rc == 0 && ended != 0) {
        *e = why;
        rc = ended;
    }
    return rc;
}

int collect_run(struct collect *c, bool dry, collect_progress *progress, void *arg,
                struct collect_report *out, struct err *e)
{
    struct run x = {.c = c, .dry = dry, .progress = progress, .arg = arg, .out = out};
    struct err why = {0};
    int rc;

    *out = (struct collect_report){0};
    if (!enter(c)) {
        if (atomic_load(&c->stop)) {
            return err_set(e, E_CANCELLED, "this mirror is shutting down");
        }
        return err_set(e, E_BUSY, "this mirror is collecting already");
    }
    rc = run_all(&x, &why);
    named_free(&x.named);
    leave(c);
    if (rc != 0 && e != NULL) {
        *e = why;
        e->code = rc;
    }
    return rc;
}

/* --- deleting what is condemned --- */

struct seeing {
    struct collect *c;
    bool new; /* a list that this mirror has not seen before */
};

static struct waiting_list *find_list(struct collect *c, uint64_t list)
{
    for (size_t i = 0; i < c->lists; i++) {
        if (c->waiting[i].condemned.list == list) {
            return &c->waiting[i];
        }
    }
    return NULL;
}

static int on_waiting(void *arg, const struct condemned *d)
{
    struct seeing *x = arg;
    struct collect *c = x->c;
    struct waiting_list *w = find_list(c, d->list);

    if (w == NULL && c->lists < LISTS_MAX) {
        c->waiting[c->lists] = (struct waiting_list){.condemned = *d};
        w = &c->waiting[c->lists++];
        x->new = true;
    }
    if (w != NULL) {
        w->there = true;
    }
    return 0;
}

/* Those that are new are seen now: their entries were applied before. */
static int look_at_lists(struct collect *c, uint64_t *now_unix_s, struct err *e)
{
    struct seeing x = {.c = c};
    uint64_t seq = 0;
    size_t kept = 0;
    int rc;

    for (size_t i = 0; i < c->lists; i++) {
        c->waiting[i].there = false;
    }
    rc = condemned_each(c->set.store, on_waiting, &x, e);
    for (size_t i = 0; rc == 0 && i < c->lists; i++) {
        if (c->waiting[i].there) {
            c->waiting[kept++] = c->waiting[i];
        }
    }
    c->lists = rc == 0 ? kept : c->lists;
    if (rc != 0 || c->lists == 0) {
        return rc;
    }
    rc = c->set.ops->applied(c->set.arg, &seq, e);
    rc = rc != 0 ? rc : bucket_now(c, now_unix_s, e);
    for (size_t i = 0; rc == 0 && i < c->lists; i++) {
        if (c->waiting[i].seen_unix_s == 0) {
            c->waiting[i].seen_unix_s = *now_unix_s;
            c->waiting[i].seen_seq = seq;
        }
    }
    return rc;
}

static int read_list(struct collect *c, uint64_t list, struct buf *bytes, struct slice *objects,
                     struct err *e)
{
    struct retry again = {.limit_ms = RETRY_MS, .stop = &c->stop};
    char key[CONTENT_KEY_ROOM];
    int rc;

    dead_list_key(list, key);
    do {
        rc = bucket_get(c->set.bucket, key, bytes, e);
    } while (rc != 0 && retry_wait(&again, rc));
    return rc != 0 ? rc : dead_list_open(buf_slice(bytes), objects, e);
}

/* A list that is gone or damaged leaves orphans, which are deleted when they are old. */
static int delete_list(struct collect *c, const struct waiting_list *w, struct err *e)
{
    const struct dead_object list = {.kind = DEAD_LIST, .nonce = w->condemned.list};
    struct buf bytes = BUF_INIT(DEAD_LIST_BYTES_MAX);
    struct batch *b = batch_new();
    struct slice objects = SLICE_NONE;
    int rc = c->set.ops->checkpoint(c->set.arg, w->seen_seq, e);

    rc = rc != 0 ? rc : read_list(c, w->condemned.list, &bytes, &objects, e);
    if (rc == E_NOTFOUND || rc == E_CORRUPT) {
        log_warn("cluster.collect_list", "why=\"%s\"", e->text);
        rc = 0;
    }
    rc = rc != 0 ? rc : delete_objects(c, objects, e);
    buf_free(&bytes);
    if (rc != 0) {
        batch_free(&b);
        return rc;
    }
    condemned_del(b, &w->condemned);
    rc = store_commit(c->set.store, &b, COMMIT_SYNC, e);
    if (rc != 0) {
        return rc == E_CHANGED ? 0 : rc; /* another mirror has done it */
    }
    log_info("cluster.deleted", "objects=%" PRIu64 " bytes=%" PRIu64, w->condemned.objects,
             w->condemned.bytes);
    return delete_object(c, &list, e);
}

static int delete_condemned(struct collect *c, struct err *e)
{
    uint64_t now_unix_s = 0;
    int rc = look_at_lists(c, &now_unix_s, e);

    for (size_t i = 0; rc == 0 && i < c->lists; i++) {
        const struct waiting_list *w = &c->waiting[i];
        if (now_unix_s > w->seen_unix_s && now_unix_s - w->seen_unix_s >= c->set.delay_s &&
            c->set.ops->all_applied(c->set.arg, w->seen_seq)) {
            rc = delete_list(c, w, e);
        }
    }
    return rc;
}

/* --- the thread --- */

static int sweep_places(struct collect *c, struct err *e)
{
    bool due;
    int rc = 0;

    lock_take(&c->lock);
    due = c->places_ended;
    c->places_ended = false;
    lock_drop(&c->lock);
    if (due) {
        rc = c->set.ops->sweep_places(c->set.arg, e);
    }
    if (rc != 0) {
        lock_take(&c->lock);
        c->places_ended = true;
        lock_drop(&c->lock);
    }
    return rc == E_BUSY ? 0 : rc;
}

/* The run of an earlier start of this mirror does not go on. */
static int end_earlier_run(struct collect *c, struct err *e)
{
    static const struct collect_report nothing;
    struct collect_run last;
    bool due;
    int rc = 0;

    lock_take(&c->lock);
    due = !c->own_run_ended && !c->running;
    lock_drop(&c->lock);
    if (!due) {
        return 0;
    }
    if (collect_run_get(c->set.store, &last, NULL) == 0 && last.ended_unix_s == 0 &&
        strcmp(last.node, c->set.node) == 0) {
        rc = end_run(c, &last, &nothing, e);
    }
    rc = rc == E_CHANGED ? 0 : rc; /* a run has begun since */
    lock_take(&c->lock);
    c->own_run_ended = rc == 0;
    lock_drop(&c->lock);
    return rc;
}

static bool run_is_due(struct collect *c)
{
    uint64_t now_unix_s = bucket_date_unix_s(c->set.clock), since;
    struct collect_run last;

    if (c->idle_since_unix_s == 0) {
        c->idle_since_unix_s = now_unix_s;
    }
    if (c->set.every_s == 0 || now_unix_s == 0 || clock_now_ms() < c->again_ms) {
        return false;
    }
    if (c->again_ms != 0) {
        return true;
    }
    since =
        collect_run_get(c->set.store, &last, NULL) == 0 ? last.began_unix_s : c->idle_since_unix_s;
    return now_unix_s > since && now_unix_s - since >= c->set.every_s;
}

static void note_outcome(struct collect *c, enum work work, int rc, const struct err *why)
{
    struct failing *f = &c->failing[work];

    if (rc == E_BUSY || rc == E_CANCELLED) {
        return;
    }
    if (rc != 0 && f->failures == 0) {
        log_warn("cluster.collect_failed", "why=\"%s\"", why->text);
    }
    lock_take(&c->lock);
    f->since_unix_s = rc == 0 ? 0 : f->failures == 0 ? clock_unix_s() : f->since_unix_s;
    f->failures = rc == 0 ? 0 : f->failures + 1;
    f->why = *why;
    f->why.code = rc;
    lock_drop(&c->lock);
}

static void run_if_due(struct collect *c)
{
    struct collect_report done;
    struct err e = {0};
    int rc;

    if (run_is_due(c)) {
        rc = collect_run(c, false, NULL, NULL, &done, &e);
        note_outcome(c, WORK_RUN, rc, &e);
        c->again_ms = rc != 0 && rc != E_BUSY ? clock_now_ms() + AGAIN_MS : 0;
    }
}

static void tick(struct collect *c)
{
    struct err e = {0};
    int rc = sweep_places(c, &e);
    bool is_first = c->set.ops->is_first(c->set.arg);

    rc = rc != 0 ? rc : end_earlier_run(c, &e);
    if (rc == 0 && is_first) {
        rc = delete_condemned(c, &e);
    }
    note_outcome(c, WORK_DELETE, rc, &e);
    if (is_first) {
        run_if_due(c);
    }
}

static void *run_collector(void *arg)
{
    struct collect *c = arg;
    bool stop;

    do {
        tick(c);
        lock_take(&c->lock);
        if (!atomic_load(&c->stop)) {
            cond_wait_ms(&c->changed, &c->lock, TICK_MS);
        }
        stop = atomic_load(&c->stop);
        lock_drop(&c->lock);
    } while (!stop);
    return NULL;
}

struct collect *collect_open(const struct collect_settings *set)
{
    struct collect *c = NEW(struct collect);

    c->set = *set;
    c->noted = BUF_INIT(NOTED_BYTES_MAX);
    c->waiting = mem_array(LISTS_MAX, sizeof c->waiting[0]);
    lock_init(&c->lock, LOCK_LEAF);
    cond_init(&c->changed);
    c->thread = thread_start("collect", run_collector, c);
    return c;
}

void collect_interrupt(struct collect *c)
{
    lock_take(&c->lock);
    atomic_store(&c->stop, true);
    cond_signal(&c->changed);
    lock_drop(&c->lock);
}

void collect_stop(struct collect *c)
{
    if (c == NULL) {
        return;
    }
    pthread_join(c->thread, NULL);
    lock_take(&c->lock);
    while (c->running) {
        cond_wait(&c->changed, &c->lock);
    }
    lock_drop(&c->lock);
}

void collect_close(struct collect **cp)
{
    struct collect *c = *cp;

    *cp = NULL;
    if (c == NULL) {
        return;
    }
    buf_free(&c->noted);
    free(c->waiting);
    cond_fini(&c->changed);
    lock_fini(&c->lock);
    free(c);
}

static int on_waiting_row(void *arg, const struct condemned *d)
{
    struct collect_status *out = arg;

    out->waiting += d->objects;
    out->waiting_bytes += d->bytes;
    return 0;
}

void collect_status(struct collect *c, struct collect_status *out)
{
    *out = (struct collect_status){.known = false};
    lock_take(&c->lock);
    out->deleted = c->deleted;
    out->deleted_bytes = c->deleted_bytes;
    for (size_t i = 0; i < WORKS && out->failures == 0; i++) {
        out->failures = c->failing[i].failures;
        out->since_unix_s = c->failing[i].since_unix_s;
        out->why = c->failing[i].why;
    }
    lock_drop(&c->lock);
    out->known = collect_run_get(c->set.store, &out->last, NULL) == 0;
    (void)!condemned_each(c->set.store, on_waiting_row, out, NULL);
}
