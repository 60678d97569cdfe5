/* stock_hosted.c - repositories of our own: trees by type and name, all here, whole. */
#include <inttypes.h>
#include <stdio.h>

#include "server/hub/stock_priv.h"
#include "server/repo/hosted/hub.h"
#include "server/repo/hosted/image.h"
#include "server/repo/hosted/python.h"
#include "server/store/ref.h"

enum { NAME_ROOM = 32 };

static struct store *store_of(const struct stock_view *v)
{
    return v->hub->store;
}

/* --- of any trees ------------------------------------------------------------------------------------------------- */

void stock_count(struct stock_sum *sum, uint64_t size_bytes)
{
    sum->files++;
    sum->files_here++;
    sum->bytes += size_bytes;
    sum->bytes_here += size_bytes;
}

struct walk {
    struct stock_sum *sum;
    size_t below;
    int (*each)(void *arg, const struct stock_file *f);
    void *arg;
};

static int on_entry(void *arg, const struct entry *en)
{
    struct walk *x = arg;
    struct stock_file f;

    if (en->type != ENTRY_FILE) {
        return 0;
    }
    if (x->sum != NULL) {
        stock_count(x->sum, en->size_bytes);
    }
    f = (struct stock_file){.path = slice_from(en->path, x->below),
                            .size_bytes = en->size_bytes,
                            .have_bytes = en->size_bytes,
                            .lfs = true,
                            .sha256 = en->digest,
                            .state = STOCK_WHOLE};
    return x->each != NULL ? x->each(x->arg, &f) : 0;
}

int stock_walk(const struct stock_view *v, const struct digest *root, struct slice folder,
               struct stock_sum *sum, int (*each)(void *arg, const struct stock_file *f), void *arg,
               struct err *e)
{
    struct walk x = {sum, folder.n, each, arg};

    return tree_walk(store_of(v), root, folder, SLICE_NONE, on_entry, &x, e);
}

int stock_no_revision(const struct stock_view *v, struct slice id, struct slice rev, struct err *e)
{
    return err_set(e, E_NOTFOUND,
                   "no revision \"" SLICE_FMT "\" of " SLICE_FMT
                   " in repo %s, see `mirrorctl hf show %s " SLICE_FMT "`",
                   SLICE_ARG(rev), SLICE_ARG(id), v->r->name, v->r->name, SLICE_ARG(id));
}

/* --- repositories ------------------------------------------------------------------------------------------------- */

struct hosted {
    const struct stock_view *v;
    struct slice prefix, tree;
    bool held;
    int (*each_repo)(void *arg, const struct stock_repo *x);
    int (*each_revision)(void *arg, const struct stock_revision *x);
    void *arg;
};

static struct slice repo_of(const struct stock_view *v)
{
    return slice_str(v->r->name);
}

static struct stock_sum sum_of(const struct snap *sn)
{
    return (struct stock_sum){true, sn->entries, sn->bytes, sn->entries, sn->bytes};
}

static int count_snap(void *arg, const struct snap *sn)
{
    (void)sn;
    ++*(uint64_t *)arg;
    return 0;
}

static int on_head(void *arg, struct slice tree, const struct snap *sn)
{
    struct hosted *x = arg;
    char commit[HUB_COMMIT_HEX + 1];
    struct stock_repo out = {
        .kind = STOCK_HOSTED, .id = tree, .sum = sum_of(sn), .cached_bytes = sn->bytes};
    struct err unused;

    out.type = hub_cut_type(&out.id);
    if (image_is_tree(tree) || python_owns(tree) || !stock_shown(out.type, out.id, x->prefix)) {
        return 0;
    }
    hub_commit_id(&sn->root, commit);
    out.commit = slice_str(commit);
    if (snap_list(store_of(x->v), repo_of(x->v), tree, count_snap, &out.revisions, &unused) < 0 ||
        head_held(store_of(x->v), repo_of(x->v), tree, &out.held, &unused) != 0) {
        out.held = false;
    }
    return x->each_repo(x->arg, &out);
}

