#include "server/cluster/cluster.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/cluster/adopt.h"
#include "server/cluster/checkpoint.h"
#include "server/cluster/format.h"
#include "server/cluster/identity.h"
#include "server/cluster/leave.h"
#include "server/cluster/log_trim.h"
#include "server/cluster/loop_pool.h"
#include "server/cluster/member.h"
#include "server/cluster/poke.h"
#include "server/cluster/sequencer.h"
#include "server/store/batch.h"
#include "server/store/blob.h"

/* In TABLE_META. */
#define NODE_KEY SLICE("cluster node")

/* The cache's name for what lies in the bucket. No repository has such a name. */

enum {
    ID_BYTES = 16,
    ORIGIN_CONNECTIONS = 32,
    ANSWER_MS = 2000,
    KNOW_MS = 3000,  /* until the others know of a state: a beat, and HELLO_WAIT_MS */
    LEARN_MS = 1000, /* how long a reader waits for the log, if the bucket lacks what it asks for */
    KEEP_MS = 5000,  /* between looks whether a checkpoint is due */
    CHECK_AGAIN_MS = 10 * 60 * 1000, /* after a check that failed */
    MOVING_LOOK_MS = 20,
    OPENING_LOOK_MS = 50,
    MEMBERS_AWAIT_MS = 3000,
};

struct cluster {
    struct cluster_settings set;
    struct store *store;
    struct bucket *bucket;  /* of the log */
    struct bucket *content; /* of packs and blobs: a slow disk delays its requests */
    struct origin *origin;  /* the same bucket, for the cache */
    struct tree_content *trees;
    struct members *members;
    struct poker *poker;   /* NULL: there is no secret */
    struct hints *hints;   /* NULL: there are none */
    struct relay *relay;   /* NULL: there is no secret, or no address */
    struct owners *owners; /* or NULL */
    struct claims *claims;
    struct cluster_sequencer *sequencer;
    struct blob_source blob_source;
    char node[2 * ID_BYTES + 1];
    uint64_t boot;
    atomic_bool joined; /* its rows are the cluster's; else it stands alone */
    atomic_bool parted; /* it stands alone because it has left the cluster */
    atomic_bool ends;   /* what takes long stops */
    struct {            /* while it opens: ends that early */
        bool (*must_end)(void);
        pthread_t thread;
        atomic_bool over, gives_up;
    } opening;
    _Atomic uint64_t format; /* the keeper has read it */
    struct collect *collect; /* NULL: not yet */
    pthread_t keeper;
    bool keeps;       /* there is that thread */
    struct lock lock; /* LOCK_CLUSTER; guards what follows, to keeper_ends */
    void (*on_row)(void *arg, enum table t, struct slice key);
    void *on_row_arg;
    int (*make_room)(void *arg, uint64_t n);
    void *make_room_arg;
    const struct cluster_limit_ops *limit_ops; /* or NULL */
    void *limit_arg;
    struct cond wake; /* of the keeper */
    bool keeper_ends;
    pthread_t checker;
    struct lock check_lock; /* LOCK_LEAF; guards what follows */
    struct cond check_changed;
    bool stopping, checking;
    /* Checks that have failed one after the other; of the thread that is checking. */
    struct {
        uint64_t failures, since_ms;
        enum probe_check step; /* of the last one */
    } trouble;
    bool moving; /* cluster_adopt() or cluster_leave_local() runs */
    bool broken; /* a key can be created twice */
    uint64_t check_due_ms;
    struct cluster_checked checked;
};

/* --- what the sequencer and the store ask --- */

static int on_prepare(void *arg, struct batch *b, struct err *e)
{
    struct cluster *c = arg;

    return tree_content_upload(c->trees, b, e);
}

static bool on_outdated_asked(void *arg, const struct batch *b)
{
    struct cluster *c = arg;

    return tree_content_is_outdated(c->trees, b);
}

static int pass_on(int rc, const struct err *why, struct err *e)
{
    if (rc != 0 && e != NULL) {
        *e = *why;
    }
    return rc;
}

static int on_before_apply(void *arg, const struct batch *b, struct batch *own, struct err *e)
{
    struct cluster *c = arg;

    struct err why = {0};
    int rc = tree_content_learn(c->trees, b, own, &why);

    /* The entry itself is sound: it is tried again until the object can be read. */
    return rc == E_CORRUPT
               ? err_set(e, E_AGAIN, "content of the cluster's bucket: %.180s", why.text)
               : pass_on(rc, &why, e);
}

static void tell_rows(struct cluster *c, const struct batch *b)
{
    struct batch_step st;

    for (size_t at = 0; batch_next(b, &at, &st);) {
        if ((st.op == OP_PUT || st.op == OP_DEL) && table_shared_number(st.table) != 0) {
            c->on_row(c->on_row_arg, st.table, st.key);
        }
    }
}

static void on_after_apply(void *arg, const struct batch *const *b, size_t n)
{
    struct cluster *c = arg;

    tree_content_applied(c->trees);
    lock_take(&c->lock);
    for (size_t i = 0; c->on_row != NULL && i < n; i++) {
        tell_rows(c, b[i]);
    }
    if (c->on_row != NULL) {
        c->on_row(c->on_row_arg, TABLES, SLICE_NONE);
    }
    if (c->collect != NULL) {
        collect_note(c->collect, b, n);
    }
    lock_drop(&c->lock);
}

static void on_announce(void *arg, uint64_t seq)
{
    struct cluster *c = arg;
    struct member other[MEMBERS_MAX];
    size_t n = c->poker != NULL ? members_others(c->members, other, MEMBERS_MAX) : 0;

    if (c->hints != NULL) {
        hints_send(c->hints, seq);
    }
    if (n != 0) {
        (void)poke_all(c->poker, other, n, seq);
    }
}

static void on_hint(void *arg, uint64_t seq)
{
    struct cluster *c = arg;

    (void)!sequencer_poke(c->sequencer, seq, 0);
}

static uint64_t on_applied_asked(void *arg)
{
    struct cluster *c = arg;
    struct sequencer_status q = {0};

    sequencer_status(c->sequencer, &q);
    return q.applied;
}

