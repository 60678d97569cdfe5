/* land.c - what was fetched becomes a snapshot: built, judged, published or parked. */
#include <inttypes.h>
#include <stdio.h>

#include "common/os/clock.h"
#include "common/os/crash.h"
#include "server/sync/build.h"
#include "server/sync/closure.h"
#include "server/sync/gate.h"
#include "server/sync/retain.h"
#include "server/sync/run_priv.h"
#include "server/sync/trace.h"

static struct slice repo_of(const struct run *r)
{
    return slice_str(r->job->repo);
}

/* A snapshot that waits; plain: its root before we put anything of ours in, by which it is known again. Without a head there is nothing to compare with: then it is a failure. */
static int park(struct run *r, const struct built *b, const struct digest *plain,
                const struct err *reason, struct err *e)
{
    struct batch *batch = batch_new();
    struct snap sn;
    int rc;

    if (r->head.seq == 0) {
        batch_free(&batch);
        return err_set(e, E_REFUSED, "%s", reason->text);
    }
    if (r->state.held_seq != 0 && digest_eq(&r->state.held_root, plain)) {
        sn.seq = r->state.held_seq; /* as the last time */
        rc = 0;
        batch_free(&batch);
    } else {
        uint64_t old = r->state.held_seq;
        rc = head_park(r->world.store, repo_of(r), SLICE(SYNC_TREE), &b->root, b->entries, b->bytes,
                       clock_unix_s(), batch, &sn, e);
        if (rc == 0) {
            snap_note_time(batch, repo_of(r), SLICE(SYNC_TREE), &sn, r->top_mtime_ns);
            r->state.held_seq = sn.seq;
            r->state.held_root = *plain;
            sync_state_put(batch, repo_of(r), &r->state);
            crash_point("sync.park");
            rc = store_commit(r->world.store, &batch, COMMIT_SYNC, e);
            crash_point("sync.parked");
        }
        batch_free(&batch);
        if (rc == 0 && old != 0) {
            (void)!snap_remove(r->world.store, repo_of(r), SLICE(SYNC_TREE), old, NULL);
        }
    }
    if (rc == 0) {
        lock_take(&r->lock);
        r->look.outcome = RUN_HELD;
        r->look.seq = sn.seq;
        r->look.root = b->root;
        snprintf(r->look.why, sizeof r->look.why, "%s", reason->text);
        lock_drop(&r->lock);
        run_say(r, "held: %s; v%" PRIu64 " waits for `mirrorctl sync approve %s`", reason->text,
                sn.seq, r->job->repo);
    }
    return rc;
}

int run_put_state(struct run *r, struct err *e)
{
    struct batch *b = batch_new();

    sync_state_put(b, repo_of(r), &r->state);
    return store_commit(r->world.store, &b, COMMIT_LAZY, e);
}

void run_outcome(struct run *r, enum run_outcome o, uint64_t seq, const struct digest *root)
{
    lock_take(&r->lock);
    r->look.outcome = o;
    r->look.seq = seq;
    r->look.root = *root;
    lock_drop(&r->lock);
}

static void note_success(struct run *r, uint64_t seq)
{
    r->state.failures = 0;
    r->state.last_ok_unix_s = clock_unix_s();
    r->state.cursor_seq = seq;
    r->state.cursor_bytes = r->cursor_bytes;
    memcpy(r->state.cursor, r->cursor, r->cursor_bytes);
}

/* What waited is overtaken: forgotten, unless it is live now. */
static void drop_held(struct run *r, uint64_t held)
{
    if (held != 0) {
        (void)!snap_remove(r->world.store, repo_of(r), SLICE(SYNC_TREE), held, NULL);
    }
}

static int move_head(struct run *r, const struct built *b, struct err *e)
{
    const bool fresh = r->head.seq == 0;
    struct batch *batch = batch_new();
    uint64_t held = r->state.held_seq;
    struct snap sn;
    int rc =
        head_publish(r->world.store, repo_of(r), SLICE(SYNC_TREE), &b->root, b->entries, b->bytes,
                     fresh ? NULL : &r->head.root, false, clock_unix_s(), batch, &sn, e);

    if (rc == 0) {
        snap_note_time(batch, repo_of(r), SLICE(SYNC_TREE), &sn, r->top_mtime_ns);
        note_success(r, sn.seq);
        r->state.held_seq = 0;
        sync_state_put(batch, repo_of(r), &r->state);
        crash_point("sync.publish");
        rc = store_commit(r->world.store, &batch, COMMIT_SYNC, e);
        crash_point("sync.published");
    }
    batch_free(&batch);
    if (rc != 0) {
        return rc;
    }
    run_outcome(r, RUN_PUBLISHED, sn.seq, &b->root);
    r->world.on_published(r->world.arg, repo_of(r));
    run_say(r, "published v%" PRIu64 ": %" PRIu64 " entries, %" PRIu64 " bytes", sn.seq, b->entries,
            b->bytes);
    drop_held(r, held);
    return 0;
}

static int settle_unchanged(struct run *r, const struct built *b, struct err *e)
{
    uint64_t held = r->state.held_seq;
    int rc;

    note_success(r, r->head.seq);
    r->state.held_seq = 0;
    run_outcome(r, RUN_UNCHANGED, r->head.seq, &b->root);
    run_say(r, "unchanged: v%" PRIu64 " stays", r->head.seq);
    rc = run_put_state(r, e);
    if (rc == 0) {
        drop_held(r, held);
        rc = build_settle(&r->plan, e);
    }
    return rc;
}

