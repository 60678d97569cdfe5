#include "server/hub/pinned_branch.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/endian.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/hub/plan_runner.h"
#include "server/repo/hf/hf.h"
#include "server/repo/hosted/hub.h"
#include "server/store/ref.h"

enum { PINNED_KEY_MAX = 2048, COMMIT_HEX = 40, ROW_BYTES = COMMIT_HEX + 8 };

/* --- rows ------------------------------------------------------------------------------------- */

static void row_key(struct buf *out, struct slice repo, struct slice type, struct slice id,
                    struct slice branch)
{
    buf_adds(out, repo);
    buf_byte(out, 0);
    if (type.p != NULL) {
        buf_addf(out, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(type), SLICE_ARG(id));
        buf_byte(out, 0);
        buf_adds(out, branch);
    }
}

struct loading {
    struct slice prefix;
    struct held *to;
};

static int on_pinned_row(void *arg, struct slice key, struct slice value)
{
    struct loading *x = arg;
    struct held_branch b;
    struct slice rest;

    if (!slice_starts(key, x->prefix)) {
        return 1;
    }
    rest = slice_from(key, x->prefix.n);
    b.id = slice_cut(&rest, '\0');
    b.type = slice_cut(&b.id, '/');
    b.branch = rest;
    if (value.n == ROW_BYTES && hf_is_commit(slice_first(value, COMMIT_HEX))) {
        b.commit = slice_first(value, COMMIT_HEX);
        b.since_unix_s = be_get(value.p + COMMIT_HEX, 8);
        held_add(x->to, &b);
    }
    return 0;
}

static int load_pinned_rows(struct store *s, const struct repo *r, struct err *e)
{
    struct buf prefix = BUF_INIT(PINNED_KEY_MAX);
    struct loading x = {.to = held_new()};
    int rc;

    row_key(&prefix, slice_str(r->name), SLICE_NONE, SLICE_NONE, SLICE_NONE);
    x.prefix = buf_slice(&prefix);
    rc = store_scan(s, TABLE_HELD, x.prefix, SLICE_NONE, on_pinned_row, &x, e);
    held_put(r->state, x.to); /* also when it fails: it is freed with the repo */
    buf_free(&prefix);
    return rc < 0 ? rc : 0;
}

int pinned_branch_load(struct store *s, const struct repo_set *rs, struct err *e)
{
    enum inventory_kind k;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < rs->count; i++) {
        if (inventory_kind_of(rs->repo[i], &k) && k == INVENTORY_PULLED) {
            rc = load_pinned_rows(s, rs->repo[i], e);
        }
    }
    return rc;
}

/* --- pulled through --------------------------------------------------------------------------- */

/* commit.p == NULL: released. */
static int put_pinned_row(const struct hub_deps *hub, const struct repo *r, struct slice type,
                          struct slice id, struct slice branch, struct slice commit, struct err *e)
{
    struct buf key = BUF_INIT(PINNED_KEY_MAX);
    struct batch *b = batch_new();
    char value[ROW_BYTES];
    int rc;

    row_key(&key, slice_str(r->name), type, id, branch);
    if (commit.p != NULL) {
        memcpy(value, commit.p, COMMIT_HEX);
        be_put(value + COMMIT_HEX, 8, clock_unix_s());
        batch_put(b, TABLE_HELD, buf_slice(&key), slice_of(value, sizeof value));
    } else {
        batch_del(b, TABLE_HELD, buf_slice(&key));
    }
    lock_take(&hub->lifecycle->reloading);
    rc = store_commit(hub->store, &b, COMMIT_SYNC, e);
    if (rc == 0) {
        struct repo_set *rs = repo_set_hold(hub->repos); /* a reload may have made another of it */
        const struct repo *now = repo_set_find(rs, slice_str(r->name));
        enum inventory_kind k;
        if (now != NULL && inventory_kind_of(now, &k) && k == INVENTORY_PULLED) {
            rc = load_pinned_rows(hub->store, now, e);
        }
        repo_set_release(&rs);
    }
    lock_drop(&hub->lifecycle->reloading);
    repos_changed(hub->repos, slice_str(r->name));
    buf_free(&key);
    return rc;
}