static bool on_stopped_asked(void *arg)
{
    struct cluster *c = arg;
    struct sequencer_status q = {0};

    sequencer_status(c->sequencer, &q);
    return q.stopped;
}

/* Whether an entry was applied that this mirror did not know of. */
static bool learn_more(struct cluster *c)
{
    return sequencer_poke(c->sequencer, on_applied_asked(c) + 1, LEARN_MS);
}

static int on_blob_wanted(void *arg, const struct digest *d, struct err *e)
{
    struct cluster *c = arg;

    struct err why = {0};
    int rc = c->joined ? tree_content_fetch(c->trees, d, &why) : E_NOTFOUND;

    if (rc == E_CORRUPT && learn_more(c)) { /* a collection may have moved it meanwhile */
        rc = tree_content_fetch(c->trees, d, &why);
    }
    /* That is for a person to repair; who reads may come again. */
    return rc == E_DENIED || rc == E_CONFIG ? err_set(e, E_AGAIN, "%.220s", why.text)
                                            : pass_on(rc, &why, e);
}

static bool on_blob_looked_up(void *arg, const struct digest *d, uint64_t *size_bytes)
{
    struct cluster *c = arg;

    return c->joined && tree_content_has(c->trees, d, size_bytes);
}

static bool on_node_looked_up(void *arg, const struct digest *id)
{
    struct cluster *c = arg;

    return tree_content_has_node(c->trees, id);
}

static int on_room_wanted(void *arg, uint64_t n)
{
    struct cluster *c = arg;
    int (*make_room)(void *arg, uint64_t n);
    void *make_room_arg;

    lock_take(&c->lock);
    make_room = c->make_room;
    make_room_arg = c->make_room_arg;
    lock_drop(&c->lock);
    return make_room != NULL ? make_room(make_room_arg, n) : E_NOSPACE;
}

/* --- limits that hold for all mirrors together --- */

/* The mirrors that answer clients, this one included. */
static uint32_t count_sharers(struct cluster *c, struct members *m)
{
    struct member other[MEMBERS_MAX];
    size_t n = members_others(m, other, MEMBERS_MAX);
    uint32_t sharers = 1;

    if (c->set.limits != NULL && strcmp(c->set.limits, "whole") == 0) {
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        sharers += other[i].state == MEMBER_READY;
    }
    return sharers;
}

static void on_members_read(void *arg, struct members *m)
{
    struct cluster *c = arg;
    struct member_pause pause[MEMBER_PAUSES_MAX];
    size_t n = members_pauses(m, pause, MEMBER_PAUSES_MAX);
    uint32_t sharers = count_sharers(c, m);

    lock_take(&c->lock);
    if (c->limit_ops != NULL) {
        c->limit_ops->share(c->limit_arg, sharers);
        for (size_t i = 0; i < n; i++) {
            c->limit_ops->pause(c->limit_arg, &pause[i]);
        }
    }
    lock_drop(&c->lock);
}

static void on_state_announced(void *arg, const struct member *other, size_t n)
{
    struct cluster *c = arg;

    if (c->poker != NULL) {
        poke_hello(c->poker, other, n, c->node);
    }
}

static size_t on_pauses_asked(void *arg, struct member_pause *out, size_t room)
{
    struct cluster *c = arg;
    size_t n = 0;

    lock_take(&c->lock);
    if (c->limit_ops != NULL) {
        n = c->limit_ops->pauses(c->limit_arg, out, room);
    }
    lock_drop(&c->lock);
    return n;
}

void cluster_on_limits(struct cluster *c, const struct cluster_limit_ops *ops, void *arg)
{
    lock_take(&c->lock);
    c->limit_ops = ops;
    c->limit_arg = arg;
    lock_drop(&c->lock);
}

/* --- who we are --- */

static uint64_t random_u64(void)
{
    uint64_t n;

    CHECK(getrandom(&n, sizeof n, 0) == (ssize_t)sizeof n);
    return n;
}

static int keep_row(struct store *s, struct slice key, const char *text, struct err *e)
{
    struct batch *b = batch_new();

    batch_put(b, TABLE_META, key, slice_str(text));
    return store_commit(s, &b, COMMIT_SYNC, e);
}

/* This node's id: drawn once. */
static int load_node(struct cluster *c, struct err *e)
{
    struct buf row = BUF_INIT(256);
    int rc = store_get(c->store, TABLE_META, NODE_KEY, &row, e);

    if (rc == 0) {
        snprintf(c->node, sizeof c->node, "%s", buf_cstr(&row));
    } else if (rc == E_NOTFOUND) {
        identity_draw(c->node);
        rc = keep_row(c->store, NODE_KEY, c->node, e);
    }
    buf_free(&row);
    return rc;
}

/* The first mirror of a cluster creates it. *is_new: this one has done so now. */
static int check_identity(struct cluster *c, bool *is_new, struct err *e)
{
    struct identity now = IDENTITY_INIT;
    struct buf before = BUF_INIT(IDENTITY_BYTES_MAX);
    int rc = identity_create(c->bucket, NULL, &now, e);

    *is_new = now.created;
    if (rc == 0) {
        rc = store_get(c->store, TABLE_META, IDENTITY_ROW, &before, e);
        if (rc == E_NOTFOUND) {
            rc = adopt_check_founded(c->bucket, &now, c->node, e);
            rc = rc != 0 ? rc : keep_row(c->store, IDENTITY_ROW, buf_cstr(&now.text), e);
        } else if (rc == 0 && !slice_eq(buf_slice(&before), buf_slice(&now.text))) {
            rc = err_set(e, E_CONFIG,
                         "%s is the bucket of another cluster than the one that this mirror "
                         "belongs to; correct the cluster section, or give the mirror a new "
                         "state_dir",
                         bucket_place(c->bucket));
        }
    }
    identity_free(&now);
    buf_free(&before);
    return rc;
}

/* --- checkpoints --- */

static int on_newest(void *arg, const struct checkpoint_found *found)
{
    *(uint64_t *)arg = found->seq;
    return 0;
}

/* One of the mirrors writes them: two would do no harm. One that is far behind, because it has
 * stopped at an entry, writes none. */
