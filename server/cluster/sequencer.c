#include "server/cluster/sequencer.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/store/batch.h"

/* The position in the log, in TABLE_META: sequence (8), the entry's own digest (32). */
#define POSITION_KEY SLICE("cluster position")

enum {
    POLL_MS = 1000,
    POSITION_BYTES = 8 + DIGEST_BYTES,
    ROW_MAX = 64 << 20,
    GROUP_BYTES = LOG_ENTRY_BYTES_MAX / 2,
};

struct cluster_sequencer {
    struct store *store;
    struct sequencer_settings set;
    struct sequencer hook;
    struct cluster_log *log;
    pthread_t thread;
    struct lock lock; /* LOCK_SEQUENCER; guards what follows, to `status` */
    struct cond more;
    struct list queue;
    bool stopping, poked;
    struct sequencer_status status;
    /* The thread's own: the group that is being committed, and what of it is in the entry. */
    struct commit_wait *group[LOG_ENTRY_BATCHES_MAX];
    struct buf steps[LOG_ENTRY_BATCHES_MAX]; /* the shared ones, encoded */
    size_t grouped, tried; /* batches of the group that admit() has seen since begin() */
    bool admitted[LOG_ENTRY_BATCHES_MAX];
    size_t admissions;
};

/* --- steps of a batch, here and in an entry --- */

static enum log_entry_op shared_op(enum batch_op op)
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

static enum batch_op own_op(enum log_entry_op op)
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

    buf_clear(out);
    for (size_t at = 0; batch_next(b, &at, &st);) {
        uint8_t number = table_shared_number(st.table);
        bool bare = st.op == OP_DEL || st.op == OP_REQUIRE_ABSENT;
        if (number != 0) {
            log_entry_step_write(&(struct log_entry_step){shared_op(st.op), number, st.key,
                                                          bare ? SLICE("") : st.value},
                                 out);
        }
    }
}

/* E_UNSUPPORTED: a table that this version does not know. */
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
        batch_step_add(out, &(struct batch_step){own_op(st.op), table, st.key, st.value});
    }
    return 0;
}

/* --- does a batch hold? --- */

static struct commit_wait *group_at(struct cluster_sequencer *q, size_t i)
{
    return q->group[i];
}

static int check_requirement(struct cluster_sequencer *q, const struct batch_step *st,
                             struct buf *row, struct err *e)
{
    int rc = store_get(q->store, st->table, st->key, row, e);

    if (st->op == OP_REQUIRE_ABSENT) {
        return rc == E_NOTFOUND ? 0
               : rc == 0        ? err_set(e, E_CHANGED, "the row was created in the meantime")
                                : rc;
    }
    return rc == E_NOTFOUND || (rc == 0 && !slice_eq(buf_slice(row), st->value))
               ? err_set(e, E_CHANGED, "the row was changed in the meantime")
               : rc;
}

static bool is_requirement(const struct batch_step *st)
{
    return st->op == OP_REQUIRE_ABSENT || st->op == OP_REQUIRE_VALUE;
}

static int check_requirements(struct cluster_sequencer *q, const struct batch *b, struct err *e)
{
    struct buf row = BUF_INIT(ROW_MAX);
    struct batch_step st;
    int rc = 0;

    for (size_t at = 0; rc == 0 && batch_next(b, &at, &st);) {
        rc = is_requirement(&st) ? check_requirement(q, &st, &row, e) : 0;
    }
    buf_free(&row);
    return rc;
}

static bool changes_row(const struct batch *b, const struct batch_step *of)
{
    struct batch_step st;

    for (size_t at = 0; batch_next(b, &at, &st);) {
        if (!is_requirement(&st) && st.table == of->table && slice_eq(st.key, of->key)) {
            return true;
        }
    }
    return false;
}

/* Does it require a row that a batch of the group changes? Then it waits for the next group: all
 * requirements of an entry are about the rows before that entry. */
static bool depends_on_group(struct cluster_sequencer *q, const struct batch *b)
{
    struct batch_step st;

    for (size_t at = 0; batch_next(b, &at, &st);) {
        for (size_t i = 0; is_requirement(&st) && i < q->grouped; i++) {
            if (changes_row(group_at(q, i)->batch, &st)) {
                return true;
            }
        }
    }
    return false;
}

static void on_begin(void *arg)
{
    struct cluster_sequencer *q = arg;

    q->tried = q->admissions = 0;
}

/* The log asks for each batch that has not failed yet, in their order. */
static int on_admit(void *arg, struct slice batch, struct err *e)
{
    struct cluster_sequencer *q = arg;
    int rc;

    while (q->tried < q->grouped && q->steps[q->tried].p != batch.p) {
        q->admitted[q->tried++] = false; /* failed in an earlier round */
    }
    CHECK(q->tried < q->grouped);
    rc = check_requirements(q, group_at(q, q->tried)->batch, e);
    q->admitted[q->tried++] = rc == 0;
    q->admissions += rc == 0;
    return rc;
}

