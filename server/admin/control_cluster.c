/* Verbs about the cluster of which this mirror is one: cluster.status, cluster.nodes,
 * cluster.drain, cluster.adopt, cluster.leave, cluster.check. */
#include <stdlib.h>
#include <time.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/admin/admin.h"
#include "server/admin/sample.h"
#include "server/admin/talk.h"
#include "server/admin/trouble.h"
#include "server/upload/upload.h"

/* --- cluster.status --- */

static uint64_t sum_of_requests(const struct bucket_stats *b, enum bucket_result first)
{
    uint64_t sum = 0;

    for (size_t m = 0; m < BUCKET_METHODS; m++) {
        for (size_t r = first; r < BUCKET_RESULTS; r++) {
            sum += b->requests[m][r];
        }
    }
    return sum;
}

static void private_members(const struct cluster_status *c, struct buf *out)
{
    jwrite_str(out, "why", c->why.code != 0 ? c->why.text : "");
    jwrite_str(out, "bucket", c->place);
    jwrite_str(out, "node", c->node);
    jwrite_str(out, "check", c->checked.step == NULL ? "passed" : c->checked.why.text);
}

static void collect_members(const struct collect_status *c, bool whole, struct buf *out)
{
    if (whole) {
        jwrite_str(out, "collection",
                   c->why.code != 0            ? c->why.text
                   : !c->known                 ? "none yet"
                   : c->last.ended_unix_s == 0 ? "running"
                                               : "");
    }
    jwrite_u64(out, "collected_unix_s", c->last.ended_unix_s);
    jwrite_u64(out, "condemned", c->waiting);
    jwrite_u64(out, "condemned_bytes", c->waiting_bytes);
}

/* Whole: the error may name hosts. */
static void hint_members(const struct cluster_status *c, bool whole, struct buf *out)
{
    const struct hints_status *h = &c->hints;

    if (!c->hinted) {
        return;
    }
    jwrite_str(out, "hints", h->up ? "up" : whole && h->why.code != 0 ? h->why.text : "away");
    jwrite_u64(out, "hints_since_unix_s", h->since_unix_s);
    jwrite_u64(out, "hints_sent", h->sent);
    jwrite_u64(out, "hints_received", h->received);
}

void cluster_members(const struct sample *s, bool whole, struct buf *out)
{
    const struct cluster_status *c = &s->cluster;

    jwrite_str(out, "state", cluster_state_name(c->state));
    if (whole) {
        private_members(c, out);
    }
    jwrite_str(out, "member", member_state_name(c->member));
    jwrite_u64(out, "checked_unix_s", c->checked.at_unix_s);
    jwrite_u64(out, "since_unix_s", c->since_unix_s);
    jwrite_u64(out, "format", c->format);
    jwrite_u64(out, "entries", c->applied);
    jwrite_u64(out, "lag_ms", c->lag_ms);
    jwrite_bool(out, "fresh", c->fresh);
    jwrite_u64(out, "commits_waiting", c->commits_waiting);
    jwrite_u64(out, "uploads", c->content.uploads);
    jwrite_u64(out, "uploaded", c->content.uploaded);
    jwrite_u64(out, "uploaded_bytes", c->content.uploaded_bytes);
    jwrite_u64(out, "fetches", c->content.fetches);
    jwrite_u64(out, "fetched", c->content.fetched);
    jwrite_u64(out, "fetched_bytes", c->content.fetched_bytes);
    jwrite_u64(out, "fetches_failed", c->content.failed);
    jwrite_u64(out, "requests", sum_of_requests(&c->bucket, BUCKET_OK));
    jwrite_u64(out, "requests_failed", sum_of_requests(&c->bucket, BUCKET_BUSY));
    collect_members(&c->collect, whole, out);
    hint_members(c, whole, out);
    jwrite_u64(out, "sent_bytes", c->bucket.sent_bytes);
    jwrite_u64(out, "received_bytes", c->bucket.received_bytes);
}

int verb_cluster_status(struct talk *t, struct err *e)
{
    struct sample s;

    (void)e;
    sample_take(t->deps, &s);
    if (s.clustered) {
        cluster_members(&s, true, t->result);
        trouble_json(&s, true, "cluster", t->result);
    } else {
        jwrite_str(t->result, "state", "alone");
    }
    sample_drop(&s);
    return 0;
}