static bool is_first_member(struct cluster *c)
{
    struct member other[MEMBERS_MAX];
    size_t n = members_others(c->members, other, MEMBERS_MAX);
    uint64_t applied = on_applied_asked(c);

    for (size_t i = 0; i < n; i++) {
        if (strcmp(other[i].node, c->node) < 0 && !other[i].stopped &&
            other[i].applied + c->set.checkpoint_entries >= applied) {
            return false;
        }
    }
    return true;
}

/* *newest: the entry of the newest checkpoint, as far as it is known. */
static int keep_log(struct cluster *c, uint64_t *newest, struct err *e)
{
    struct log_trimmed trimmed;
    struct sequencer_status q;
    int rc;

    sequencer_status(c->sequencer, &q);
    if (!c->joined || q.applied < *newest + c->set.checkpoint_entries || !is_first_member(c)) {
        return 0;
    }
    rc = checkpoint_list(c->bucket, 1, on_newest, newest, e); /* another one may have been it */
    if (rc != 0 || q.applied < *newest + c->set.checkpoint_entries) {
        return rc;
    }
    rc = sequencer_write_checkpoint(c->store, c->bucket, random_u64(), newest, e);
    if (rc == 0) {
        log_info("cluster.checkpoint", "entry=%" PRIu64, *newest);
        rc = log_trim(c->bucket, 0, &trimmed, e);
    }
    if (rc == 0 && trimmed.entries + trimmed.checkpoints != 0) {
        log_info("cluster.trimmed", "entries=%" PRIu64 " checkpoints=%" PRIu64, trimmed.entries,
                 trimmed.checkpoints);
    }
    return rc;
}

/* --- the format of what all mirrors write --- */

static int look_at_format(struct cluster *c, uint64_t *out, struct err *e)
{
    int rc = format_read(c->store, out, e);

    atomic_store(&c->format, *out);
    return rc;
}

/* Once all mirrors can read a newer one. Each mirror tries: the first one succeeds. */
static int keep_format(struct cluster *c, struct err *e)
{
    uint64_t can = members_format(c->members), now;
    int rc = look_at_format(c, &now, e);

    if (rc != 0 || !c->joined || can <= now) {
        return rc;
    }
    rc = format_raise(c->store, now, can, e);
    if (rc == 0) {
        log_info("cluster.format", "from=%" PRIu64 " to=%" PRIu64, now, can);
        atomic_store(&c->format, can);
    }
    return rc == E_CHANGED || rc == E_AGAIN || rc == E_CANCELLED ? 0 : rc;
}

/* --- collection --- */

static bool on_first_asked(void *arg)
{
    struct cluster *c = arg;

    return c->joined && is_first_member(c);
}

static bool on_alive_asked(void *arg, const char *node)
{
    struct cluster *c = arg;

    return members_is_alive(c->members, node);
}

static int on_position_asked(void *arg, uint64_t *seq, struct err *e)
{
    struct cluster *c = arg;
    int rc = sequencer_position(c->store, seq, e);

    return rc == E_NOTFOUND || (rc == 0 && *seq == 0)
               ? err_set(e, E_AGAIN, "this mirror has no position in the cluster's log")
               : rc;
}

static bool on_all_applied_asked(void *arg, uint64_t seq)
{
    struct cluster *c = arg;
    struct member other[MEMBERS_MAX];
    size_t n = members_others(c->members, other, MEMBERS_MAX);

    for (size_t i = 0; i < n; i++) {
        if (other[i].applied < seq) {
            return false;
        }
    }
    return on_applied_asked(c) >= seq;
}

static int on_checkpoint_wanted(void *arg, uint64_t seq, struct err *e)
{
    struct cluster *c = arg;
    uint64_t newest = 0;
    int rc = checkpoint_list(c->bucket, 1, on_newest, &newest, e);

    return rc != 0 || newest >= seq
               ? rc
               : sequencer_write_checkpoint(c->store, c->bucket, random_u64(), &newest, e);
}

static int on_sweep_wanted(void *arg, struct err *e)
{
    struct cluster *c = arg;

    return tree_content_sweep_places(c->trees, e);
}

static bool on_reads_back_asked(void *arg)
{
    struct cluster *c = arg;

    return tree_content_reads_back(c->trees);
}

static void open_collect(struct cluster *c)
{
    static const struct collect_ops ops = {.is_first = on_first_asked,
                                           .is_alive = on_alive_asked,
                                           .applied = on_position_asked,
                                           .all_applied = on_all_applied_asked,
                                           .checkpoint = on_checkpoint_wanted,
                                           .sweep_places = on_sweep_wanted,
                                           .reads_back = on_reads_back_asked};
    struct collect_settings set = {.store = c->store,
                                   .bucket = c->content,
                                   .clock = c->bucket,
                                   .every_s = c->set.collect_s,
                                   .delay_s = c->set.collect_delay_s,
                                   .orphan_age_s = c->set.orphan_age_s,
                                   .ops = &ops,
                                   .arg = c};

    memcpy(set.node, c->node, sizeof set.node);
    lock_take(&c->lock);
    c->collect = collect_open(&set);
    lock_drop(&c->lock);
}

int cluster_collect(struct cluster *c, bool dry, collect_progress *progress, void *arg,
                    struct collect_report *out, struct err *e)
{
    return c->joined ? collect_run(c->collect, dry, progress, arg, out, e)
                     : err_set(e, E_NOTFOUND,
                               "this mirror stands alone; `mirrorctl cluster adopt` comes first");
}

int cluster_verify(struct cluster *c, const struct cluster_verify *how,
                   struct content_verified *out, struct err *e)
{
    const struct content_verify set = {.store = c->store,
                                       .bucket = c->content,
                                       .stop = &c->ends,
                                       .deep = how->deep,
                                       .finding = how->finding,
                                       .progress = how->progress,
                                       .arg = how->arg};

    *out = (struct content_verified){0};
    return c->joined ? content_verify(&set, out, e)
                     : err_set(e, E_CONFIG, "this mirror has not joined the cluster");
}