/* --- applying --- */

static void add_position(struct batch *b, const struct log_entry *en)
{
    struct buf row = BUF_INIT(POSITION_BYTES);

    buf_be(&row, 8, en->seq);
    buf_add(&row, en->own.b, DIGEST_BYTES);
    batch_put(b, TABLE_META, POSITION_KEY, buf_slice(&row));
    buf_free(&row);
}

static int apply_shared(struct cluster_sequencer *q, const struct log_entry *en, struct err *e)
{
    struct batch *b = batch_new();
    struct slice rest = en->steps, steps;
    int rc = 0;

    while (rc == 0 && log_entry_batch_next(&rest, &steps)) {
        rc = decode_shared(steps, b, e);
    }
    if (rc != 0) {
        batch_free(&b);
        return rc;
    }
    add_position(b, en);
    return store_apply(q->store, &b, e);
}

/* The batches themselves, with their steps on rows of this node. */
static int apply_own(struct cluster_sequencer *q, const struct log_entry *en, struct err *e)
{
    struct batch *all = batch_new();

    for (size_t i = 0; i < q->tried; i++) {
        if (q->admitted[i]) {
            batch_join(all, group_at(q, i)->batch);
        }
    }
    q->tried = q->admissions = 0; /* the batches are empty now */
    add_position(all, en);
    return store_apply(q->store, &all, e);
}

static bool is_ours(const struct cluster_sequencer *q, const struct log_entry *en)
{
    return q->admissions != 0 && en->author.boot == q->set.boot &&
           memcmp(en->author.node, q->set.node, LOG_ENTRY_NODE_BYTES) == 0;
}

static int on_apply(void *arg, const struct log_entry *en, struct err *e)
{
    struct cluster_sequencer *q = arg;
    int rc;

    if (!is_ours(q, en)) {
        return apply_shared(q, en, e);
    }
    rc = apply_own(q, en, e);
    if (rc == E_CHANGED || rc == E_CORRUPT) { /* a blob went meanwhile; the entry counts */
        log_info("cluster.own_rows", "entry=%" PRIu64 " why=\"%s\"", en->seq,
                 e != NULL ? e->text : "");
        rc = apply_shared(q, en, e);
    }
    return rc;
}

/* --- the thread --- */

static void note_result(struct cluster_sequencer *q, int rc, const struct err *why)
{
    bool failed;

    lock_take(&q->lock);
    failed = q->status.why.code != 0;
    q->status.applied = log_applied(q->log);
    q->status.stopped = log_has_stopped(q->log, &q->status.why);
    if (rc == 0) {
        q->status.confirmed_ms = clock_now_ms();
        err_clear(&q->status.why);
    } else if (!q->status.stopped) {
        q->status.why = *why;
        q->status.why.code = rc;
    }
    lock_drop(&q->lock);
    if (rc != 0 && !failed) {
        log_warn("cluster.unreachable", "why=\"%s\"", why->text);
    } else if (rc == 0 && failed) {
        log_info("cluster.recovered", "entry=%" PRIu64, log_applied(q->log));
    }
}

static void poll_log(struct cluster_sequencer *q)
{
    struct err e = {0};
    int rc = log_poll(q->log, &e);

    note_result(q, rc, &e);
}

static void commit_group(struct cluster_sequencer *q)
{
    static const struct err unknown = {
        E_AGAIN, "the cluster's bucket does not say whether this was committed; look, then try "
                 "again"};
    struct log_batch batch[LOG_ENTRY_BATCHES_MAX];
    struct err e = {0};
    bool open;
    int rc;

    for (size_t i = 0; i < q->grouped; i++) {
        batch[i] = (struct log_batch){.steps = buf_slice(&q->steps[i])};
    }
    rc = log_commit(q->log, batch, q->grouped, &open, &e);
    for (size_t i = 0; i < q->grouped; i++) {
        bool in_doubt = open && batch[i].rc != 0 && batch[i].rc != E_CHANGED;
        store_answer(q->store, q->group[i], in_doubt ? E_AGAIN : batch[i].rc,
                     in_doubt ? &unknown : &batch[i].why);
        buf_free(&q->steps[i]);
    }
    q->grouped = q->tried = q->admissions = 0;
    note_result(q, rc, &e);
}

/* Under the lock. */
static void take_group(struct cluster_sequencer *q)
{
    size_t bytes = 0;

    q->grouped = 0;
    while (q->grouped < LOG_ENTRY_BATCHES_MAX && bytes < GROUP_BYTES && !list_empty(&q->queue)) {
        struct commit_wait *w = LIST_ITEM(q->queue.next, struct commit_wait, node);
        if (depends_on_group(q, w->batch)) {
            return;
        }
        list_remove(&w->node);
        q->group[q->grouped++] = w;
        bytes += batch_bytes(w->batch);
    }
}