/* --- cluster.nodes --- */

static const char *state_of_node(const struct member *x)
{
    return x->alive || x->state == MEMBER_LEFT ? member_state_name(x->state) : "silent";
}

static void member_row(struct talk *t, const struct member *x, bool this, uint64_t newest)
{
    struct buf *row = talk_row(t);

    jwrite_str(row, "id", x->node);
    jwrite_bool(row, "this", this);
    jwrite_str(row, "address", x->address);
    jwrite_str(row, "version", x->version);
    jwrite_u64(row, "format", x->format);
    jwrite_str(row, "state", state_of_node(x));
    jwrite_u64(row, "weight", x->weight);
    jwrite_u64(row, "applied", x->applied);
    jwrite_u64(row, "behind", newest - x->applied);
    jwrite_u64(row, "silent_s", x->silent_s);
}

int verb_cluster_nodes(struct talk *t, struct err *e)
{
    struct member *node;
    uint64_t newest = 0;
    size_t n;
    int rc = 0;

    (void)e;
    if (t->deps->cluster == NULL) {
        jwrite_bool(t->result, "alone", true);
        return 0;
    }
    node = mem_array(MEMBERS_MAX + 1, sizeof node[0]);
    n = cluster_nodes(t->deps->cluster, node, MEMBERS_MAX + 1);
    for (size_t i = 0; i < n; i++) {
        newest = max_u64(newest, node[i].applied);
    }
    for (size_t i = 0; rc == 0 && i < n; i++) {
        member_row(t, &node[i], i == 0, newest);
        rc = talk_row_flush(t);
    }
    free(node);
    return rc;
}

void cluster_nodes_json(struct cluster *c, struct buf *out)
{
    struct member *node = mem_array(MEMBERS_MAX + 1, sizeof node[0]);
    size_t n = cluster_nodes(c, node, MEMBERS_MAX + 1);

    jwrite_open(out, NULL, '{');
    jwrite_open(out, "nodes", '[');
    for (size_t i = 0; i < n; i++) {
        if (node[i].alive) {
            jwrite_open(out, NULL, '{');
            jwrite_str(out, "id", node[i].node);
            jwrite_str(out, "address", node[i].address);
            jwrite_str(out, "state", member_state_name(node[i].state));
            jwrite_u64(out, "weight", node[i].weight);
            jwrite_close(out, '}');
        }
    }
    jwrite_close(out, ']');
    jwrite_close(out, '}');
    free(node);
}

/* --- cluster.drain --- */

enum { LOOK_MS = 200, NOTICE_MS = 5000, DRAIN_MS = 60000 };

/* What would be cut off by a stop. */
static size_t under_way(const struct talk *t)
{
    struct cluster_status c;

    cluster_status(t->deps->cluster, &c);
    return uploads_under_way(t->deps->hub->uploads) + c.commits_waiting;
}

/* Balancers choose this mirror until they look again: notice_ms is for them. */
static int wait_for_uploads(struct talk *t, uint64_t notice_ms, uint64_t limit_ms, struct err *e)
{
    const struct timespec look = {.tv_nsec = LOOK_MS * 1000000L};
    uint64_t now_ms = clock_now_ms(), noticed_ms = now_ms + notice_ms, end_ms = now_ms + limit_ms;
    size_t most = under_way(t), left = most;

    while (t->deps->lifecycle->leaving &&
           (clock_now_ms() < noticed_ms || (left != 0 && clock_now_ms() < end_ms))) {
        if (talk_progress(t, most - min_u64(most, left), most) != 0) {
            return err_set(e, E_CANCELLED, "the client left; the mirror goes on leaving");
        }
        nanosleep(&look, NULL);
        left = under_way(t);
        most = max_u64(most, left);
    }
    if (!t->deps->lifecycle->leaving) {
        return err_set(e, E_CANCELLED, "the drain was taken back; the mirror stays");
    }
    return left == 0 ? 0
                     : err_set(e, E_TIMEOUT,
                               "%zu %s not ended; the mirror is leaving, and still answers them: "
                               "wait again, or stop it",
                               left, left == 1 ? "upload has" : "uploads have");
}