static void *run_keeper(void *arg)
{
    struct cluster *c = arg;
    uint64_t newest = 0;
    bool stopping;

    do {
        struct err e = {0};
        lock_take(&c->lock);
        if (!c->keeper_ends) {
            cond_wait_ms(&c->wake, &c->lock, KEEP_MS);
        }
        stopping = c->keeper_ends;
        lock_drop(&c->lock);
        if (!stopping && keep_log(c, &newest, &e) != 0) {
            log_warn("cluster.checkpoint_failed", "why=\"%s\"", e.text);
        }
        if (c->relay != NULL) {
            loop_pool_tidy(relay_loops(c->relay), clock_now_ms());
        }
        if (!stopping && keep_format(c, &e) != 0) {
            log_warn("cluster.format_failed", "why=\"%s\"", e.text);
        }
    } while (!stopping);
    return NULL;
}

static void stop_keeper(struct cluster *c)
{
    lock_take(&c->lock);
    c->keeper_ends = true;
    cond_signal(&c->wake);
    lock_drop(&c->lock);
    if (c->keeps) {
        pthread_join(c->keeper, NULL);
        c->keeps = false;
    }
}

/* --- checks --- */

struct check {
    struct cluster *cluster;
    unsigned rounds; /* as of probe_run() */
    void (*step)(void *arg, const struct probe_step *s);
    void *arg;
    enum probe_check reached;
    const char *what; /* the same */
    struct err why;   /* of that step */
};

/* A bucket that is away is checked at each poll: the log says when that begins and when it ends. */
static void note_failed_step(struct cluster *c, const struct probe_step *s)
{
    if (c->trouble.failures == 0) {
        c->trouble.since_ms = clock_now_ms();
    }
    if (c->trouble.failures++ == 0 || c->trouble.step != s->check) {
        log_error("cluster.probe", "step=\"%s\" why=\"%s\"", s->what, s->why->text);
    }
    c->trouble.step = s->check;
}

static void note_passed(struct cluster *c)
{
    if (c->trouble.failures != 0) {
        log_info("cluster.probe_passed", "failures=%" PRIu64 " after_s=%" PRIu64,
                 c->trouble.failures, (clock_now_ms() - c->trouble.since_ms) / 1000);
        c->trouble.failures = 0;
    }
}

static void on_step(void *arg, const struct probe_step *s)
{
    struct check *k = arg;
    struct cluster *c = k->cluster;

    k->reached = s->check;
    k->what = s->what;
    k->why = *s->why;
    if (s->rc != 0 && s->rc != E_CANCELLED) {
        note_failed_step(c, s);
    } else if (s->rc == 0 && s->why->code != 0 && c->trouble.failures == 0) {
        log_warn("cluster.probe", "step=\"%s\" why=\"%s\"", s->what, s->why->text);
    }
    if (s->check == PROBE_BODIES && s->why->code != 0) {
        tree_content_read_back(c->trees);
    }
    if (k->step != NULL) {
        k->step(k->arg, s);
    }
}

static bool lets_keys_be_created_twice(const struct check *k, int rc)
{
    return rc == E_UNSUPPORTED && (k->reached == PROBE_CREATE || k->reached == PROBE_RACE);
}

/* step_why: of the step that failed, without its name. */
static void refuse_changes(struct cluster *c, const struct err *why, const struct err *step_why)
{
    struct err refusal = {0};

    err_set(&refusal, E_AGAIN,
            "nothing can be changed until `mirrorctl cluster check` passes: the bucket "
            "failed it: %.130s",
            step_why->text);
    log_error("cluster.broken", "why=\"%s\"", why->text);
    sequencer_refuse(c->sequencer, &refusal);
}

/* Such a check says nothing of the bucket's promises. */
static bool was_not_made(int rc)
{
    return rc == E_CANCELLED || rc == E_NETWORK || rc == E_TIMEOUT || rc == E_AGAIN;
}

/* Under check_lock. */
static void note_check(struct cluster *c, const struct check *k, uint64_t took_ms, int rc,
                       const struct err *why)
{
    uint64_t wait_ms = rc == 0 ? c->set.check_ms : min_u64(c->set.check_ms, CHECK_AGAIN_MS);

    c->check_due_ms = clock_now_ms() + wait_ms;
    if (was_not_made(rc)) {
        return;
    }
    c->checked = (struct cluster_checked){.at_unix_s = clock_unix_s(),
                                          .took_ms = took_ms,
                                          .step = rc != 0 ? k->what : NULL,
                                          .why = *why};
    c->checked.why.code = rc;
    c->broken = lets_keys_be_created_twice(k, rc) || (c->broken && rc != 0);
}

static int check_bucket(struct check *k, struct err *e)
{
    struct cluster *c = k->cluster;
    uint64_t began_ms = clock_now_ms();
    struct err why = {0};
    bool busy, was_broken, is_broken;
    int rc;

    lock_take(&c->check_lock);
    busy = c->checking;
    c->checking = true;
    lock_drop(&c->check_lock);
    if (busy) {
        return err_set(e, E_BUSY, "the bucket is being checked; try again when that has ended");
    }
    rc = probe_run(c->bucket, k->rounds, random_u64(), on_step, k, &why);
    if (rc == 0) {
        note_passed(c);
    }
    lock_take(&c->check_lock);
    was_broken = c->broken;
    note_check(c, k, clock_now_ms() - began_ms, rc, &why);
    is_broken = c->broken;
    lock_drop(&c->check_lock);
    if (is_broken && !was_broken && c->sequencer != NULL) {
        refuse_changes(c, &why, &k->why);
    } else if (was_broken && !is_broken) {
        log_info("cluster.repaired", "bucket=\"%s\"", bucket_place(c->bucket));
        sequencer_refuse(c->sequencer, NULL);
    }
    lock_take(&c->check_lock);
    c->checking = false;
    cond_signal(&c->check_changed);
    lock_drop(&c->check_lock);
    return rc != 0 ? err_set(e, rc, "%s", why.text) : 0;
}

int cluster_check(struct cluster *c, void (*step)(void *arg, const struct probe_step *s), void *arg,
                  struct err *e)
{
    struct check k = {.cluster = c, .rounds = PROBE_ROUNDS_MANY, .step = step, .arg = arg};

    return check_bucket(&k, e);
}

