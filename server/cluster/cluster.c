#include "server/cluster/cluster.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/cluster/checkpoint.h"
#include "server/cluster/log_trim.h"
#include "server/cluster/member.h"
#include "server/cluster/poke.h"
#include "server/cluster/sequencer.h"
#include "server/store/batch.h"

/* In TABLE_META. */
#define NODE_KEY    SLICE("cluster node")
#define CLUSTER_KEY SLICE("cluster id")

/* The cache's name for what lies in the bucket. No repository has such a name. */
#define CONTENT_REPO "/cluster"

/* In the bucket, created once. */
#define IDENTITY_KEY "cluster.json"

enum {
    ID_BYTES = 16,
    IDENTITY_BYTES_MAX = 4096,
    ORIGIN_CONNECTIONS = 32,
    ANSWER_MS = 2000,
    KEEP_MS = 5000,                  /* between looks whether a checkpoint is due */
    CHECK_AGAIN_MS = 10 * 60 * 1000, /* after a check that failed */
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
    struct relay *relay;   /* NULL: there is no secret, or no address */
    struct owners *owners; /* or NULL */
    struct claims *claims;
    struct cluster_sequencer *sequencer;
    struct blob_source blob_source;
    char node[2 * ID_BYTES + 1];
    struct collect *collect; /* NULL: not yet */
    pthread_t keeper;
    bool keeps;       /* there is that thread */
    struct lock lock; /* LOCK_CLUSTER; guards what follows, to keeper_ends */
    void (*on_row)(void *arg, enum table t, struct slice key);
    void *on_row_arg;
    int (*make_room)(void *arg, uint64_t n);
    void *make_room_arg;
    struct cond wake; /* of the keeper */
    bool keeper_ends;
    pthread_t checker;
    struct lock check_lock; /* LOCK_LEAF; guards what follows */
    struct cond check_changed;
    bool stopping, checking;
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

    if (n != 0) {
        (void)poke_all(c->poker, other, n, seq);
    }
}

static uint64_t on_applied_asked(void *arg)
{
    struct cluster *c = arg;
    struct sequencer_status q = {0};

    sequencer_status(c->sequencer, &q);
    return q.applied;
}

static int on_blob_wanted(void *arg, const struct digest *d, struct err *e)
{
    struct cluster *c = arg;

    struct err why = {0};
    int rc = tree_content_fetch(c->trees, d, &why);

    /* That is for a person to repair; who reads may come again. */
    return rc == E_DENIED || rc == E_CONFIG ? err_set(e, E_AGAIN, "%.220s", why.text)
                                            : pass_on(rc, &why, e);
}

static bool on_blob_looked_up(void *arg, const struct digest *d, uint64_t *size_bytes)
{
    struct cluster *c = arg;

    return tree_content_has(c->trees, d, size_bytes);
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

/* --- who we are --- */

static uint64_t random_u64(void)
{
    uint64_t n;

    CHECK(getrandom(&n, sizeof n, 0) == (ssize_t)sizeof n);
    return n;
}

static void draw_id(char hex[2 * ID_BYTES + 1])
{
    snprintf(hex, 2 * ID_BYTES + 1, "%016" PRIx64 "%016" PRIx64, random_u64(), random_u64());
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
        draw_id(c->node);
        rc = keep_row(c->store, NODE_KEY, c->node, e);
    }
    buf_free(&row);
    return rc;
}

/* The cluster's id, which the first node of a cluster creates. */
static int read_identity(struct bucket *b, struct buf *out, struct err *e)
{
    struct buf mine = BUF_INIT(IDENTITY_BYTES_MAX);
    char id[2 * ID_BYTES + 1];
    int rc = bucket_get(b, IDENTITY_KEY, out, e);

    if (rc == E_NOTFOUND) {
        draw_id(id);
        buf_addf(&mine, "{\"cluster\": \"%s\", \"format\": 1, \"created\": %" PRIu64 "}\n", id,
                 clock_unix_s());
        rc = bucket_create(b, IDENTITY_KEY, buf_slice(&mine), e);
        rc = rc == 0 || rc == E_EXISTS ? bucket_get(b, IDENTITY_KEY, out, e) : rc;
    }
    buf_free(&mine);
    return rc;
}

