#include "server/cluster/sequencer.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/endian.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/crash.h"
#include "common/os/lock.h"
#include "server/cluster/checkpoint.h"
#include "server/cluster/format.h"
#include "server/cluster/retry.h"
#include "server/store/batch.h"
#include "server/store/set64.h"

/* In TABLE_META. The position in the log: sequence (8), the entry's own digest (32). */
#define POSITION_KEY SLICE("cluster position")
/* The last applied commit of a node, whose id (16) follows: boot (8), counter (8). */
#define COMMIT_KEY SLICE("cluster commit ")

enum {
    POLL_MS = 1000,
    START_MS = 60000,      /* how long the bucket is tried at the start */
    START_KNOWN_MS = 5000, /* by a store that can be read without it */
    POSITION_BYTES = 8 + DIGEST_BYTES,
    COMMIT_BYTES = 8 + 8,
    COMMIT_KEY_BYTES = 15 + LOG_ENTRY_NODE_BYTES,
    QUEUE_BATCHES_MAX = 4096,
    QUEUE_BYTES_MAX = 256 << 20,
    GROUP_BYTES_MAX = 16 << 20, /* of all steps: what one write to RocksDB gets */
    BATCH_HEAD_BYTES = 4,       /* in an entry */
    STEPS_BYTES_MAX = LOG_ENTRY_BYTES_MAX - LOG_ENTRY_HEAD_BYTES - DIGEST_BYTES,
};

/* Where batches go (sequencer.h). */
enum mode { MODE_ALONE, MODE_HELD, MODE_FOLLOWING };

/* A batch on its way into the log. */
struct pending {
    struct list node;
    struct commit_wait *wait; /* NULL: the caller has its answer */
    struct batch *batch;
    size_t counted_bytes; /* in waiting_bytes */
    struct buf steps;     /* on shared rows, as an entry has them */
    int (*check)(struct store *s, void *arg, struct err *e); /* or NULL */
    void *check_arg;
};

/* A caller whose batch is applied. The answer waits until its entry was announced. */
struct committed {
    struct list node;
    uint64_t seq;
    struct commit_wait *wait;
};

struct cluster_sequencer {
    struct store *store;
    struct bucket *bucket;
    struct sequencer_settings set;
    struct sequencer hook;
    struct cluster_log *log;
    pthread_t thread, announcer, preparer[SEQUENCER_PREPARERS];
    struct lock lock; /* LOCK_SEQUENCER; guards what follows, to `status` */
    struct cond more, more_to_prepare, more_committed, progress;
    enum mode mode;
    bool follows;     /* its threads run, also while it is held */
    struct list held; /* struct commit_wait */
    size_t entering;  /* batches on their way into the queues */
    struct list queue, to_prepare, committed;
    size_t waiting, waiting_bytes; /* in both, or being prepared */
    size_t committing;             /* taken from the queue, and without an answer */
    uint64_t to_announce;          /* an entry of this mirror, and those before it */
    uint64_t announced;            /* the same, and announce() has returned */
    struct err refusal;            /* code 0: batches are accepted */
    struct err ban;                /* the same, by sequencer_refuse() */
    bool stopping, poked;
    struct sequencer_status status;
    uint64_t catch_up_ms;          /* when the last catch_up was due, if they came one by one */
    bool catch_up_silent;          /* the last one had no answer, and nothing has come since */
    _Atomic uint64_t confirmed_ms; /* as in status */
    /* The thread's own: the group that is being committed, or whose outcome is unknown. */
    struct pending *group[LOG_ENTRY_BATCHES_MAX];
    size_t grouped;
    int judged[LOG_ENTRY_BATCHES_MAX];
    struct err judged_why[LOG_ENTRY_BATCHES_MAX];
    bool checked;                               /* the bucket */
    size_t asked;                               /* of the group, by the log since on_begin() */
    struct batch *entry[LOG_ENTRY_BATCHES_MAX]; /* those that are in the entry */
    size_t entered;
    bool last_is_mine;     /* the last entry that was applied */
    struct batch *restore; /* the rows of a checkpoint that is being read */
    uint64_t polled_ms;
};

/* --- steps, here and in an entry --- */

static enum log_entry_op log_op(enum batch_op op)
{
    switch (op) {
    case OP_PUT:
        return LOG_ENTRY_PUT;
    case OP_DEL:
        return LOG_ENTRY_DELETE;
    case OP_REQUIRE_ABSENT:
        return LOG_ENTRY_REQUIRE_ABSENT;
    case OP_REQUIRE_VALUE:
        break;
    }
    return LOG_ENTRY_REQUIRE_VALUE;
}

static enum batch_op store_op(enum log_entry_op op)
{
    switch (op) {
    case LOG_ENTRY_PUT:
        return OP_PUT;
    case LOG_ENTRY_DELETE:
        return OP_DEL;
    case LOG_ENTRY_REQUIRE_ABSENT:
        return OP_REQUIRE_ABSENT;
    case LOG_ENTRY_REQUIRE_VALUE:
        break;
    }
    return OP_REQUIRE_VALUE;
}

static void encode_shared(const struct batch *b, struct buf *out)
{
    struct batch_step st;

    for (size_t at = 0; batch_next(b, &at, &st);) {
        uint8_t number = table_shared_number(st.table);
        bool bare = st.op == OP_DEL || st.op == OP_REQUIRE_ABSENT;
        struct log_entry_step step = {log_op(st.op), number, st.key, bare ? SLICE("") : st.value};
        if (number != 0) {
            log_entry_step_write(&step, out);
        }
    }
}

/* E_UNSUPPORTED: a table that this version does not know, or a format that it does not read. */
static int decode_shared(struct slice steps, struct batch *out, struct err *e)
{
    struct log_entry_step st;
    enum table table;

    while (log_entry_step_next(&steps, &st)) {
        if (!table_of_shared_number(st.table, &table)) {
            return err_set(e, E_UNSUPPORTED,
                           "the entry writes table %u, which this version does not know; upgrade "
                           "this mirror",
                           st.table);
        }
        if (table == TABLE_FORMAT && st.op == LOG_ENTRY_PUT) {
            int rc = format_check(st.value, e);
            if (rc != 0) {
                return rc;
            }
        }
        batch_step_add(out, &(struct batch_step){store_op(st.op), table, st.key, st.value});
    }
    return 0;
}

/* --- batches that wait --- */