/* Under check_lock. True: a check is due. */
static bool wait_for_check(struct cluster *c)
{
    uint64_t now_ms = clock_now_ms();

    if (c->checking || c->broken || c->set.check_ms == 0 || !c->joined) {
        cond_wait(&c->check_changed, &c->check_lock);
    } else if (now_ms < c->check_due_ms) {
        cond_wait_ms(&c->check_changed, &c->check_lock, c->check_due_ms - now_ms);
    } else {
        return true;
    }
    return false;
}

static void *run_checker(void *arg)
{
    struct cluster *c = arg;
    struct check k = {.cluster = c, .rounds = PROBE_ROUNDS};

    lock_take(&c->check_lock);
    while (!c->stopping) {
        if (wait_for_check(c)) {
            lock_drop(&c->check_lock);
            (void)!check_bucket(&k, NULL);
            lock_take(&c->check_lock);
        }
    }
    lock_drop(&c->check_lock);
    return NULL;
}

static void stop_checker(struct cluster *c)
{
    lock_take(&c->check_lock);
    c->stopping = true;
    cond_signal(&c->check_changed);
    lock_drop(&c->check_lock);
    pthread_join(c->checker, NULL);
}

/* --- open and close --- */

/* Before anything else in the bucket. */
static int on_check(void *arg, struct err *e)
{
    struct cluster *c = arg;
    struct check k = {.cluster = c, .rounds = PROBE_ROUNDS};
    bool is_new = false;
    int rc = check_bucket(&k, e);

    rc = rc != 0 ? rc : check_identity(c, &is_new, e);
    if (rc == 0) {
        log_info("cluster.joined", "bucket=\"%s\" node=%s new_cluster=%s", bucket_place(c->bucket),
                 c->node, is_new ? "yes" : "no");
    }
    return rc;
}

static int open_sequencer(struct cluster *c, struct err *e)
{
    static const struct sequencer_ops ops = {.check = on_check,
                                             .must_prepare = tree_content_is_new,
                                             .prepare = on_prepare,
                                             .is_outdated = on_outdated_asked,
                                             .before_apply = on_before_apply,
                                             .after_apply = on_after_apply,
                                             .announce = on_announce};
    struct sequencer_settings set = {
        .boot = c->boot, .poll_ms = c->set.poll_ms, .ops = &ops, .arg = c};

    if (!slice_hex(slice_str(c->node), set.node, LOG_ENTRY_NODE_BYTES)) {
        return err_set(e, E_CORRUPT, "the row of this node's id cannot be decoded");
    }
    set.may_be_alone = true;
    set.gives_up = &c->opening.gives_up;
    return sequencer_start(c->store, c->bucket, &set, &c->sequencer, e);
}

/* A bucket that cannot be looked at is looked at again by cluster_adopt(). */
static int check_alone(struct cluster *c, struct err *e)
{
    struct err why = {0};
    int rc = adopt_may_begin(c->bucket, c->node, &why);

    if (rc == E_EXISTS || rc == E_CONFIG || rc == E_UNSUPPORTED) {
        return err_set(e, rc, "%s", why.text);
    }
    log_warn("cluster.not_joined",
             "bucket=\"%s\" why=\"this mirror stands alone until `mirrorctl cluster adopt` has "
             "moved its repositories into the bucket\"",
             bucket_place(c->bucket));
    return 0;
}

/* Whose the rows are decides how it begins. */
static int look_at_rows(struct cluster *c, struct err *e)
{
    enum sequencer_rows rows;
    int rc = adopt_finish(c->store, c->bucket, &c->opening.gives_up, e);

    rc = rc != 0 ? rc : leave_finish(c->store, e);
    rc = rc != 0 ? rc : sequencer_look(c->store, &rows, e);
    if (rc == 0) {
        c->joined = rows != ROWS_OWN;
        rc = rows == ROWS_OWN ? check_alone(c, e) : 0;
    }
    return rc;
}

static int open_origin(struct cluster *c, struct err *e)
{
    const struct bucket_settings *b = &c->set.bucket;
    struct origin_settings set = {.url = b->url,
                                  .endpoint = b->endpoint,
                                  .region = b->region,
                                  .addressing = b->addressing,
                                  .authorization = b->authorization,
                                  .ca_file = b->ca_file,
                                  .connections = ORIGIN_CONNECTIONS};

    return origin_new(CONTENT_REPO, &set, &c->origin, e);
}

static struct members *open_members(struct cluster *c)
{
    struct members_settings set = {.bucket = c->bucket,
                                   .boot = c->boot,
                                   .gone_s = c->set.takeover_s,
                                   .pauses = on_pauses_asked,
                                   .read = on_members_read,
                                   .tell = on_state_announced,
                                   .applied = on_applied_asked,
                                   .stopped = on_stopped_asked,
                                   .arg = c};

    snprintf(set.self.node, sizeof set.self.node, "%s", c->node);
    snprintf(set.self.address, sizeof set.self.address, "%s",
             c->set.address != NULL ? c->set.address : "");
    snprintf(set.self.version, sizeof set.self.version, "%s", MIRROR_VERSION);
    set.self.format = format_newest();
    set.self.weight = c->set.weight;
    set.beat_ms = c->set.heartbeat_ms;
    return members_open(&set);
}

/* Mirrors of one bucket meet on one channel, also without a name for it. */
static struct hints *open_hints(struct cluster *c)
{
    struct arena a = {0};
    struct hints_settings set = {.url = c->set.hints,
                                 .authorization = c->set.hints_authorization,
                                 .channel = arena_fmt(&a, "mirrord:%s", c->set.bucket.url).p,
                                 .on_hint = on_hint,
                                 .arg = c};
    struct hints *h = c->set.hints != NULL ? hints_open(&set) : NULL;

    arena_fini(&a);
    return h;
}

static void interrupt_requests(struct cluster *c)
{
    tree_content_interrupt(c->trees);
    bucket_interrupt(c->content);
    bucket_interrupt(c->bucket);
}

static void *run_opening_watch(void *arg)
{
    struct cluster *c = arg;
    struct timespec look = {.tv_nsec = OPENING_LOOK_MS * 1000000};

    while (!atomic_load(&c->opening.over)) {
        if (c->opening.must_end()) {
            atomic_store(&c->opening.gives_up, true);
            interrupt_requests(c);
            break;
        }
        nanosleep(&look, NULL);
    }
    return NULL;
}