static int each_repo(const struct stock_view *v, struct slice prefix,
                     int (*each)(void *arg, const struct stock_repo *x), void *arg, struct err *e)
{
    struct hosted x = {.v = v, .prefix = prefix, .each_repo = each, .arg = arg};

    return head_list(store_of(v), repo_of(v), on_head, &x, e);
}

/* --- revisions: main, branches, tags, versions -------------------------------------------------------------------- */

static int tell(const struct hosted *x, struct slice name, bool held, const struct snap *sn)
{
    char commit[HUB_COMMIT_HEX + 1];
    struct stock_revision r = {
        .name = name, .asked_unix_s = sn->created_unix_s, .sum = sum_of(sn), .held = held};

    hub_commit_id(&sn->root, commit);
    r.commit = slice_str(commit);
    return x->each_revision(x->arg, &r);
}

static int on_ref(void *arg, const struct ref *r)
{
    const struct hosted *x = arg;
    struct err unused;
    struct snap sn;

    return snap_get(store_of(x->v), repo_of(x->v), x->tree, r->seq, &sn, &unused) == 0
               ? tell(x, r->name, false, &sn)
               : 0;
}

static int on_snap(void *arg, const struct snap *sn)
{
    const struct hosted *x = arg;
    char version[NAME_ROOM];
    int rc;

    snprintf(version, sizeof version, "v%" PRIu64, sn->seq);
    rc = tell(x, slice_str(version), false, sn);
    return rc == 0 && sn->label[0] != '\0' ? tell(x, slice_str(sn->label), false, sn) : rc;
}

static int find_tree(const struct stock_view *v, struct slice tree, struct snap *live,
                     struct err *e)
{
    int rc = head_get(store_of(v), repo_of(v), tree, live, e);

    return rc == E_NOTFOUND || rc == E_INVALID
               ? err_set(e, E_NOTFOUND, "repo %s has no " SLICE_FMT ", see `mirrorctl hf ls %s`",
                         v->r->name, SLICE_ARG(tree), v->r->name)
               : rc;
}

static int each_revision(const struct stock_view *v, struct slice type, struct slice id,
                         int (*each)(void *arg, const struct stock_revision *x), void *arg,
                         struct err *e)
{
    struct hosted x = {.v = v, .each_revision = each, .arg = arg};
    struct arena a = {0};
    struct snap live;
    int rc;

    x.tree = hub_tree(type, id, &a);
    rc = find_tree(v, x.tree, &live, e);
    if (rc == 0) {
        rc = head_held(store_of(v), repo_of(v), x.tree, &x.held, e);
    }
    if (rc == 0) {
        rc = tell(&x, SLICE("main"), x.held, &live);
    }
    if (rc == 0) {
        rc = ref_list(store_of(v), repo_of(v), x.tree, on_ref, &x, e);
    }
    if (rc == 0) {
        rc = snap_list(store_of(v), repo_of(v), x.tree, on_snap, &x, e);
    }
    arena_fini(&a);
    return rc;
}

static int each_file(const struct stock_view *v, struct slice type, struct slice id,
                     struct slice rev, struct arena *a, struct stock_revision *about,
                     int (*each)(void *arg, const struct stock_file *f), void *arg, struct err *e)
{
    struct slice tree = hub_tree(type, id, a);
    char commit[HUB_COMMIT_HEX + 1];
    struct snap sn;
    int rc = find_tree(v, tree, &sn, e);

    if (rc == 0 && !slice_eqs(rev, "main") &&
        snap_find(store_of(v), repo_of(v), tree, rev, &sn, e) != 0) {
        rc = stock_no_revision(v, id, rev, e);
    }
    if (rc == 0 && slice_eqs(rev, "main")) {
        rc = head_held(store_of(v), repo_of(v), tree, &about->held, e);
    }
    if (rc != 0) {
        return rc;
    }
    hub_commit_id(&sn.root, commit);
    about->name = arena_copy(a, rev);
    about->commit = arena_copy(a, slice_str(commit));
    about->asked_unix_s = sn.created_unix_s;
    about->sum.known = true;
    return stock_walk(v, &sn.root, SLICE(""), &about->sum, each, arg, e);
}

const struct stock_ops stock_hosted = {each_repo, each_revision, each_file};