static void pending_free(struct pending *p)
{
    batch_free(&p->batch);
    buf_free(&p->steps);
    free(p);
}

/* Once; the batch stays. */
static void answer_pending(struct cluster_sequencer *q, struct pending *p, int rc,
                           const struct err *why)
{
    if (p->wait != NULL) {
        store_answer(q->store, p->wait, rc, why);
        p->wait = NULL;
    }
}

static void refuse_pending(struct cluster_sequencer *q, struct pending *p, const struct err *why)
{
    answer_pending(q, p, why->code, why);
    pending_free(p);
}

static struct pending *pending_of(struct commit_wait *w)
{
    struct pending *p = NEW(struct pending);

    p->wait = w;
    p->batch = w->batch;
    w->batch = NULL;
    p->steps = BUF_INIT(STEPS_BYTES_MAX - BATCH_HEAD_BYTES);
    p->check = p->batch->check;
    p->check_arg = p->batch->check_arg;
    p->batch->check = NULL;
    return p;
}

static bool must_prepare(struct cluster_sequencer *q, const struct pending *p)
{
    return q->set.ops != NULL && q->set.ops->must_prepare(p->batch);
}

/* Under the lock: why batches are refused now; code 0: they are not. */
static const struct err *refusal_of(const struct cluster_sequencer *q)
{
    return q->refusal.code != 0 ? &q->refusal : &q->ban;
}

/* Under the lock: counts it. */
static int check_queue(struct cluster_sequencer *q, struct pending *p, struct err *e)
{
    size_t bytes = batch_bytes(p->batch);

    if (refusal_of(q)->code != 0) {
        *e = *refusal_of(q);
        return e->code;
    }
    if (q->waiting == QUEUE_BATCHES_MAX || q->waiting_bytes + bytes > QUEUE_BYTES_MAX) {
        return err_set(e, E_AGAIN, "too many commits wait for the cluster's bucket");
    }
    p->counted_bytes = bytes;
    q->waiting++;
    q->waiting_bytes += bytes;
    return 0;
}

/* Under the lock. */
static void leave_room(struct cluster_sequencer *q, const struct pending *p)
{
    q->waiting--;
    q->waiting_bytes -= p->counted_bytes;
}

/* A counted one that is ready for the log. */
static void queue_pending(struct cluster_sequencer *q, struct pending *p)
{
    struct err e = {0};

    encode_shared(p->batch, &p->steps);
    if (p->steps.rc != 0 || p->batch->steps.rc != 0) {
        err_set(&e, E_TOOBIG, "the batch has more than an entry of the cluster's log holds");
    }
    lock_take(&q->lock);
    if (e.code == 0) {
        e = *refusal_of(q);
    }
    if (e.code == 0) {
        list_push_back(&q->queue, &p->node);
        cond_signal(&q->more);
    } else {
        leave_room(q, p);
    }
    lock_drop(&q->lock);
    if (e.code != 0) {
        refuse_pending(q, p, &e);
    }
}

static void submit_to_log(struct cluster_sequencer *q, struct commit_wait *w)
{
    struct pending *p = pending_of(w);
    bool prepare = must_prepare(q, p);
    struct err e = {0};
    int rc;

    lock_take(&q->lock);
    rc = check_queue(q, p, &e);
    if (rc == 0 && prepare) {
        list_push_back(&q->to_prepare, &p->node);
        cond_signal(&q->more_to_prepare);
    }
    lock_drop(&q->lock);
    if (rc != 0) {
        refuse_pending(q, p, &e);
    } else if (!prepare) {
        queue_pending(q, p);
    }
}

/* True: it is the log's. */
static bool admit_wait(struct cluster_sequencer *q, struct commit_wait *w)
{
    bool yes = false;

    lock_take(&q->lock);
    if (q->mode == MODE_ALONE) {
        store_pass(q->store, w);
    } else if (q->mode == MODE_HELD && refusal_of(q)->code == 0) {
        list_push_back(&q->held, &w->node);
    } else {
        q->entering++;
        yes = true;
    }
    lock_drop(&q->lock);
    return yes;
}

static void on_submit(void *arg, struct commit_wait *w)
{
    struct cluster_sequencer *q = arg;

    if (admit_wait(q, w)) {
        submit_to_log(q, w);
        lock_take(&q->lock);
        q->entering--;
        lock_drop(&q->lock);
    }
}

/* What the bucket cannot do now, and what a person has to repair there, is no fault of the caller:
 * E_AGAIN. Other errors stay. */
static int judge_failure(int rc, const struct err *why, struct err *e)
{
    if (retry_may_pass(rc) || rc == E_DENIED || rc == E_CONFIG) {
        return err_set(e, E_AGAIN, "the cluster's bucket cannot be written now: %.180s", why->text);
    }
    *e = *why;
    return rc;
}

static int prepare(struct cluster_sequencer *q, struct pending *p, struct err *e)
{
    struct err why = {0};
    int rc = q->set.ops->prepare(q->set.arg, p->batch, &why);

    return rc != 0 ? judge_failure(rc, &why, e) : 0;
}

static void *run_preparer(void *arg)
{
    struct cluster_sequencer *q = arg;

    for (;;) {
        struct pending *p = NULL;
        struct err e = {0};

        lock_take(&q->lock);
        while (list_empty(&q->to_prepare) && !q->stopping) {
            cond_wait(&q->more_to_prepare, &q->lock);
        }
        if (!q->stopping) {
            p = LIST_ITEM(list_pop_front(&q->to_prepare), struct pending, node);
        }
        lock_drop(&q->lock);
        if (p == NULL) {
            return NULL;
        }
        if (prepare(q, p, &e) == 0) {
            queue_pending(q, p);
            continue;
        }
        lock_take(&q->lock);
        leave_room(q, p);
        lock_drop(&q->lock);
        refuse_pending(q, p, &e);
    }
}

/* Under the lock. */
static struct pending *pop(struct cluster_sequencer *q, struct list *from)
{
    struct pending *p = LIST_ITEM(list_pop_front(from), struct pending, node);

    leave_room(q, p);
    return p;
}