/* What needs the bucket, which may be away or have much to be read. */
static int open_log(struct cluster *c, bool (*must_end)(void), struct err *e)
{
    uint64_t format;
    int rc;

    c->opening.must_end = must_end;
    if (must_end != NULL) {
        c->opening.thread = thread_start("opening", run_opening_watch, c);
    }
    rc = look_at_format(c, &format, e);
    rc = rc != 0 ? rc : look_at_rows(c, e);
    rc = rc != 0 ? rc : open_sequencer(c, e);
    rc = rc != 0 ? rc : look_at_format(c, &format, e);
    if (rc != 0 && c->sequencer != NULL) {
        sequencer_stop(c->sequencer);
    }
    if (must_end != NULL) {
        atomic_store(&c->opening.over, true);
        pthread_join(c->opening.thread, NULL);
    }
    return rc != 0 && c->opening.gives_up ? err_set(e, E_CANCELLED, "this mirror is shutting down")
                                          : rc;
}

int cluster_open(const struct cluster_settings *set, struct store *s, bool (*must_end)(void),
                 struct cluster **out, struct err *e)
{
    struct cluster *c = NEW(struct cluster);
    int rc;

    *out = NULL;
    c->set = *set;
    c->store = s;
    c->boot = random_u64();
    lock_init(&c->lock, LOCK_CLUSTER);
    cond_init(&c->wake);
    lock_init(&c->check_lock, LOCK_LEAF);
    cond_init(&c->check_changed);
    rc = bucket_open(&set->bucket, &c->bucket, e);
    rc = rc != 0 ? rc : bucket_open(&set->bucket, &c->content, e);
    rc = rc != 0 ? rc : open_origin(c, e);
    rc = rc != 0 ? rc : load_node(c, e);
    if (rc != 0) {
        cluster_close(&c);
        return rc;
    }
    c->trees = tree_content_open(&(struct tree_content_settings){
        .store = s, .bucket = c->content, .make_room = on_room_wanted, .arg = c});
    c->poker = set->secret != NULL ? poker_open(set->secret) : NULL;
    c->blob_source = (struct blob_source){.bring = on_blob_wanted,
                                          .has = on_blob_looked_up,
                                          .needs_node = on_node_looked_up,
                                          .arg = c};
    store_set_blob_source(s, &c->blob_source);
    rc = open_log(c, must_end, e);
    if (rc != 0) {
        store_set_blob_source(s, NULL);
        cluster_close(&c);
        return rc;
    }
    c->members = open_members(c);
    if (c->joined) {
        members_start(c->members);
    }
    c->relay = set->secret != NULL && set->address != NULL
                   ? relay_open(set->secret, c->node, c->members)
                   : NULL;
    if (set->secret != NULL) {
        c->owners =
            owners_open(c->members, c->node, set->address != NULL ? set->weight : 0, set->secret);
    }
    c->claims = claims_open(s, c->members, c->node, set->address != NULL ? set->address : c->node);
    c->hints = open_hints(c);
    c->keeper = thread_start("keeper", run_keeper, c);
    c->keeps = true;
    c->checker = thread_start("cluster-check", run_checker, c);
    open_collect(c);
    if (c->joined) { /* the first requests may be about what the others have */
        members_await_first(c->members, MEMBERS_AWAIT_MS);
    }
    *out = c;
    return 0;
}

int cluster_absent(struct store *s, struct err *e)
{
    uint64_t format;
    int rc = format_read(s, &format, e);

    rc = rc != 0 ? rc : adopt_check_alone(s, e);
    return rc != 0 ? rc : leave_finish(s, e);
}

int cluster_leave_offline(struct store *s, bool force, uint64_t *missing, uint64_t *missing_bytes,
                          struct err *e)
{
    return leave_offline(s, force, missing, missing_bytes, e);
}

void cluster_on_row(struct cluster *c, void (*on_row)(void *arg, enum table t, struct slice key),
                    void *arg)
{
    lock_take(&c->lock);
    c->on_row = on_row;
    c->on_row_arg = arg;
    lock_drop(&c->lock);
}

void cluster_on_full(struct cluster *c, int (*make_room)(void *arg, uint64_t n), void *arg)
{
    lock_take(&c->lock);
    c->make_room = make_room;
    c->make_room_arg = arg;
    lock_drop(&c->lock);
}

static uint64_t lag_ms(const struct sequencer_status *q)
{
    uint64_t now_ms = clock_boot_ms();

    return now_ms - min_u64(now_ms, q->confirmed_ms);
}

/* A bucket that does not answer must not delay the end. */
static bool answers_now(struct cluster *c)
{
    struct sequencer_status q;

    sequencer_status(c->sequencer, &q);
    return q.failures == 0 && lag_ms(&q) < c->set.poll_ms + ANSWER_MS;
}

void cluster_serve(struct cluster *c)
{
    members_set_state(c->members, MEMBER_READY);
}

void cluster_leave(struct cluster *c)
{
    members_set_state(c->members, MEMBER_LEAVING);
}

void cluster_withdraw(struct cluster *c)
{
    members_set_state(c->members, MEMBER_LEFT);
}

void cluster_let_know(struct cluster *c)
{
    if (c->joined && answers_now(c)) {
        (void)!members_beat_now(c->members, KNOW_MS);
    }
}

bool cluster_signed_hello(struct cluster *c, struct slice node, struct slice signature)
{
    return c->poker != NULL && poke_hello_is_ours(c->poker, node, signature);
}

bool cluster_hello(struct cluster *c, const char *node)
{
    poke_heard(c->poker, node);
    if (c->owners != NULL) {
        owners_heard(c->owners, node);
    }
    if (c->relay != NULL) {
        relay_heard(c->relay, node);
    }
    return members_read_now(c->members, HELLO_WAIT_MS);
}