/* Its listing must be here, or come: clients are to be served with it at once. */
static int find_commit(const struct hub_deps *hub, const struct inventory_name *n, struct slice rev,
                       struct pinned_branch_news *out, struct err *e)
{
    struct inventory_view v = {hub, n->repo, true};
    struct inventory_revision about;
    struct arena a = {0};
    struct err unused;
    int rc = inventory_files(&v, n->type, n->id, rev, &a, &about, NULL, NULL, &unused);

    if (rc == 0) {
        snprintf(out->commit, sizeof out->commit, SLICE_FMT, SLICE_ARG(about.commit));
        out->sum = about.sum;
    } else {
        struct plan_runner_commit c;
        struct plan_runner x;
        plan_runner_init(&x, hub, n->repo, SLICE_NONE, &hub->lifecycle->draining);
        rc = plan_runner_list(&x, n->type, n->id, rev, &c, e);
        if (rc == 0) {
            snprintf(out->commit, sizeof out->commit, SLICE_FMT, SLICE_ARG(c.commit));
            /* It may be that nothing of it is here. */
            (void)!inventory_files(&v, n->type, n->id, c.commit, &a, &about, NULL, NULL, &unused);
            out->sum = about.sum;
        }
        plan_runner_fini(&x);
    }
    arena_fini(&a);
    return rc;
}

static int set_pulled(const struct hub_deps *hub, const struct inventory_name *n,
                      struct slice branch, struct slice rev, struct pinned_branch_news *out,
                      struct err *e)
{
    struct inventory_view v = {hub, n->repo, true};
    struct arena a = {0};
    struct err unused;
    struct slice id = n->id;
    int rc;

    if (hf_is_commit(branch)) {
        return err_set(
            e, E_USAGE,
            "a commit never changes and cannot be rolled back; name a branch: ID@BRANCH COMMIT");
    }
    rc = find_commit(hub, n, rev, out, e);
    if (rc == 0 && inventory_id(&v, n->type, n->id, &a, &id, &unused) != 0) {
        id = n->id;
    }
    if (rc == 0) {
        snprintf(out->id, sizeof out->id, SLICE_FMT, SLICE_ARG(id));
        rc = put_pinned_row(hub, n->repo, n->type, id, branch, slice_str(out->commit), e);
    }
    if (rc == 0) {
        log_info("hf.held", "repo=%s id=" SLICE_FMT " branch=" SLICE_FMT " commit=%s",
                 n->repo->name, SLICE_ARG(id), SLICE_ARG(branch), out->commit);
    }
    arena_fini(&a);
    return rc;
}

static int release_pulled(const struct hub_deps *hub, const struct inventory_name *n,
                          struct slice branch, struct err *e)
{
    struct inventory_view v = {hub, n->repo, true};
    const struct held_branch *b;
    struct arena a = {0};
    struct err unused;
    struct slice id = n->id;
    int rc;

    b = held_find(n->repo->state, n->type, n->id, branch);
    if (b == NULL && inventory_id(&v, n->type, n->id, &a, &id, &unused) == 0) {
        b = held_find(n->repo->state, n->type, id, branch);
    }
    rc = b == NULL ? err_set(e, E_NOTFOUND,
                             SLICE_FMT " of " SLICE_FMT " is not held; see `mirrorctl hf show`",
                             SLICE_ARG(branch), SLICE_ARG(n->id))
                   : put_pinned_row(hub, n->repo, b->type, b->id, branch, SLICE_NONE, e);
    arena_fini(&a);
    return rc;
}

/* --- trees ------------------------------------------------------------------------------------ */

struct searching { /* for the newest snapshot that has the commit */
    struct store *s;
    struct slice link; /* "models/org/name@<commit>" */
    struct slice info; /* of the branch's folder */
    struct snap found;
};

static int on_pinned_snap(void *arg, const struct snap *sn)
{
    struct searching *x = arg;
    struct arena a = {0};
    struct entry at, link;
    struct err unused;
    /* The commit's name is a link to a folder: that of this branch? */
    bool same = tree_resolve(x->s, &sn->root, x->link, &a, &link, &unused) == 0 &&
                tree_get(x->s, &sn->root, x->info, &a, &at, &unused) == 0 &&
                slice_eq(link.path, at.path);

    arena_fini(&a);
    if (same) {
        x->found = *sn;
    }
    return same ? 1 : 0;
}