static int drain_node(struct talk *t, struct err *e)
{
    struct lifecycle *l = t->deps->lifecycle;
    int rc;

    l->leaving = true;
    cluster_leave(t->deps->cluster);
    cluster_let_know(t->deps->cluster); /* so no other mirror begins an upload here any more */
    log_info("cluster.leaving", "uploads=%zu", under_way(t));
    rc = wait_for_uploads(t, talk_number(t, "notice_ms", NOTICE_MS),
                          talk_number(t, "timeout_ms", DRAIN_MS), e);
    if (rc == 0) {
        cluster_withdraw(t->deps->cluster);
        cluster_let_know(t->deps->cluster);
        log_info("cluster.left", "node may be stopped");
    }
    return rc;
}

int verb_cluster_drain(struct talk *t, struct err *e)
{
    if (t->deps->cluster == NULL) {
        return err_set(e, E_UNSUPPORTED,
                       "this mirror stands alone, so there is nothing to leave; stop it");
    }
    if (talk_flag(t, "off")) {
        t->deps->lifecycle->leaving = false;
        cluster_serve(t->deps->cluster);
        log_info("cluster.stays", "node serves again");
        return 0;
    }
    return drain_node(t, e);
}

/* --- cluster.adopt, cluster.leave --- */

static int on_moved(void *arg, uint64_t done, uint64_t total)
{
    struct talk *t = arg;

    return talk_left(t) ? 1 : talk_progress(t, done, total);
}

static int has_cluster(const struct talk *t, struct err *e)
{
    return t->deps->cluster != NULL
               ? 0
               : err_set(e, E_CONFIG,
                         "this mirror runs without a cluster section; add one to its configuration "
                         "and restart it: until the repositories are moved, it serves and stores "
                         "as before");
}

int verb_cluster_adopt(struct talk *t, struct err *e)
{
    struct cluster_status c;
    struct adopted done;
    int rc = has_cluster(t, e);

    rc = rc != 0 ? rc : cluster_adopt(t->deps->cluster, on_moved, t, &done, e);
    if (rc == 0) {
        cluster_status(t->deps->cluster, &c);
        jwrite_str(t->result, "bucket", c.place);
        jwrite_u64(t->result, "uploaded_bytes", done.bytes);
        jwrite_u64(t->result, "held_ms", done.held_ms);
    }
    return rc;
}

int verb_cluster_leave(struct talk *t, struct err *e)
{
    struct left done;
    int rc = has_cluster(t, e);

    rc = rc != 0 ? rc : cluster_leave_local(t->deps->cluster, on_moved, t, &done, e);
    if (rc == 0) {
        jwrite_u64(t->result, "fetched_bytes", done.bytes);
        jwrite_u64(t->result, "held_ms", done.held_ms);
    }
    return rc;
}

/* --- cluster.void --- */

void void_members(const struct void_look *look, bool declared, struct buf *out)
{
    char damaged[DIGEST_HEX + 1];

    digest_format(&look->damaged, damaged);
    jwrite_u64(out, "entry", look->seq);
    jwrite_str(out, "sha256", damaged);
    jwrite_u64(out, "bytes", look->size_bytes);
    jwrite_bool(out, "followed", look->followed);
    jwrite_bool(out, "declared", declared);
}

int verb_cluster_void(struct talk *t, struct err *e)
{
    struct slice digest = talk_text(t, "sha256");
    struct void_look look;
    int rc = has_cluster(t, e);

    rc =
        rc != 0 ? rc : cluster_void(t->deps->cluster, talk_number(t, "entry", 0), digest, &look, e);
    if (rc == 0) {
        void_members(&look, digest.n != 0, t->result);
    }
    return rc;
}

/* --- cluster.check --- */

static void on_check_step(void *arg, const struct probe_step *s)
{
    struct talk *t = arg;
    struct buf *row = talk_row(t);

    jwrite_str(row, "step", s->what);
    jwrite_bool(row, "ok", s->rc == 0);
    jwrite_u64(row, "took_ms", s->took_ms);
    jwrite_str(row, "why", s->why->code != 0 ? s->why->text : "");
    (void)talk_row_flush(t); /* once begun, a check is finished: its result is kept */
}

int verb_cluster_check(struct talk *t, struct err *e)
{
    struct cluster_status c;

    if (t->deps->cluster == NULL) {
        jwrite_bool(t->result, "alone", true);
        return 0;
    }
    cluster_status(t->deps->cluster, &c);
    jwrite_str(t->result, "bucket", c.place);
    return cluster_check(t->deps->cluster, on_check_step, t, e);
}