static int check_identity(struct cluster *c, struct err *e)
{
    struct buf now = BUF_INIT(IDENTITY_BYTES_MAX), before = BUF_INIT(IDENTITY_BYTES_MAX);
    int rc = read_identity(c->bucket, &now, e);

    if (rc == 0) {
        rc = store_get(c->store, TABLE_META, CLUSTER_KEY, &before, e);
        if (rc == E_NOTFOUND) {
            rc = keep_row(c->store, CLUSTER_KEY, buf_cstr(&now), e);
        } else if (rc == 0 && !slice_eq(buf_slice(&before), buf_slice(&now))) {
            rc = err_set(e, E_CONFIG,
                         "%s is the bucket of another cluster than the one that this mirror "
                         "belongs to; correct the cluster section, or give the mirror a new "
                         "state_dir",
                         bucket_place(c->bucket));
        }
    }
    buf_free(&now);
    buf_free(&before);
    return rc;
}

/* --- checkpoints --- */

static int on_newest(void *arg, const struct checkpoint_found *found)
{
    *(uint64_t *)arg = found->seq;
    return 0;
}

/* One of the mirrors writes them: two would do no harm. */
static bool is_first_member(struct cluster *c)
{
    struct member other[MEMBERS_MAX];
    size_t n = members_others(c->members, other, MEMBERS_MAX);

    for (size_t i = 0; i < n; i++) {
        if (strcmp(other[i].node, c->node) < 0) {
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
    if (q.applied < *newest + c->set.checkpoint_entries || !is_first_member(c)) {
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

/* --- collection --- */

static bool on_first_asked(void *arg)
{
    return is_first_member(arg);
}

static bool on_alive_asked(void *arg, const char *node)
{
    struct cluster *c = arg;
    struct member other[MEMBERS_MAX];
    size_t n = members_others(c->members, other, MEMBERS_MAX);

    for (size_t i = 0; i < n; i++) {
        if (strcmp(other[i].node, node) == 0) {
            return true;
        }
    }
    return false;
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
                                           .applied = on_applied_asked,
                                           .all_applied = on_all_applied_asked,
                                           .checkpoint = on_checkpoint_wanted,
                                           .sweep_places = on_sweep_wanted,
                                           .reads_back = on_reads_back_asked};
    struct collect_settings set = {.store = c->store,
                                   .bucket = c->content,
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

static void stop_collect(struct cluster *c)
{
    struct collect *collect;

    lock_take(&c->lock);
    collect = c->collect;
    c->collect = NULL;
    lock_drop(&c->lock);
    collect_close(&collect);
}

int cluster_collect(struct cluster *c, bool dry, collect_progress *progress, void *arg,
                    struct collect_report *out, struct err *e)
{
    return collect_run(c->collect, dry, progress, arg, out, e);
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
    void (*step)(void *arg, const struct probe_step *s);
    void *arg;
    enum probe_check reached;
    const char *what; /* the same */
};

static void on_step(void *arg, const struct probe_step *s)
{
    struct check *k = arg;
    struct cluster *c = k->cluster;

    k->reached = s->check;
    k->what = s->what;
    if (s->rc != 0 && s->rc != E_CANCELLED) {
        log_error("cluster.probe", "step=\"%s\" why=\"%s\"", s->what, s->why->text);
    } else if (s->rc == 0 && s->why->code != 0) {
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

static void refuse_changes(struct cluster *c, const struct err *why)
{
    struct err refusal = {0};

    err_set(&refusal, E_AGAIN,
            "the cluster's bucket lets a key be created twice, so nothing can be changed until "
            "that is repaired and `mirrorctl cluster check` passes (%.100s)",
            why->text);
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
    rc = probe_run(c->bucket, random_u64(), on_step, k, &why);
    lock_take(&c->check_lock);
    was_broken = c->broken;
    note_check(c, k, clock_now_ms() - began_ms, rc, &why);
    is_broken = c->broken;
    lock_drop(&c->check_lock);
    if (is_broken && !was_broken && c->sequencer != NULL) {
        refuse_changes(c, &why);
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
    struct check k = {.cluster = c, .step = step, .arg = arg};

    return check_bucket(&k, e);
}

/* Under check_lock. True: a check is due. */
static bool wait_for_check(struct cluster *c)
{
    uint64_t now_ms = clock_now_ms();

    if (c->checking || c->broken || c->set.check_ms == 0) {
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
    struct check k = {.cluster = c};

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
    int rc = cluster_check(c, NULL, NULL, e);

    rc = rc != 0 ? rc : check_identity(c, e);
    if (rc == 0) {
        log_info("cluster.joined", "bucket=\"%s\" node=%s", bucket_place(c->bucket), c->node);
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
        .boot = random_u64(), .poll_ms = c->set.poll_ms, .ops = &ops, .arg = c};

    if (!slice_hex(slice_str(c->node), set.node, LOG_ENTRY_NODE_BYTES)) {
        return err_set(e, E_CORRUPT, "the row of this node's id cannot be decoded");
    }
    return sequencer_start(c->store, c->bucket, &set, &c->sequencer, e);
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
                                   .boot = random_u64(),
                                   .gone_s = c->set.takeover_s,
                                   .applied = on_applied_asked,
                                   .arg = c};

    snprintf(set.self.node, sizeof set.self.node, "%s", c->node);
    snprintf(set.self.address, sizeof set.self.address, "%s",
             c->set.address != NULL ? c->set.address : "");
    snprintf(set.self.version, sizeof set.self.version, "%s", MIRROR_VERSION);
    set.self.weight = c->set.weight;
    return members_open(&set);
}

int cluster_open(const struct cluster_settings *set, struct store *s, struct cluster **out,
                 struct err *e)
{
    struct cluster *c = NEW(struct cluster);
    int rc;

    *out = NULL;
    c->set = *set;
    c->store = s;
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
    c->blob_source = (struct blob_source){on_blob_wanted, on_blob_looked_up, on_node_looked_up, c};
    store_set_blob_source(s, &c->blob_source);
    rc = open_sequencer(c, e);
    if (rc != 0) {
        store_set_blob_source(s, NULL);
        cluster_close(&c);
        return rc;
    }
    c->members = open_members(c);
    c->relay = set->secret != NULL && set->address != NULL
                   ? relay_open(set->secret, c->node, c->members)
                   : NULL;
    if (set->secret != NULL) {
        c->owners =
            owners_open(c->members, c->node, set->address != NULL ? set->weight : 0, set->secret);
    }
    c->claims = claims_open(s, c->members, c->node, set->address != NULL ? set->address : c->node);
    c->keeper = thread_start("keeper", run_keeper, c);
    c->keeps = true;
    c->checker = thread_start("cluster-check", run_checker, c);
    open_collect(c);
    *out = c;
    return 0;
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

void cluster_stop(struct cluster *c)
{
    if (c == NULL || c->sequencer == NULL) {
        return;
    }
    cluster_on_row(c, NULL, NULL);
    cluster_on_full(c, NULL, NULL);
    if (answers_now(c)) {
        members_leave(c->members);
    }
    tree_content_interrupt(c->trees);
    collect_interrupt(c->collect);
    bucket_interrupt(c->content);
    bucket_interrupt(c->bucket);
    stop_keeper(c);
    stop_checker(c);
    sequencer_stop(c->sequencer);
    stop_collect(c);
    members_leave(c->members);
}

void cluster_close(struct cluster **cp)
{
    struct cluster *c = *cp;

    *cp = NULL;
    if (c == NULL) {
        return;
    }
    claims_close(&c->claims);
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

struct relay *cluster_relay(struct cluster *c)
{
    return c != NULL ? c->relay : NULL;
}

struct owners *cluster_owners(struct cluster *c)
{
    return c->owners;
}

bool cluster_signed_poke(struct cluster *c, uint64_t seq, struct slice signature)
{
    return c->poker != NULL && poke_is_ours(c->poker, seq, signature);
}

bool cluster_poke(struct cluster *c, uint64_t seq)
{
    return sequencer_poke(c->sequencer, seq, POKE_WAIT_MS);
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
                                   .applied = q.applied,
                                   .lag_ms = lag_ms(&q),
                                   .commits_waiting = q.waiting};
    out->fresh = out->lag_ms <= c->set.stale_after_ms;
    memcpy(out->node, c->node, sizeof out->node);
    out->member = members_state(c->members);
    bucket_stats(c->bucket, &out->bucket);
    bucket_stats(c->content, &out->bucket);
    tree_content_stats(c->trees, &out->content);
    add_origin(c, out);
    collect_status(c->collect, &out->collect);
    lock_take(&c->check_lock);
    out->checked = c->checked;
    broken = c->broken;
    lock_drop(&c->check_lock);
    out->state = q.stopped         ? CLUSTER_STOPPED
                 : broken          ? CLUSTER_BROKEN
                 : q.in_doubt      ? CLUSTER_IN_DOUBT
                 : q.failures != 0 ? CLUSTER_AWAY
                                   : CLUSTER_UP;
}

bool cluster_is_fresh(struct cluster *c)
{
    return clock_boot_ms() - sequencer_confirmed_ms(c->sequencer) <= c->set.stale_after_ms;
}

struct claims *cluster_claims(struct cluster *c)
{
    return c->claims;
}