static int find_synced(const struct hub_deps *hub, const struct inventory_name *n,
                       struct slice branch, struct slice rev, struct snap *out, struct err *e)
{
    struct slice repo = slice_str(n->repo->name);
    struct arena a = {0};
    struct searching x = {.s = hub->store};
    int rc;

    if (!hf_is_commit(rev)) { /* "v7", a label */
        return snap_find(hub->store, repo, SLICE(SYNC_TREE), rev, out, e);
    }
    x.link = arena_fmt(&a, SLICE_FMT "/" SLICE_FMT "@" SLICE_FMT "/info.json", SLICE_ARG(n->type),
                       SLICE_ARG(n->id), SLICE_ARG(rev));
    x.info = arena_fmt(&a, SLICE_FMT "/" SLICE_FMT "@" SLICE_FMT "/info.json", SLICE_ARG(n->type),
                       SLICE_ARG(n->id), SLICE_ARG(branch));
    rc = snap_list(hub->store, repo, SLICE(SYNC_TREE), on_pinned_snap, &x, e);
    *out = x.found;
    arena_fini(&a);
    return rc < 0   ? rc
           : rc > 0 ? 0
                    : err_set(e, E_NOTFOUND,
                              "no snapshot of repo %s has " SLICE_FMT
                              " at that commit; see `mirrorctl snapshot ls %s`",
                              n->repo->name, SLICE_ARG(n->id), n->repo->name);
}

static int set_tree(const struct hub_deps *hub, const struct inventory_name *n, struct slice tree,
                    struct slice branch, const struct snap *sn, struct err *e)
{
    struct slice repo = slice_str(n->repo->name);
    struct batch *b = batch_new();
    int rc = slice_eqs(branch, "main") || n->repo->synced
                 ? head_set(hub->store, repo, tree, sn->seq, b, e)
                 : branch_set(hub->store, repo, tree, branch, sn->seq, b, e);

    rc = rc != 0 ? rc : store_commit(hub->store, &b, COMMIT_SYNC, e);
    batch_free(&b);
    repos_changed(hub->repos, repo);
    return rc;
}

int pinned_branch_set(const struct hub_deps *hub, const struct inventory_name *n,
                      struct slice branch, struct slice rev, struct pinned_branch_news *out,
                      struct err *e)
{
    struct arena a = {0};
    enum inventory_kind k;
    struct snap sn;
    int rc;

    *out = (struct pinned_branch_news){0};
    CHECK(inventory_kind_of(n->repo, &k));
    if (k == INVENTORY_PULLED) {
        return set_pulled(hub, n, branch, rev, out, e);
    }
    if (k == INVENTORY_SYNCED) {
        rc = find_synced(hub, n, branch, rev, &sn, e);
        rc = rc != 0 ? rc : set_tree(hub, n, SLICE(SYNC_TREE), branch, &sn, e);
    } else {
        rc = snap_find(hub->store, slice_str(n->repo->name), hub_tree(n->type, n->id, &a), rev, &sn,
                       e);
        rc = rc != 0 ? rc : set_tree(hub, n, hub_tree(n->type, n->id, &a), branch, &sn, e);
    }
    if (rc == 0) {
        hub_commit_id(&sn.root, out->commit);
        out->seq = sn.seq;
        snprintf(out->id, sizeof out->id, SLICE_FMT, SLICE_ARG(n->id));
        if (k == INVENTORY_SYNCED) { /* a Hub's commits have names of their own */
            snprintf(out->commit, sizeof out->commit, SLICE_FMT, SLICE_ARG(rev));
        }
    }
    arena_fini(&a);
    return rc;
}

int pinned_branch_release(const struct hub_deps *hub, const struct inventory_name *n,
                          struct slice branch, struct err *e)
{
    struct slice repo = slice_str(n->repo->name);
    struct arena a = {0};
    enum inventory_kind k;
    int rc;

    CHECK(inventory_kind_of(n->repo, &k));
    if (k == INVENTORY_PULLED) {
        return release_pulled(hub, n, branch, e);
    }
    rc = head_hold(hub->store, repo,
                   k == INVENTORY_SYNCED ? SLICE(SYNC_TREE) : hub_tree(n->type, n->id, &a), false,
                   e);
    arena_fini(&a);
    return rc;
}