bool cluster_must_end(struct cluster *c, struct err *why)
{
    char address[MEMBER_ADDRESS_ROOM];

    if (!members_is_cloned(c->members, address)) {
        return false;
    }
    err_set(why, E_CONFIG,
            "another mirror%s%s runs with the id of this one, %s: one state_dir is a copy of the "
            "other; give one of the two an empty state_dir",
            address[0] != '\0' ? " at " : "", address, c->node);
    sequencer_refuse(c->sequencer, why);
    return true;
}

size_t cluster_nodes(struct cluster *c, struct member *out, size_t room)
{
    return members_all(c->members, out, room);
}

/* An adopt or a leave, after all requests were interrupted. */
static void wait_for_moving(struct cluster *c)
{
    lock_take(&c->check_lock);
    while (c->moving) {
        cond_wait_ms(&c->check_changed, &c->check_lock, MOVING_LOOK_MS);
    }
    lock_drop(&c->check_lock);
}

void cluster_stop(struct cluster *c)
{
    bool moving;

    if (c == NULL || c->sequencer == NULL || c->ends) {
        return;
    }
    lock_take(&c->check_lock); /* no adopt or leave begins from now on */
    c->ends = true;
    moving = c->moving;
    lock_drop(&c->check_lock);
    cluster_on_row(c, NULL, NULL);
    cluster_on_full(c, NULL, NULL);
    cluster_on_limits(c, NULL, NULL);
    if (!moving && c->joined && answers_now(c)) { /* else it may be about to start its members */
        members_leave(c->members);
    }
    collect_interrupt(c->collect);
    interrupt_requests(c);
    wait_for_moving(c);
    stop_keeper(c);
    stop_checker(c);
    sequencer_stop(c->sequencer);
    collect_stop(c->collect);
    members_leave(c->members);
}

void cluster_close(struct cluster **cp)
{
    struct cluster *c = *cp;

    *cp = NULL;
    if (c == NULL) {
        return;
    }
    collect_close(&c->collect);
    claims_close(&c->claims);
    hints_close(&c->hints);
    sequencer_free(&c->sequencer);
    relay_close(&c->relay);
    poker_close(&c->poker);
    owners_close(&c->owners);
    members_close(&c->members);
    tree_content_close(&c->trees);
    origin_free(&c->origin);
    bucket_close(&c->content);
    bucket_close(&c->bucket);
    cond_fini(&c->wake);
    cond_fini(&c->check_changed);
    lock_fini(&c->check_lock);
    lock_fini(&c->lock);
    free(c);
}

bool cluster_lookup(struct cluster *c, const struct digest *d, struct arena *a, struct lookup *out)
{
    struct content_object o;
    char key[CONTENT_KEY_ROOM], hex[DIGEST_HEX + 1];

    if (!c->joined) {
        return false;
    }
    if (!cluster_is_fresh(c)) { /* what this mirror knows may have been collected since */
        (void)!cluster_catch_up(c);
    }
    if (!tree_content_is_object(c->trees, d, &o)) {
        return false;
    }
    content_key(&o, key);
    digest_format(d, hex);
    *out = (struct lookup){.repo = SLICE(CONTENT_REPO),
                           .key = arena_fmt(a, "%s", hex),
                           .class = LOOKUP_IMMUTABLE,
                           .origin = c->origin,
                           .url = arena_fmt(a, "%s%s", origin_url(c->origin), key),
                           .digest_known = true,
                           .digest = *d,
                           .size_bytes = o.size_bytes,
                           .ttl_s = TTL_ORIGIN,
                           .floor_s = FLOOR_NEVER,
                           .sie_s = UINT32_MAX,
                           .hint_end = LENGTH_UNKNOWN};
    return true;
}

int cluster_chunks(struct cluster *c, const struct digest *d, struct buf *out, struct err *e)
{
    return c->joined ? tree_content_chunks(c->trees, d, out, e) : E_NOTFOUND;
}

struct relay *cluster_relay(struct cluster *c)
{
    return c != NULL && c->joined ? c->relay : NULL;
}

struct owners *cluster_owners(struct cluster *c)
{
    return c->owners;
}

bool cluster_signed_poke(struct cluster *c, uint64_t seq, struct slice signature)
{
    return c->poker != NULL && poke_is_ours(c->poker, seq, signature);
}

bool cluster_catch_up(struct cluster *c)
{
    return c->joined && sequencer_catch_up(c->sequencer, LEARN_MS);
}

bool cluster_poke(struct cluster *c, uint64_t seq)
{
    return sequencer_poke(c->sequencer, seq, POKE_WAIT_MS);
}

/* --- into a bucket, and out of it --- */

