/* Verbs about what is kept: cache.*, verify, snapshot.*. */
#include "common/os/clock.h"
#include "server/admin/talk.h"
#include "server/store/keep.h"

static void json_hex(struct buf *out, const char *key, const struct digest *d)
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    jo_str(out, key, slice_str(hex));
}

static int need_repo(struct talk *t, struct slice *name, struct err *e)
{
    struct repo_set *rs = NULL;
    int rc = talk_need(t, "repo", name, e);

    if (rc != 0) {
        return rc;
    }
    rs = repo_set_hold(t->d);
    if (repo_set_find(rs, *name) == NULL) {
        rc = err_set(e, E_NOTFOUND, "there is no repo \"" SLICE_FMT "\", see `mirrorctl repo ls`",
                     SLICE_ARG(*name));
    }
    repo_set_release(&rs);
    return rc;
}

/* --- cache.* --- */

struct listing {
    struct talk *t;
    uint64_t most, rows, bytes;
};

static int on_object(void *arg, const struct object_info *o)
{
    struct listing *l = arg;
    struct buf *row;

    l->bytes += o->size_bytes;
    if (l->rows++ >= l->most) {
        return 1;
    }
    row = talk_row(l->t);
    jo_str(row, "repo", o->repo);
    jo_str(row, "key", o->key);
    jo_u64(row, "status", (uint64_t)o->status);
    jo_u64(row, "size", o->size_bytes);
    if (!digest_is_zero(&o->digest)) {
        json_hex(row, "sha256", &o->digest);
    }
    jo_u64(row, "stored_unix_s", o->stored_unix_s);
    jo_u64(row, "fresh_until_unix_s", o->fresh_until_unix_s);
    return talk_row_end(l->t);
}

int verb_cache_ls(struct talk *t, struct err *e)
{
    struct listing l = {.t = t, .most = talk_number(t, "limit", 1000)};
    struct slice repo;
    int rc = need_repo(t, &repo, e);

    if (rc == 0) {
        rc = cache_list(t->d->cache, repo, talk_text(t, "prefix"), on_object, &l, e);
    }
    if (rc >= 0) {
        jo_bool(t->result, "more", l.rows > l.most);
    }
    return rc < 0 ? rc : 0;
}

int verb_cache_stats(struct talk *t, struct err *e)
{
    struct store_space sp;
    struct cache_stats st;

    (void)e;
    store_space(t->d->store, &sp);
    cache_stats(t->d->cache, &st);
    jo_u64(t->result, "used", sp.used_bytes);
    jo_u64(t->result, "quota", sp.quota_bytes);
    jo_u64(t->result, "small", sp.small_bytes);
    jo_u64(t->result, "staged", sp.staged_bytes);
    jo_u64(t->result, "free", sp.disk_free_bytes);
    jo_u64(t->result, "blobs", sp.blobs);
    jo_bool(t->result, "full", sp.full);
    jo_u64(t->result, "hits", st.hits);
    jo_u64(t->result, "misses", st.misses);
    jo_u64(t->result, "collapsed", st.collapsed);
    jo_u64(t->result, "revalidated", st.revalidated);
    jo_u64(t->result, "stale", st.stale);
    jo_u64(t->result, "negative", st.negative);
    jo_u64(t->result, "failed", st.failed);
    jo_u64(t->result, "fills", st.fills);
    jo_u64(t->result, "fill_bytes", st.fill_bytes);
    jo_u64(t->result, "verify_failures", st.verify_failures);
    jo_u64(t->result, "evicted_blobs", st.evicted_blobs);
    jo_u64(t->result, "evicted_bytes", st.evicted_bytes);
    return 0;
}

/* A scope is a repo, or a repo, '/' and the beginning of keys. */
static int need_scope(struct talk *t, struct slice *scope, struct err *e)
{
    struct repo_set *rs;
    struct slice rest;
    int rc = talk_need(t, "scope", scope, e);

    if (rc != 0) {
        return rc;
    }
    rest = *scope;
    rs = repo_set_hold(t->d);
    if (repo_set_find(rs, slice_cut(&rest, '/')) == NULL) {
        rc = err_set(e, E_NOTFOUND,
                     "\"" SLICE_FMT "\" begins with no repo's name, a scope is REPO or "
                     "REPO/PREFIX, see `mirrorctl repo ls`",
                     SLICE_ARG(*scope));
    }
    repo_set_release(&rs);
    return rc;
}

int verb_cache_pin(struct talk *t, struct err *e)
{
    struct slice scope;
    int rc = need_scope(t, &scope, e);

    return rc != 0 ? rc : pin_set(t->d->store, scope, SLICE("mirrorctl"), e);
}