/* From now on batches are refused, by `refusal` of the two, and so are those that wait. */
static void refuse_all_by(struct cluster_sequencer *q, struct err *refusal, const struct err *why)
{
    struct list refused, held;

    list_init(&refused);
    list_init(&held);
    lock_take(&q->lock);
    *refusal = *why;
    while (!list_empty(&q->held)) {
        list_push_back(&held, list_pop_front(&q->held));
    }
    while (!list_empty(&q->queue)) {
        list_push_back(&refused, &pop(q, &q->queue)->node);
    }
    while (!list_empty(&q->to_prepare)) {
        list_push_back(&refused, &pop(q, &q->to_prepare)->node);
    }
    lock_drop(&q->lock);
    while (!list_empty(&held)) {
        store_answer(q->store, LIST_ITEM(list_pop_front(&held), struct commit_wait, node),
                     why->code, why);
    }
    while (!list_empty(&refused)) {
        refuse_pending(q, LIST_ITEM(list_pop_front(&refused), struct pending, node), why);
    }
}

static void refuse_all(struct cluster_sequencer *q, const struct err *why)
{
    refuse_all_by(q, &q->refusal, why);
}

void sequencer_refuse(struct cluster_sequencer *q, const struct err *why)
{
    if (why != NULL) {
        refuse_all_by(q, &q->ban, why);
        return;
    }
    lock_take(&q->lock);
    err_clear(&q->ban);
    lock_drop(&q->lock);
}

/* --- groups --- */

static bool is_precondition(const struct batch_step *st)
{
    return st->op == OP_REQUIRE_ABSENT || st->op == OP_REQUIRE_VALUE;
}

/* The rows that a group changes, by their hashes: two rows of one hash only make a batch wait that
 * need not. */
struct changed_rows {
    struct set64 hashes;
    size_t batches; /* of the group, in there */
};

static uint64_t hash_of_row(const struct batch_step *st)
{
    return slice_hash(st->key) + (uint64_t)st->table * 0x9e3779b97f4a7c15u;
}

static void add_changed(struct changed_rows *x, const struct batch *b)
{
    struct batch_step st;

    for (size_t at = 0; batch_next(b, &at, &st);) {
        if (!is_precondition(&st)) {
            (void)set64_add(&x->hashes, hash_of_row(&st));
        }
    }
}

/* Does it require a row that a batch of the group changes? All preconditions of an entry are about
 * the rows before that entry. */
static bool depends_on_group(struct cluster_sequencer *q, struct changed_rows *x,
                             const struct batch *b)
{
    struct batch_step st;
    bool depends = false;

    for (; x->batches < q->grouped; x->batches++) {
        add_changed(x, q->group[x->batches]->batch);
    }
    for (size_t at = 0; !depends && batch_next(b, &at, &st);) {
        depends = is_precondition(&st) && set64_has(&x->hashes, hash_of_row(&st));
    }
    return depends;
}

/* Under the lock. May the batch be in the same entry as those of the group? */
static bool fits_group(struct cluster_sequencer *q, struct changed_rows *x, const struct pending *p,
                       size_t bytes, size_t encoded)
{
    return q->grouped == 0 ||
           (bytes <= GROUP_BYTES_MAX && encoded <= STEPS_BYTES_MAX && p->check == NULL &&
            q->group[0]->check == NULL && !depends_on_group(q, x, p->batch));
}

/* Under the lock. */
static void take_group(struct cluster_sequencer *q)
{
    struct changed_rows changed = {0};
    size_t bytes = 0, encoded = 0;

    while (q->grouped < LOG_ENTRY_BATCHES_MAX && !list_empty(&q->queue)) {
        struct pending *p = LIST_ITEM(q->queue.next, struct pending, node);
        bytes += batch_bytes(p->batch);
        encoded += BATCH_HEAD_BYTES + p->steps.n;
        if (!fits_group(q, &changed, p, bytes, encoded)) {
            break;
        }
        q->group[q->grouped++] = pop(q, &q->queue);
        q->committing++;
    }
    set64_free(&changed.hashes);
}

static void free_group(struct cluster_sequencer *q)
{
    for (size_t i = 0; i < q->grouped; i++) {
        if (q->group[i] != NULL) { /* it is prepared again */
            pending_free(q->group[i]);
        }
    }
    q->grouped = q->entered = 0;
}

/* --- what the log asks --- */

static void on_begin(void *arg)
{
    struct cluster_sequencer *q = arg;
    struct batch *batch[LOG_ENTRY_BATCHES_MAX];

    for (size_t i = 0; i < q->grouped; i++) {
        batch[i] = q->group[i]->batch;
    }
    store_judge(q->store, batch, q->grouped, q->judged, q->judged_why);
    if (q->judged[0] == 0 && q->group[0]->check != NULL) {
        q->judged[0] = q->group[0]->check(q->store, q->group[0]->check_arg, &q->judged_why[0]);
    }
    q->asked = q->entered = 0;
}

/* The log asks for each batch that has not failed yet, in their order. */
static int on_admit(void *arg, struct slice steps, struct err *e)
{
    struct cluster_sequencer *q = arg;
    size_t i;

    while (q->asked < q->grouped && q->group[q->asked]->steps.p != steps.p) {
        q->asked++; /* failed in an earlier round */
    }
    CHECK(q->asked < q->grouped);
    i = q->asked++;
    if (q->judged[i] == 0) {
        q->entry[q->entered++] = q->group[i]->batch;
    } else {
        *e = q->judged_why[i];
    }
    return q->judged[i];
}

static void put_position(struct batch *b, uint64_t seq, const struct digest *own)
{
    struct buf row = BUF_INIT(POSITION_BYTES);

    buf_be(&row, 8, seq);
    buf_add(&row, own->b, DIGEST_BYTES);
    batch_put(b, TABLE_META, POSITION_KEY, buf_slice(&row));
    buf_free(&row);
}

/* E_CORRUPT. */
static int read_position(struct slice row, uint64_t *seq, struct digest *own, struct err *e)
{
    if (row.n != POSITION_BYTES) {
        return err_set(e, E_CORRUPT, "the row of the position in the cluster's log has %zu bytes",
                       row.n);
    }
    *seq = be_get(row.p, 8);
    memcpy(own->b, row.p + 8, DIGEST_BYTES);
    return 0;
}

static void put_commit(struct batch *b, const struct log_entry_author *last)
{
    struct buf key = BUF_INIT(COMMIT_KEY_BYTES), row = BUF_INIT(COMMIT_BYTES);

    buf_adds(&key, COMMIT_KEY);
    buf_add(&key, last->node, LOG_ENTRY_NODE_BYTES);
    buf_be(&row, 8, last->boot);
    buf_be(&row, 8, last->counter);
    batch_put(b, TABLE_META, buf_slice(&key), buf_slice(&row));
    buf_free(&key);
    buf_free(&row);
}