struct moving {
    struct cluster *cluster;
    int (*on_progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

static int on_moving_progress(void *arg, uint64_t done, uint64_t total)
{
    struct moving *m = arg;

    return m->on_progress(m->arg, done, total);
}

static void on_parted(void *arg)
{
    struct moving *m = arg;

    m->cluster->parted = true;
    m->cluster->joined = false;
}

static int begin_moving(struct cluster *c, struct err *e)
{
    bool busy;

    lock_take(&c->check_lock);
    busy = c->moving || c->ends;
    c->moving = c->moving || !busy;
    lock_drop(&c->check_lock);
    return busy ? err_set(e, E_BUSY, "`cluster adopt` or `cluster leave` is running already") : 0;
}

static void end_moving(struct cluster *c)
{
    lock_take(&c->check_lock);
    c->moving = false;
    cond_signal(&c->check_changed); /* the checker looks whether it is to check */
    lock_drop(&c->check_lock);
}

static int adopt(struct cluster *c, struct moving *m, struct adopted *out, struct err *e)
{
    struct adopt_settings set = {.store = c->store,
                                 .bucket = c->bucket,
                                 .trees = c->trees,
                                 .sequencer = c->sequencer,
                                 .node = c->node,
                                 .boot = c->boot,
                                 .stop = &c->ends,
                                 .on_progress = on_moving_progress,
                                 .arg = m};
    int rc = cluster_check(c, NULL, NULL, e);

    rc = rc != 0 ? rc : adopt_run(&set, out, e);
    if (rc == 0) {
        c->joined = true;
        c->parted = false;
        members_set_state(c->members, MEMBER_READY);
        members_start(c->members);
    }
    return rc;
}

int cluster_adopt(struct cluster *c, int (*on_progress)(void *arg, uint64_t done, uint64_t total),
                  void *arg, struct adopted *out, struct err *e)
{
    struct moving m = {c, on_progress, arg};
    int rc = begin_moving(c, e);

    if (rc != 0) {
        return rc;
    }
    rc = c->joined ? err_set(e, E_EXISTS, "this mirror is one of the cluster already")
                   : adopt(c, &m, out, e);
    end_moving(c);
    if (rc == 0) {
        log_info("cluster.adopted", "bucket=\"%s\" bytes=%" PRIu64 " held_ms=%" PRIu64,
                 bucket_place(c->bucket), out->bytes, out->held_ms);
    }
    return rc;
}

static int leave_local(struct cluster *c, struct moving *m, struct left *out, struct err *e)
{
    struct leave_settings set = {.store = c->store,
                                 .trees = c->trees,
                                 .sequencer = c->sequencer,
                                 .source = &c->blob_source,
                                 .stop = &c->ends,
                                 .on_progress = on_moving_progress,
                                 .on_parted = on_parted,
                                 .arg = m};
    int rc = leave_run(&set, out, e);

    if (!c->joined) {
        members_rest(c->members);
    }
    return rc;
}

int cluster_leave_local(struct cluster *c,
                        int (*on_progress)(void *arg, uint64_t done, uint64_t total), void *arg,
                        struct left *out, struct err *e)
{
    struct moving m = {c, on_progress, arg};
    int rc = begin_moving(c, e);

    if (rc != 0) {
        return rc;
    }
    rc = c->joined ? leave_local(c, &m, out, e)
                   : err_set(e, E_EXISTS, "this mirror stands alone already");
    end_moving(c);
    if (rc == 0) {
        log_info("cluster.parted", "bucket=\"%s\" bytes=%" PRIu64 " held_ms=%" PRIu64,
                 bucket_place(c->bucket), out->bytes, out->held_ms);
    }
    return rc;
}

/* --- a damaged entry --- */

static int check_not_applied(struct cluster *c, uint64_t seq, struct err *e)
{
    struct member *node = mem_array(MEMBERS_MAX + 1, sizeof node[0]);
    size_t n = cluster_nodes(c, node, MEMBERS_MAX + 1);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (node[i].applied >= seq) {
            rc = err_set(e, E_EXISTS,
                         "the mirror %s has applied entry %" PRIu64
                         ": the others start again once it has written a checkpoint (`checkpoint`)",
                         node[i].address[0] != '\0' ? node[i].address : node[i].node, seq);
        }
    }
    free(node);
    return rc;
}

int cluster_void(struct cluster *c, uint64_t seq, struct slice digest, struct void_look *out,
                 struct err *e)
{
    int rc = void_look(c->bucket, seq, out, e);

    rc = rc != 0 ? rc : check_not_applied(c, seq, e);
    if (rc == 0 && digest.n != 0) {
        rc = void_declare(c->bucket, out, digest, e);
        if (rc == 0) {
            log_warn("cluster.void", "entry=%" PRIu64, seq);
        }
    }
    return rc;
}

/* --- status --- */

const char *cluster_state_name(enum cluster_state s)
{
    switch (s) {
    case CLUSTER_UP:
        return "up";
    case CLUSTER_AWAY:
        return "away";
    case CLUSTER_IN_DOUBT:
        return "in doubt";
    case CLUSTER_BROKEN:
        return "broken";
    case CLUSTER_NOT_JOINED:
        return "not joined";
    case CLUSTER_STOPPED:
        break;
    }
    return "stopped";
}

/* Adds the requests of the cache: parts of large files. */
static void add_origin(struct cluster *c, struct cluster_status *out)
{
    struct origin_request_stats up;

    origin_stats(c->origin, &up);
    out->content.fetched += up.requests;
    out->content.fetched_bytes += up.bytes;
    out->content.failed += up.errors;
    out->bucket.received_bytes += up.bytes;
}

void cluster_status(struct cluster *c, struct cluster_status *out)
{
    struct sequencer_status q;
    bool broken;

    sequencer_status(c->sequencer, &q);
    *out = (struct cluster_status){.place = bucket_place(c->bucket),
                                   .why = q.why,
                                   .failures = q.failures,
                                   .since_unix_s = q.since_unix_s,
                                   .format = atomic_load(&c->format),
                                   .applied = q.applied,
                                   .lag_ms = lag_ms(&q),
                                   .commits_waiting = q.waiting};
    out->lag_ms = c->joined ? out->lag_ms : 0;
    out->fresh = cluster_is_fresh(c);
    memcpy(out->node, c->node, sizeof out->node);
    out->member = members_state(c->members);
    out->parted = c->parted;
    bucket_stats(c->bucket, &out->bucket);
    bucket_stats(c->content, &out->bucket);
    tree_content_stats(c->trees, &out->content);
    add_origin(c, out);
    collect_status(c->collect, &out->collect);
    out->hinted = c->hints != NULL;
    if (out->hinted) {
        hints_status(c->hints, &out->hints);
    }
    out->owned = c->owners != NULL;
    if (out->owned) {
        owners_stats(c->owners, &out->owners);
    }
    out->relays = c->relay != NULL;
    if (out->relays) {
        relay_stats(c->relay, &out->relayed);
    }
    lock_take(&c->check_lock);
    out->checked = c->checked;
    broken = c->broken;
    lock_drop(&c->check_lock);
    out->state = !c->joined        ? CLUSTER_NOT_JOINED
                 : q.stopped       ? CLUSTER_STOPPED
                 : broken          ? CLUSTER_BROKEN
                 : q.in_doubt      ? CLUSTER_IN_DOUBT
                 : q.failures != 0 ? CLUSTER_AWAY
                                   : CLUSTER_UP;
}

bool cluster_is_fresh(struct cluster *c)
{
    uint64_t confirmed_ms = sequencer_confirmed_ms(c->sequencer); /* 0: not since the start */

    return !c->joined ||
           (confirmed_ms != 0 && clock_boot_ms() - confirmed_ms <= c->set.stale_after_ms);
}

struct claims *cluster_claims(struct cluster *c)
{
    return c->claims;
}