int verb_cache_unpin(struct talk *t, struct err *e)
{
    struct slice scope;
    int rc = talk_need(t, "scope", &scope, e); /* its repo may be gone from the configuration */

    return rc != 0 ? rc : pin_clear(t->d->store, scope, e);
}

static int on_pin(void *arg, struct slice scope, struct slice owner)
{
    struct buf *row = talk_row(arg);

    jo_str(row, "scope", scope);
    jo_str(row, "owner", owner);
    return talk_row_end(arg);
}

int verb_cache_pins(struct talk *t, struct err *e)
{
    int rc = pin_list(t->d->store, on_pin, t, e);

    return rc < 0 ? rc : 0;
}

int verb_cache_rm(struct talk *t, struct err *e)
{
    struct slice scope, repo, rest;
    uint64_t removed = 0;
    int rc = need_scope(t, &scope, e);

    if (rc != 0) {
        return rc;
    }
    rest = scope;
    repo = slice_cut(&rest, '/');
    if (rest.n == 0 && !talk_flag(t, "all")) {
        return err_set(e, E_USAGE,
                       "\"" SLICE_FMT "\" is a whole repo, all of it would be fetched again, give "
                       "REPO/PREFIX or say --all",
                       SLICE_ARG(scope));
    }
    if (talk_flag(t, "dry_run")) {
        struct listing l = {.t = t, .most = UINT64_MAX};
        rc = cache_list(t->d->cache, repo, rest, on_object, &l, e);
        jo_u64(t->result, "removed", 0);
        jo_u64(t->result, "would_remove", l.rows);
        return rc < 0 ? rc : 0;
    }
    rc = cache_remove(t->d->cache, repo, rest, &removed, e);
    daemon_repo_changed(t->d, repo);
    jo_u64(t->result, "removed", removed);
    return rc;
}

int verb_cache_gc(struct talk *t, struct err *e)
{
    struct gc_report r = {0};
    int rc = gc_run(t->d->store, talk_number(t, "grace_s", 3600), talk_flag(t, "dry_run"), &r, e);

    jo_u64(t->result, "blobs", r.blobs);
    jo_u64(t->result, "bytes", r.bytes);
    jo_u64(t->result, "nodes", r.nodes);
    return rc;
}

/* --- verify --- */

struct checking {
    struct talk *t;
    uint64_t told_ms;
};

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct checking *c = arg;
    uint64_t now_ms = clock_now_ms();

    if (now_ms - c->told_ms >= 200) {
        c->told_ms = now_ms;
        talk_progress(c->t, done, total);
    }
}

static void on_finding(void *arg, const char *what)
{
    struct checking *c = arg;
    struct buf *row = talk_row(c->t);

    jo_str(row, "finding", slice_str(what));
    (void)talk_row_end(c->t);
}

int verb_verify(struct talk *t, struct err *e)
{
    struct checking c = {.t = t};
    struct verify_report r = {0};
    int rc = verify_run(t->d->store, talk_flag(t, "deep"), talk_flag(t, "repair"), on_progress,
                        on_finding, &c, &r, e);

    jo_u64(t->result, "blobs", r.blobs);
    jo_u64(t->result, "bytes", r.bytes);
    jo_u64(t->result, "orphans", r.orphans);
    jo_u64(t->result, "damaged", r.damaged);
    jo_u64(t->result, "missing", r.missing);
    jo_u64(t->result, "bad_rows", r.bad_rows);
    jo_u64(t->result, "repaired", r.repaired);
    jo_bool(t->result, "clean", r.damaged + r.missing + r.bad_rows <= r.repaired);
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
    json_hex(row, "root", &sn->root);
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
    int rc = need_repo(t, &repo, e);

    if (rc == 0 && name.n == 0) {
        rc = head_list(t->d->store, repo, on_head, &s, e);
    } else if (rc == 0) {
        rc = head_get(t->d->store, repo, name, &head, e);
        if (rc == 0) {
            s.head_seq = head.seq;
            rc = snap_list(t->d->store, repo, name, on_snap, &s, e);
        }
    }
    return rc < 0 ? rc : 0;
}

int verb_snapshot_rollback(struct talk *t, struct err *e)
{
    struct slice repo, name, version;
    struct snap sn;
    int rc = need_repo(t, &repo, e);

    if (rc == 0) {
        rc = talk_need(t, "name", &name, e);
    }
    if (rc == 0) {
        rc = talk_need(t, "version", &version, e);
    }
    if (rc == 0) {
        rc = snap_find(t->d->store, repo, name, version, &sn, e);
    }
    if (rc == 0) {
        rc = head_set(t->d->store, repo, name, sn.seq, e);
    }
    if (rc == 0) {
        daemon_repo_changed(t->d, repo);
        snap_members(t->result, &sn);
    }
    return rc;
}