static void add_position(struct batch *b, const struct log_entry *en)
{
    put_position(b, en->seq, &en->own);
    if (en->batches != 0) { /* an entry that was declared void has no author */
        put_commit(b, &en->author);
    }
}

static void after_apply(struct cluster_sequencer *q, struct batch *const *b, size_t n)
{
    if (q->set.ops != NULL) {
        q->set.ops->after_apply(q->set.arg, (const struct batch *const *)b, n);
    }
}

static int apply_mine(struct cluster_sequencer *q, const struct log_entry *en, struct err *e)
{
    struct batch *b = batch_new();
    int rc;

    add_position(b, en);
    rc = store_apply(q->store, &b, q->entry, q->entered, e);
    if (rc == 0) {
        after_apply(q, q->entry, q->entered);
    }
    return rc;
}

static int before_apply(struct cluster_sequencer *q, const struct batch *b, struct batch *own,
                        struct err *e)
{
    return q->set.ops != NULL ? q->set.ops->before_apply(q->set.arg, b, own, e) : 0;
}

static int apply_theirs(struct cluster_sequencer *q, const struct log_entry *en, struct err *e)
{
    struct batch *b = batch_new(), *position = batch_new();
    struct slice rest = en->steps, steps;
    int rc = 0;

    while (rc == 0 && log_entry_batch_next(&rest, &steps)) {
        rc = decode_shared(steps, b, e);
    }
    rc = rc != 0 ? rc : before_apply(q, b, position, e);
    if (rc == 0) {
        add_position(position, en);
        rc = store_apply(q->store, &position, &b, 1, e);
    }
    if (rc == 0) {
        after_apply(q, &b, 1);
    }
    batch_free(&position);
    batch_free(&b);
    return rc;
}

static int on_apply(void *arg, const struct log_entry *en, bool mine, struct err *e)
{
    struct cluster_sequencer *q = arg;
    int rc;

    q->last_is_mine = mine;
    crash_point("cluster.apply");
    rc = mine ? apply_mine(q, en, e) : apply_theirs(q, en, e);
    crash_point("cluster.applied");
    return rc;
}

/* --- a checkpoint: all shared rows at once --- */

static int on_restore_begin(void *arg, struct err *e)
{
    struct cluster_sequencer *q = arg;

    (void)e;
    q->restore = batch_new();
    return 0;
}

static int on_restore_commit(void *arg, const struct log_entry_author *last, struct err *e)
{
    struct cluster_sequencer *q = arg;

    (void)e;
    put_commit(q->restore, last);
    return 0;
}

static int on_restore_row(void *arg, uint8_t number, struct slice key, struct slice value,
                          struct err *e)
{
    struct cluster_sequencer *q = arg;
    enum table table;

    if (!table_of_shared_number(number, &table)) {
        return err_set(e, E_UNSUPPORTED,
                       "the checkpoint has rows of table %u, which this version does not know; "
                       "upgrade this mirror",
                       number);
    }
    if (table == TABLE_FORMAT) {
        int rc = format_check(value, e);
        if (rc != 0) {
            return rc;
        }
    }
    batch_put(q->restore, table, key, value);
    return q->restore->steps.rc != 0
               ? err_set(e, E_TOOBIG, "the checkpoint has more rows than fit into memory")
               : 0;
}

struct replaced { /* rows that the checkpoint does not have */
    struct batch *b;
    const struct batch_rows *rows;
    enum table table;
};

static int on_old_row(void *arg, struct slice key, struct slice value)
{
    struct replaced *r = arg;

    (void)value;
    if (!batch_rows_get(r->rows, r->table, key, &value)) {
        batch_del(r->b, r->table, key);
    }
    return 0;
}

static int on_restore_end(void *arg, uint64_t seq, const struct digest *own, struct err *e)
{
    struct cluster_sequencer *q = arg;
    struct batch *all = q->restore, *gone = batch_new();
    struct batch_rows *rows = batch_rows_open(all);
    struct replaced r = {.b = gone, .rows = rows};
    int rc = 0;

    q->restore = NULL;
    for (int t = 0; rc == 0 && t < TABLES; t++) {
        r.table = (enum table)t;
        if (table_shared_number(r.table) != 0) {
            rc = store_scan_once(q->store, r.table, SLICE_NONE, SLICE_NONE, on_old_row, &r, e);
        }
    }
    batch_rows_close(&rows);
    put_position(gone, seq, own);
    rc = rc != 0 ? rc : before_apply(q, all, gone, e);
    rc = rc == E_NOTFOUND ? E_AGAIN : rc; /* there is a later checkpoint, which does not need it */
    if (rc == 0) {
        rc = store_apply(q->store, &gone, &all, 1, e);
    }
    if (rc == 0) {
        log_info("cluster.restored", "entry=%" PRIu64, seq);
        after_apply(q, &all, 1);
    }
    batch_free(&gone);
    batch_free(&all);
    return rc;
}

static void on_restore_cancel(void *arg)
{
    struct cluster_sequencer *q = arg;

    batch_free(&q->restore);
}

struct checkpoint_run {
    struct checkpoint_writer *w;
    uint8_t number;
    struct err *e;
};

static int on_checkpoint_row(void *arg, struct slice key, struct slice value)
{
    struct checkpoint_run *r = arg;

    return checkpoint_writer_row(r->w, &(struct checkpoint_row){r->number, key, value}, r->e);
}

static int on_checkpoint_commit(void *arg, struct slice key, struct slice value)
{
    struct checkpoint_run *r = arg;
    struct log_entry_author last;

    if (key.n != COMMIT_KEY_BYTES || value.n != COMMIT_BYTES) {
        return err_set(r->e, E_CORRUPT, "the row of a node's last commit cannot be decoded");
    }
    memcpy(last.node, key.p + COMMIT_KEY.n, LOG_ENTRY_NODE_BYTES);
    last.boot = be_get(value.p, 8);
    last.counter = be_get(value.p + 8, 8);
    checkpoint_writer_commit(r->w, &last);
    return 0;
}

static int write_rows(struct store *s, struct kv_view *view, struct checkpoint_writer *w,
                      struct err *e)
{
    struct checkpoint_run r = {.w = w, .e = e};
    /* All keys that begin with COMMIT_KEY, whose last byte is a blank. */
    int rc = store_view_scan(s, view, TABLE_META, COMMIT_KEY, SLICE("cluster commit!"),
                             on_checkpoint_commit, &r, e);