static int check_closure(struct run *r, const struct built *b, struct err *e)
{
    struct closure_want w = {.store = r->world.store,
                             .root = &b->root,
                             .profile = profile_of(r->job->conf),
                             .sift = r->sift,
                             .say = run_say_of,
                             .arg = r};
    struct closure_report seen = {0};
    int rc;

    if (w.profile == NULL) {
        return 0;
    }
    rc = closure_check(&w, &seen, e);
    r->open_gates += rc == E_AGAIN;
    if (rc == 0) {
        run_say(r,
                "closure: %" PRIu64 " indexes name %" PRIu64 " files, all are there, and %" PRIu64
                " that are not wanted; %" PRIu64 " indexes or links could not be read",
                seen.indexes, seen.files, seen.unwanted, seen.unread);
    }
    return rc;
}

/* The run has published: that older ones stay longer than they should is no failure of it. */
static void let_go(struct run *r)
{
    struct err e = {0};
    uint64_t gone = 0;

    if (retain_run(r->world.store, repo_of(r), r->job->conf, r->state.held_seq, &gone, &e) != 0) {
        run_say(r, "older snapshots stay: %s", e.text);
    }
    if (gone != 0) {
        run_say(r, "%" PRIu64 " older snapshots are forgotten", gone);
        r->world.on_published(r->world.arg, repo_of(r)); /* "@v7" may lead nowhere now */
        r->world.collect(r->world.arg);
    }
}

/* Who told the root has told every bit of the tree: what differs is not what the upstream has published, unless we left
 * something out. */
static int check_root(const struct run *r, const struct built *b, struct err *e)
{
    if (!r->root_told || r->sifted != 0 || digest_eq(&b->root, &r->told_root)) {
        return 0;
    }
    return r->look.kept != 0
               ? err_set(e, E_CHANGED, "%" PRIu64 " files of the tree could not be had",
                         r->look.kept)
               : err_set(e, E_PROTOCOL,
                         "the upstream's entries do not make the tree that it named");
}

struct unwanted {
    struct sift *sift;
    uint64_t n;
};

static int count_unwanted(void *arg, const struct entry *en)
{
    struct unwanted *u = arg;

    u->n += !sift_wants_old(u->sift, en);
    return 0;
}

/* What the settings exclude now was taken away by who wrote them, not by the upstream: it is judged without. */
static int judge(struct run *r, const struct gate_limit *limit, struct err *reason, struct err *e)
{
    struct unwanted u = {.sift = r->sift};
    uint64_t listed = roster_count(r->roster), before = r->head.entries;
    int rc = gate_judge(limit, before, listed, r->plan.gone, reason);

    if (rc != E_REFUSED || r->sift == NULL || listed == 0 || r->head.seq == 0) {
        return rc;
    }
    rc = tree_walk(r->world.store, &r->head.root, SLICE(""), SLICE_NONE, count_unwanted, &u, e);
    if (rc != 0 || u.n == 0) {
        return rc != 0 ? rc : E_REFUSED;
    }
    run_say(r, "%" PRIu64 " published entries are not wanted any more", u.n);
    err_clear(reason);
    return gate_judge(limit, before - min_u64(before, u.n), listed,
                      r->plan.gone - min_u64(r->plan.gone, u.n), reason);
}

int run_land(struct run *r, struct err *e)
{
    struct gate_limit limit = {0};
    struct err reason = {0};
    struct digest plain;
    struct built b;
    bool held = false, traced = false;
    int rc;

    run_at(r, RUN_VERIFY);
    if (r->job->conf->max_delete != NULL && !gate_limit_parse(r->job->conf->max_delete, &limit)) {
        return err_set(e, E_CONFIG, "max_delete does not read");
    }
    rc = build_tree(&r->plan, r->keep_gone, &b, e);
    if (rc == 0) {
        rc = check_root(r, &b, e);
    }
    if (rc != 0) {
        return rc;
    }
    crash_point("sync.built");
    plain = b.root;
    rc = trace_is_there(&r->plan, r->job->conf, &traced, e);
    if (rc == 0 && traced && r->head.seq != 0 && digest_eq(&b.root, &r->head.root)) {
        return settle_unchanged(r, &b, e);
    }
    if (rc == 0 && r->job->conf->trace != NULL) {
        rc = trace_add(&r->plan, r->job->conf, &r->look, &b, e);
    }
    if (rc != 0) {
        return rc;
    }
    run_at(r, RUN_GATE);
    rc = check_closure(r, &b, e);
    if (rc != 0) {
        return rc;
    }
    rc = judge(r, &limit, &reason, e);
    if (rc == 0 && r->head.seq != 0) {
        rc = head_held(r->world.store, repo_of(r), SLICE(SYNC_TREE), &held, e);
        if (rc == 0 && held) {
            rc = err_set(&reason, E_REFUSED, "this repo is held, because you rolled it back");
        }
    }
    if (rc == 0 && r->doubt[0] != '\0') {
        rc = err_set(&reason, E_REFUSED, "%s", r->doubt);
    }
    crash_point("sync.gate");
    if (rc == E_REFUSED) {
        return park(r, &b, &plain, &reason, e);
    }
    run_at(r, RUN_PUBLISH);
    if (rc == 0) {
        rc = move_head(r, &b, e);
    }
    if (rc == 0) {
        rc = build_settle(&r->plan, e);
    }
    crash_point("sync.settled");
    if (rc == 0) {
        let_go(r);
    }
    crash_point("sync.done");
    return rc;
}
