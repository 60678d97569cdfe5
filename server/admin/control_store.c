/* Verbs about the store itself and its trees: verify, cache.gc, snapshot.*. */
#include "common/os/clock.h"
#include "server/admin/admin.h"
#include "server/admin/talk.h"
#include "server/store/keep.h"

/* --- verify --- */

struct checking {
    struct talk *t;
    uint64_t told_ms;
};

/* A client that left, or a daemon that stops and hangs up on it, ends the work. */
static bool on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct checking *c = arg;
    uint64_t now_ms = clock_now_ms();

    if (now_ms - c->told_ms < 200) {
        return true;
    }
    c->told_ms = now_ms;
    return talk_progress(c->t, done, total) == 0;
}

static void on_finding(void *arg, const char *what)
{
    struct checking *c = arg;
    struct buf *row = talk_row(c->t);

    jo_str(row, "finding", slice_str(what));
    (void)talk_row_end(c->t);
}

void report_json(const struct verify_report *r, struct buf *out)
{
    jo_u64(out, "blobs", r->blobs);
    jo_u64(out, "bytes", r->bytes);
    jo_u64(out, "orphans", r->orphans);
    jo_u64(out, "damaged", r->damaged);
    jo_u64(out, "missing", r->missing);
    jo_u64(out, "bad_rows", r->bad_rows);
    jo_u64(out, "repaired", r->repaired);
    jo_bool(out, "clean", verify_is_clean(r));
}

int verb_verify(struct talk *t, struct err *e)
{
    struct checking c = {.t = t};
    struct verify_report r = {0};
    int rc = verify_run(t->d->store, talk_flag(t, "deep"), talk_flag(t, "repair"), on_progress,
                        on_finding, &c, &r, e);

    report_json(&r, t->result);
    return rc;
}

/* --- cache.gc --- */

int verb_cache_gc(struct talk *t, struct err *e)
{
    struct gc_report r = {0};
    int rc = gc_run(t->d->store, talk_number(t, "grace_s", 3600), talk_flag(t, "dry_run"), &r, e);

    jo_u64(t->result, "blobs", r.blobs);
    jo_u64(t->result, "bytes", r.bytes);
    jo_u64(t->result, "nodes", r.nodes);
    return rc;
}

/* --- snapshot.* --- */

struct snaps {
    struct talk *t;
    uint64_t head_seq;
};

static void snap_members(struct buf *row, const struct snap *sn)
{
    jo_u64(row, "seq", sn->seq);
    jo_digest(row, "root", &sn->root);
    jo_u64(row, "entries", sn->entries);
    jo_u64(row, "bytes", sn->bytes);
    jo_u64(row, "created_unix_s", sn->created_unix_s);
    jo_str(row, "label", slice_str(sn->label));
}

static int on_head(void *arg, struct slice name, const struct snap *sn)
{
    struct snaps *s = arg;
    struct buf *row = talk_row(s->t);

    jo_str(row, "name", name);
    snap_members(row, sn);
    jo_bool(row, "live", true);
    return talk_row_end(s->t);
}

static int on_snap(void *arg, const struct snap *sn)
{
    struct snaps *s = arg;
    struct buf *row = talk_row(s->t);

    snap_members(row, sn);
    jo_bool(row, "live", sn->seq == s->head_seq);
    return talk_row_end(s->t);
}

int verb_snapshot_ls(struct talk *t, struct err *e)
{
    struct slice repo, name = talk_text(t, "name");
    struct snaps s = {.t = t};
    struct snap head;
    struct repo_set *rs;
    struct repo *r;
    int rc = talk_need_repo(t, &rs, &r, e);

    if (rc != 0) {
        goto out;
    }
    repo = slice_str(r->name);
    if (name.n == 0) {
        rc = head_list(t->d->store, repo, on_head, &s, e);
        goto out;
    }
    rc = head_get(t->d->store, repo, name, &head, e);
    if (rc == 0) {
        s.head_seq = head.seq;
        rc = snap_list(t->d->store, repo, name, on_snap, &s, e);
    }
out:
    repo_set_release(&rs);
    return rc < 0 ? rc : 0;
}

int verb_snapshot_rollback(struct talk *t, struct err *e)
{
    struct slice name, version;
    struct repo_set *rs;
    struct repo *r;
    struct snap sn;
    int rc = talk_need_repo(t, &rs, &r, e);

    if (rc == 0) {
        rc = talk_need(t, "name", &name, e);
    }
    if (rc == 0) {
        rc = talk_need(t, "version", &version, e);
    }
    if (rc == 0) {
        rc = snap_find(t->d->store, slice_str(r->name), name, version, &sn, e);
    }
    if (rc == 0) {
        rc = head_set(t->d->store, slice_str(r->name), name, sn.seq, e);
    }
    if (rc == 0) {
        daemon_repo_changed(t->d, slice_str(r->name));
        snap_members(t->result, &sn);
    }
    repo_set_release(&rs);
    return rc;
}