    for (unsigned number = 1; rc == 0 && number <= UINT8_MAX; number++) {
        enum table table;
        r.number = (uint8_t)number;
        if (table_of_shared_number(r.number, &table)) {
            rc = store_view_scan(s, view, table, SLICE_NONE, SLICE_NONE, on_checkpoint_row, &r, e);
        }
    }
    return rc;
}

struct found_position {
    uint64_t seq;
    struct digest own;
    struct err *why;
};

static int on_position_row(void *arg, struct slice key, struct slice value)
{
    struct found_position *p = arg;

    (void)key;
    return read_position(value, &p->seq, &p->own, p->why);
}

int sequencer_write_checkpoint(struct store *s, struct bucket *b, uint64_t nonce, uint64_t *seq,
                               struct err *e)
{
    struct kv_view *view = store_view_open(s);
    struct checkpoint_writer *w = NULL;
    struct found_position at = {.why = e};
    char key[CHECKPOINT_KEY_ROOM];
    int rc = store_view_scan(s, view, TABLE_META, POSITION_KEY, SLICE("cluster position!"),
                             on_position_row, &at, e);

    if (rc == 0) {
        w = checkpoint_writer_open(b, at.seq, &at.own, nonce, 0);
        rc = write_rows(s, view, w, e);
    }
    rc = rc != 0 ? rc : checkpoint_writer_finish(w, key, e);
    checkpoint_writer_close(&w);
    store_view_close(&view);
    *seq = at.seq;
    return rc;
}

/* --- the thread --- */

/* begun_ms: when the requests began that confirmed the end of the log; 0: none did. */
static void note_result(struct cluster_sequencer *q, uint64_t begun_ms, int rc,
                        const struct err *why)
{
    bool failed;

    lock_take(&q->lock);
    failed = q->status.why.code != 0;
    q->status.applied = log_applied(q->log);
    q->status.stopped = log_has_stopped(q->log, &q->status.why);
    q->status.failures = rc == 0 ? 0 : q->status.failures + 1;
    q->status.since_unix_s = rc == 0 ? 0 : failed ? q->status.since_unix_s : clock_unix_s();
    if (rc == 0) {
        q->status.confirmed_ms = begun_ms != 0 ? begun_ms : q->status.confirmed_ms;
        atomic_store(&q->confirmed_ms, q->status.confirmed_ms);
        q->catch_up_silent = false;
        err_clear(&q->status.why);
    } else if (!q->status.stopped) {
        q->status.why = *why;
        q->status.why.code = rc;
    }
    cond_broadcast(&q->progress);
    lock_drop(&q->lock);
    if (rc != 0 && !failed) {
        log_warn("cluster.unreachable", "why=\"%s\"", why->text);
    } else if (rc == 0 && failed) {
        log_info("cluster.recovered", "entry=%" PRIu64, log_applied(q->log));
    }
}

static int check_bucket(struct cluster_sequencer *q, struct err *e)
{
    int rc = q->checked || q->set.ops == NULL ? 0 : q->set.ops->check(q->set.arg, e);

    q->checked = q->checked || rc == 0;
    return rc;
}

static void accept_batches(struct cluster_sequencer *q)
{
    lock_take(&q->lock);
    q->status.in_doubt = false;
    if (!q->stopping) {
        err_clear(&q->refusal);
    }
    lock_drop(&q->lock);
}

/* Settles the group whose outcome is unknown, if there is one. */
static void poll_log(struct cluster_sequencer *q)
{
    uint64_t begun_ms = clock_boot_ms();
    struct err e = {0};
    int rc = check_bucket(q, &e);

    rc = rc != 0 ? rc : log_poll(q->log, &e);
    note_result(q, begun_ms, rc, &e);
    q->polled_ms = clock_now_ms();
    if (rc == 0) {
        free_group(q);
        accept_batches(q);
    } else if (log_has_stopped(q->log, &e)) {
        refuse_all(q, &e);
    }
}

static void refuse_while_in_doubt(struct cluster_sequencer *q, const struct err *why)
{
    struct err refusal = {0};

    err_set(&refusal, E_AGAIN, "the cluster's log cannot be written now: %.180s", why->text);
    lock_take(&q->lock);
    q->status.in_doubt = true;
    lock_drop(&q->lock);
    refuse_all(q, &refusal);
}

static void answer_group(struct cluster_sequencer *q, struct list *group)
{
    while (!list_empty(group)) {
        struct committed *x = LIST_ITEM(list_pop_front(group), struct committed, node);
        store_answer(q->store, x->wait, 0, NULL);
        free(x);
    }
}

/* Under the lock. */
static bool has_announced(const struct cluster_sequencer *q)
{
    return q->announced >= q->to_announce &&
           (list_empty(&q->committed) ||
            LIST_ITEM(q->committed.next, struct committed, node)->seq > q->announced);
}

static void *run_announcer(void *arg)
{
    struct cluster_sequencer *q = arg;
    struct list group;
    uint64_t seq, before;
    bool stop;

    do {
        list_init(&group);
        lock_take(&q->lock);
        while (has_announced(q) && !q->stopping) {
            cond_wait(&q->more_committed, &q->lock);
        }
        seq = q->to_announce;
        before = q->announced;
        stop = q->stopping;
        lock_drop(&q->lock);
        if (seq > before && !stop) {
            q->set.ops->announce(q->set.arg, seq);
            crash_point("cluster.announced");
        }
        lock_take(&q->lock);
        q->announced = seq;
        while (!list_empty(&q->committed) &&
               (stop || LIST_ITEM(q->committed.next, struct committed, node)->seq <= seq)) {
            list_push_back(&group, list_pop_front(&q->committed));
        }
        lock_drop(&q->lock);
        answer_group(q, &group);
    } while (!stop);
    return NULL;
}

/* Under the lock. */
static void announce(struct cluster_sequencer *q, uint64_t seq)
{
    q->to_announce = max_u64(q->to_announce, seq);
    cond_signal(&q->more_committed);
}

static void on_created(void *arg, uint64_t seq)
{
    struct cluster_sequencer *q = arg;

    if (q->set.ops != NULL) {
        lock_take(&q->lock);
        announce(q, seq);
        lock_drop(&q->lock);
    }
}