static void fail_all(struct cluster_sequencer *q)
{
    static const struct err why = {E_CANCELLED, "this mirror is shutting down"};

    for (;;) {
        take_group(q);
        if (q->grouped == 0) {
            return;
        }
        for (size_t i = 0; i < q->grouped; i++) {
            store_answer(q->store, q->group[i], E_CANCELLED, &why);
        }
    }
}

static void *run_sequencer(void *arg)
{
    struct cluster_sequencer *q = arg;

    for (;;) {
        bool stop;

        lock_take(&q->lock);
        if (list_empty(&q->queue) && !q->stopping && !q->poked) {
            cond_wait_ms(&q->more, &q->lock, q->set.poll_ms);
        }
        q->poked = false;
        stop = q->stopping;
        if (!stop) {
            take_group(q);
        }
        lock_drop(&q->lock);
        if (stop) {
            return NULL;
        }
        for (size_t i = 0; i < q->grouped; i++) {
            q->steps[i] = BUF_INIT(LOG_ENTRY_BYTES_MAX);
            encode_shared(q->group[i]->batch, &q->steps[i]);
        }
        if (q->grouped != 0) {
            commit_group(q);
        } else {
            poll_log(q);
        }
    }
}

static void on_submit(void *arg, struct commit_wait *w)
{
    struct cluster_sequencer *q = arg;

    lock_take(&q->lock);
    list_push_back(&q->queue, &w->node);
    cond_signal(&q->more);
    lock_drop(&q->lock);
}

/* --- start and stop --- */

static int load_position(struct store *s, uint64_t *seq, struct digest *own, struct err *e)
{
    struct buf row = BUF_INIT(256);
    int rc = store_get(s, TABLE_META, POSITION_KEY, &row, e);

    *seq = 0;
    *own = (struct digest){{0}};
    if (rc == 0 && row.n == POSITION_BYTES) {
        *seq = be_get(row.p, 8);
        memcpy(own->b, row.p + 8, DIGEST_BYTES);
    } else if (rc == 0) {
        rc = err_set(e, E_CORRUPT, "the row of the position in the cluster's log has %zu bytes",
                     row.n);
    }
    buf_free(&row);
    return rc == E_NOTFOUND ? 0 : rc;
}

int sequencer_start(struct store *s, struct bucket *b, const struct sequencer_settings *set,
                    struct cluster_sequencer **out, struct err *e)
{
    static const struct log_ops ops = {on_begin, on_admit, on_apply};
    struct cluster_sequencer *q = NEW(struct cluster_sequencer);
    struct log_settings log = {
        .author.boot = set->boot, .settle_ms = set->settle_ms, .ops = &ops, .arg = q};
    int rc;

    *out = NULL;
    q->store = s;
    q->set = *set;
    q->set.poll_ms = set->poll_ms != 0 ? set->poll_ms : POLL_MS;
    lock_init(&q->lock, LOCK_SEQUENCER);
    cond_init(&q->more);
    list_init(&q->queue);
    memcpy(log.author.node, set->node, LOG_ENTRY_NODE_BYTES);
    rc = load_position(s, &log.applied, &log.applied_own, e);
    q->log = log_open(b, &log);
    rc = rc != 0 ? rc : log_poll(q->log, e);
    if (rc != 0) {
        log_close(&q->log);
        cond_fini(&q->more);
        lock_fini(&q->lock);
        free(q);
        return rc;
    }
    note_result(q, 0, NULL);
    q->hook = (struct sequencer){on_submit, q};
    q->thread = thread_start("cluster", run_sequencer, q);
    store_set_sequencer(s, &q->hook);
    *out = q;
    return 0;
}

void sequencer_stop(struct cluster_sequencer **qp)
{
    struct cluster_sequencer *q = *qp;

    *qp = NULL;
    if (q == NULL) {
        return;
    }
    lock_take(&q->lock);
    q->stopping = true;
    cond_signal(&q->more);
    lock_drop(&q->lock);
    pthread_join(q->thread, NULL);
    fail_all(q);
    store_set_sequencer(q->store, NULL);
    log_close(&q->log);
    cond_fini(&q->more);
    lock_fini(&q->lock);
    free(q);
}

void sequencer_poke(struct cluster_sequencer *q)
{
    lock_take(&q->lock);
    q->poked = true;
    cond_signal(&q->more);
    lock_drop(&q->lock);
}

void sequencer_status(struct cluster_sequencer *q, struct sequencer_status *out)
{
    lock_take(&q->lock);
    *out = q->status;
    lock_drop(&q->lock);
}