/* Its batch is in the log, and applied. */
static void answer_committed(struct cluster_sequencer *q, struct pending *p)
{
    uint64_t seq = log_applied(q->log);
    struct committed *x;
    bool wait;

    lock_take(&q->lock);
    wait = q->set.ops != NULL && q->announced < seq;
    if (wait) {
        x = NEW(struct committed);
        x->wait = p->wait;
        x->seq = seq;
        p->wait = NULL;
        list_push_back(&q->committed, &x->node);
        announce(q, seq);
    }
    lock_drop(&q->lock);
    if (!wait) {
        answer_pending(q, p, 0, NULL);
    }
}

/* Before its batch was judged, an entry was applied that made its preparation worthless. */
static bool is_outdated(struct cluster_sequencer *q, const struct pending *p, int rc)
{
    return rc == E_CHANGED && must_prepare(q, p) && q->set.ops->is_outdated != NULL &&
           q->set.ops->is_outdated(q->set.arg, p->batch);
}

static void prepare_again(struct cluster_sequencer *q, struct pending *p)
{
    struct err e = {0};

    buf_clear(&p->steps);
    lock_take(&q->lock);
    if (check_queue(q, p, &e) == 0) {
        list_push_back(&q->to_prepare, &p->node);
        cond_signal(&q->more_to_prepare);
    }
    lock_drop(&q->lock);
    if (e.code != 0) {
        refuse_pending(q, p, &e);
    }
}

static void commit_group(struct cluster_sequencer *q)
{
    static const struct err unknown = {
        E_AGAIN, "the cluster's bucket does not say whether this was committed; look, then try "
                 "again"};
    struct log_batch batch[LOG_ENTRY_BATCHES_MAX];
    uint64_t begun_ms = clock_boot_ms();
    struct err e = {0}, why;
    bool open, wrote;
    int rc;

    for (size_t i = 0; i < q->grouped; i++) {
        batch[i] = (struct log_batch){.steps = buf_slice(&q->group[i]->steps)};
    }
    q->last_is_mine = false;
    crash_point("cluster.commit");
    rc = log_commit(q->log, batch, q->grouped, &open, &e);
    wrote = rc == 0 && q->last_is_mine; /* so its slot was the end of the log */
    lock_take(&q->lock);
    q->committing = 0;
    lock_drop(&q->lock);
    note_result(q, wrote ? begun_ms : 0, rc, &e);
    for (size_t i = 0; i < q->grouped; i++) {
        if (open && rc != 0 && batch[i].rc == rc) {
            answer_pending(q, q->group[i], E_AGAIN, &unknown);
        } else if (!open && is_outdated(q, q->group[i], batch[i].rc)) {
            prepare_again(q, q->group[i]);
            q->group[i] = NULL;
        } else if (batch[i].rc != 0) {
            int failed = judge_failure(batch[i].rc, &batch[i].why, &why);
            answer_pending(q, q->group[i], failed, &why);
        } else {
            answer_committed(q, q->group[i]);
        }
    }
    if (wrote) {
        q->polled_ms = clock_now_ms();
    }
    if (log_has_stopped(q->log, &e)) {
        refuse_all(q, &e);
    } else if (open) {
        refuse_while_in_doubt(q, &e);
        return;
    }
    free_group(q);
}

/* False: it is time to stop. *poll: it is time to poll. */
static bool wait_for_work(struct cluster_sequencer *q, bool *poll)
{
    uint64_t now = clock_now_ms(), due = q->polled_ms + q->set.poll_ms;
    bool stop;

    lock_take(&q->lock);
    if (list_empty(&q->queue) && !q->stopping && !q->poked && now < due) {
        cond_wait_ms(&q->more, &q->lock, due - now);
    }
    *poll = q->poked || clock_now_ms() >= due;
    q->poked = false;
    stop = q->stopping;
    if (!stop && q->grouped == 0) {
        take_group(q);
    } else {
        *poll = true;
    }
    lock_drop(&q->lock);
    return !stop;
}

static void *run_sequencer(void *arg)
{
    struct cluster_sequencer *q = arg;
    bool poll;

    while (wait_for_work(q, &poll)) {
        bool in_doubt = q->entered != 0;
        if (q->grouped != 0 && !in_doubt) {
            commit_group(q);
        }
        if (poll) {
            poll_log(q);
        }
    }
    return NULL;
}

/* --- start and stop --- */

static int load_position(struct store *s, uint64_t *seq, struct digest *own, struct err *e)
{
    struct buf row = BUF_INIT(256);
    int rc = store_get(s, TABLE_META, POSITION_KEY, &row, e);

    *seq = 0;
    *own = (struct digest){{0}};
    rc = rc != 0 ? rc : read_position(buf_slice(&row), seq, own, e);
    buf_free(&row);
    return rc;
}

int sequencer_position(struct store *s, uint64_t *seq, struct err *e)
{
    struct digest own;

    return load_position(s, seq, &own, e);
}

static int has_row(void *arg, struct slice key, struct slice value)
{
    (void)arg;
    (void)key;
    (void)value;
    return E_EXISTS;
}

static int check_no_shared_rows(struct store *s, struct err *e)
{
    int rc = 0;

    for (int t = 0; rc == 0 && t < TABLES; t++) {
        if (table_shared_number((enum table)t) != 0) {
            rc = store_scan(s, (enum table)t, SLICE_NONE, SLICE_NONE, has_row, NULL, e);
        }
    }
    return rc != E_EXISTS ? rc
                          : err_set(e, E_EXISTS,
                                    "%s has repositories, tokens or pins that are not the "
                                    "cluster's; a mirror joins a cluster with an empty state_dir",
                                    store_folder(s));
}

int sequencer_look(struct store *s, enum sequencer_rows *out, struct err *e)
{
    struct digest own;
    uint64_t seq;
    int rc = load_position(s, &seq, &own, e);

    *out = ROWS_OF_CLUSTER;
    if (rc == E_NOTFOUND) {
        rc = check_no_shared_rows(s, e);
        *out = rc == E_EXISTS ? ROWS_OWN : ROWS_NONE;
        rc = rc == E_EXISTS ? 0 : rc;
    }
    return rc;
}

/* For the first time. known: the store can be read without the bucket. */
static int read_first_time(struct cluster_sequencer *q, bool known, struct err *e)
{
    struct retry again = {.limit_ms = known ? START_KNOWN_MS : START_MS, .stop = q->set.gives_up};
    uint64_t begun_ms;
    int rc;

    do {
        begun_ms = clock_boot_ms();
        rc = check_bucket(q, e);
        rc = rc != 0 ? rc : log_catch_up(q->log, e);
        if (retry_may_pass(rc) && !known && again.failures == 0) {
            log_warn("cluster.waiting", "bucket=\"%s\" at_most_s=%d why=\"%s\"",
                     bucket_place(q->bucket), START_MS / 1000, e->text);
        }
    } while (rc != 0 && retry_wait(&again, rc));
    if (rc == 0 || (known && retry_may_pass(rc))) {
        note_result(q, begun_ms, rc, e);
        q->polled_ms = clock_now_ms();
    }
    if (rc != 0 && known && retry_may_pass(rc)) {
        refuse_while_in_doubt(q, e);
        return 0;
    }
    return rc;
}

/* Follows the log. *known: the store can be read without the bucket. */
static int follow_log(struct cluster_sequencer *q, struct err *e)
{
    static const struct log_ops ops = {.begin = on_begin,
                                       .admit = on_admit,
                                       .created = on_created,
                                       .apply = on_apply,
                                       .restore_begin = on_restore_begin,
                                       .restore_commit = on_restore_commit,
                                       .restore_row = on_restore_row,
                                       .restore_end = on_restore_end,
                                       .restore_cancel = on_restore_cancel};
    struct log_settings log = {
        .author.boot = q->set.boot, .settle_ms = q->set.settle_ms, .ops = &ops, .arg = q};
    bool known;
    int rc = load_position(q->store, &log.applied, &log.applied_own, e);

    known = rc == 0;
    rc = rc == E_NOTFOUND ? check_no_shared_rows(q->store, e) : rc;
    if (rc != 0) {
        return rc;
    }
    memcpy(log.author.node, q->set.node, LOG_ENTRY_NODE_BYTES);
    q->log = log_open(q->bucket, &log);
    rc = read_first_time(q, known, e);
    if (rc != 0) {
        log_close(&q->log);
        return rc;
    }
    q->stopping = false;
    q->to_announce = q->announced = 0;
    q->follows = true;
    q->thread = thread_start("cluster", run_sequencer, q);
    q->announcer = thread_start("announce", run_announcer, q);
    for (size_t i = 0; i < SEQUENCER_PREPARERS; i++) {
        q->preparer[i] = thread_start("prepare", run_preparer, q);
    }
    return 0;
}

int sequencer_start(struct store *s, struct bucket *b, const struct sequencer_settings *set,
                    struct cluster_sequencer **out, struct err *e)
{
    struct cluster_sequencer *q = NEW(struct cluster_sequencer);
    int rc;

    *out = NULL;
    q->store = s;
    q->bucket = b;
    q->set = *set;
    q->set.poll_ms = set->poll_ms != 0 ? set->poll_ms : POLL_MS;
    lock_init(&q->lock, LOCK_SEQUENCER);
    cond_init(&q->more);
    cond_init(&q->more_to_prepare);
    cond_init(&q->more_committed);
    cond_init(&q->progress);
    list_init(&q->committed);
    list_init(&q->queue);
    list_init(&q->to_prepare);
    list_init(&q->held);
    rc = follow_log(q, e);
    q->mode = rc == 0 ? MODE_FOLLOWING : MODE_ALONE;
    if (rc != 0 && !(rc == E_EXISTS && set->may_be_alone)) {
        sequencer_free(&q);
        return rc;
    }
    q->hook = (struct sequencer){on_submit, q};
    store_set_sequencer(s, &q->hook);
    *out = q;
    return 0;
}

static void stop_following(struct cluster_sequencer *q)
{
    if (!q->follows) {
        return;
    }
    lock_take(&q->lock);
    q->stopping = true;
    cond_signal(&q->more);
    cond_broadcast(&q->more_to_prepare);
    cond_broadcast(&q->progress);
    lock_drop(&q->lock);
    log_interrupt(q->log);
    pthread_join(q->thread, NULL);
    lock_take(&q->lock);
    cond_signal(&q->more_committed);
    lock_drop(&q->lock);
    pthread_join(q->announcer, NULL);
    for (size_t i = 0; i < SEQUENCER_PREPARERS; i++) {
        pthread_join(q->preparer[i], NULL);
    }
    answer_group(q, &q->committed); /* what came after the last look */
    q->follows = false;
}

void sequencer_stop(struct cluster_sequencer *q)
{
    static const struct err why = {E_CANCELLED, "this mirror is shutting down"};

    stop_following(q);
    refuse_all(q, &why);
    free_group(q); /* those whose outcome is unknown: the next start finds it */
}

/* --- alone, held, following --- */

enum { IDLE_LOOK_MS = 20 };

/* False: it is not, after wait_ms. */
static bool wait_until_idle(struct cluster_sequencer *q, uint64_t wait_ms)
{
    uint64_t end_ms = clock_now_ms() + wait_ms;
    bool busy;

    lock_take(&q->lock);
    while ((busy = q->waiting != 0 || q->committing != 0 || q->entering != 0) &&
           clock_now_ms() < end_ms) {
        cond_wait_ms(&q->progress, &q->lock, IDLE_LOOK_MS);
    }
    lock_drop(&q->lock);
    return !busy;
}

void sequencer_release(struct cluster_sequencer *q)
{
    struct list held;

    list_init(&held);
    lock_take(&q->lock);
    q->mode = q->follows ? MODE_FOLLOWING : MODE_ALONE;
    if (!q->follows) {
        err_clear(&q->refusal); /* of a join that failed */
    }
    while (!list_empty(&q->held)) {
        list_push_back(&held, list_pop_front(&q->held));
    }
    lock_drop(&q->lock);
    while (!list_empty(&held)) {
        on_submit(q, LIST_ITEM(list_pop_front(&held), struct commit_wait, node));
    }
}

int sequencer_hold(struct cluster_sequencer *q, uint64_t wait_ms, struct err *e)
{
    lock_take(&q->lock);
    q->mode = MODE_HELD;
    lock_drop(&q->lock);
    if (!q->follows) {
        store_judge(q->store, NULL, 0, NULL, NULL); /* after all commits before */
    } else if (!wait_until_idle(q, wait_ms)) {
        sequencer_release(q);
        return err_set(e, E_TIMEOUT, "changes of clients are still on their way into the bucket");
    }
    return 0;
}

int sequencer_join(struct cluster_sequencer *q, struct err *e)
{
    struct err why = {0}, refusal = {0};
    int rc;

    CHECK(q->mode == MODE_HELD && !q->follows);
    q->checked = true;
    lock_take(&q->lock);
    err_clear(&q->refusal); /* of a join that failed */
    lock_drop(&q->lock);
    rc = follow_log(q, &why);
    if (rc == 0) {
        sequencer_release(q);
        return 0;
    }
    (void)judge_failure(rc, &why, &refusal);
    refuse_all(q, &refusal);
    return err_set(e, rc, "%s", why.text);
}

int sequencer_join_until(struct cluster_sequencer *q, const atomic_bool *stop, struct err *e)
{
    struct retry again = {.limit_ms = UINT64_MAX / 2, .stop = stop};
    struct err why = {0};

    while (!atomic_load(stop)) {
        if (sequencer_join(q, &why) == 0) {
            return 0;
        }
        if (again.failures == 0) {
            log_error("cluster.join", "why=\"%s\"", why.text);
        }
        (void)!retry_wait(&again, E_AGAIN);
    }
    return err_set(e, E_CANCELLED, "this mirror is shutting down");
}

void sequencer_part(struct cluster_sequencer *q)
{
    CHECK(q->mode == MODE_HELD && q->follows);
    stop_following(q);
    log_close(&q->log);
    lock_take(&q->lock);
    q->status = (struct sequencer_status){0};
    lock_drop(&q->lock);
}

struct found_row {
    struct log_entry_step step;
    struct buf *batch;
};

static int on_first_row(void *arg, struct slice key, struct slice value)
{
    struct found_row *f = arg;

    f->step.key = key;
    f->step.value = value;
    log_entry_step_write(&f->step, f->batch);
    return E_EXISTS;
}

/* The smallest rows first: an index's has no value. */
static int require_one_row(struct store *s, struct buf *batch, struct err *e)
{
    static const enum table first[] = {TABLE_INDEX, TABLE_HEAD};
    struct found_row f = {.step.op = LOG_ENTRY_REQUIRE_VALUE, .batch = batch};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(first) + TABLES; i++) {
        enum table t = i < ARRAY_LEN(first) ? first[i] : (enum table)(i - ARRAY_LEN(first));
        f.step.table = table_shared_number(t);
        if (f.step.table != 0) {
            rc = store_scan(s, t, SLICE_NONE, SLICE_NONE, on_first_row, &f, e);
        }
    }
    return rc == E_EXISTS ? 0 : rc == 0 ? err_set(e, E_NOTFOUND, "there are no rows") : rc;
}

int sequencer_first_entry(struct store *s, const uint8_t node[LOG_ENTRY_NODE_BYTES], uint64_t boot,
                          struct buf *entry, struct batch *b, struct err *e)
{
    struct log_entry_author by = {.boot = boot, .counter = 1};
    struct buf batch = BUF_INIT(STEPS_BYTES_MAX - BATCH_HEAD_BYTES);
    struct digest none = {{0}}, own;
    struct slice steps;
    int rc = require_one_row(s, &batch, e);

    memcpy(by.node, node, LOG_ENTRY_NODE_BYTES);
    steps = buf_slice(&batch);
    rc = rc != 0 ? rc : log_entry_write(1, &none, &by, &steps, 1, entry, &own, e);
    if (rc == 0) {
        put_position(b, 1, &own);
        put_commit(b, &by);
    }
    buf_free(&batch);
    return rc;
}

static int on_forgotten_commit(void *arg, struct slice key, struct slice value)
{
    (void)value;
    batch_del(arg, TABLE_META, key);
    return 0;
}

int sequencer_forget(struct store *s, struct batch *b, struct err *e)
{
    batch_del(b, TABLE_META, POSITION_KEY);
    return store_scan(s, TABLE_META, COMMIT_KEY, SLICE("cluster commit!"), on_forgotten_commit, b,
                      e);
}

void sequencer_free(struct cluster_sequencer **qp)
{
    struct cluster_sequencer *q = *qp;

    *qp = NULL;
    if (q == NULL) {
        return;
    }
    log_close(&q->log);
    cond_fini(&q->more);
    cond_fini(&q->more_to_prepare);
    cond_fini(&q->more_committed);
    cond_fini(&q->progress);
    lock_fini(&q->lock);
    free(q);
}

bool sequencer_poke(struct cluster_sequencer *q, uint64_t seq, uint64_t wait_ms)
{
    uint64_t end_ms = clock_now_ms() + wait_ms, now;
    bool applied;

    lock_take(&q->lock);
    if (q->status.applied < seq) {
        q->poked = true;
        cond_signal(&q->more);
    }
    while (q->follows && q->status.applied < seq && !q->stopping &&
           (now = clock_now_ms()) < end_ms) {
        cond_wait_ms(&q->progress, &q->lock, end_ms - now);
    }
    applied = q->follows && q->status.applied >= seq;
    lock_drop(&q->lock);
    return applied;
}

/* Under the lock. */
static bool may_catch_up(struct cluster_sequencer *q)
{
    uint64_t now_ms = clock_now_ms();

    if (q->status.failures != 0 || q->status.stopped || q->catch_up_silent ||
        q->catch_up_ms >= now_ms + 1000) {
        return false;
    }
    q->catch_up_ms = max_u64(q->catch_up_ms, now_ms) + 1000 / SEQUENCER_CATCH_UPS_PER_S;
    return true;
}

bool sequencer_catch_up(struct cluster_sequencer *q, uint64_t wait_ms)
{
    uint64_t since_ms = clock_boot_ms(), end_ms = clock_now_ms() + wait_ms, now, applied;
    bool more;

    lock_take(&q->lock);
    applied = q->status.applied;
    if (may_catch_up(q)) {
        q->poked = true;
        cond_signal(&q->more);
        while (q->status.confirmed_ms < since_ms && q->status.failures == 0 && !q->stopping &&
               (now = clock_now_ms()) < end_ms) {
            cond_wait_ms(&q->progress, &q->lock, end_ms - now);
        }
        q->catch_up_silent = q->status.confirmed_ms < since_ms;
    }
    more = q->status.applied > applied;
    lock_drop(&q->lock);
    return more;
}

void sequencer_status(struct cluster_sequencer *q, struct sequencer_status *out)
{
    lock_take(&q->lock);
    *out = q->status;
    out->waiting = q->waiting + q->committing;
    lock_drop(&q->lock);
}

uint64_t sequencer_confirmed_ms(const struct cluster_sequencer *q)
{
    return atomic_load(&q->confirmed_ms);
}
