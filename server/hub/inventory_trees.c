/* inventory_trees.c - repositories in trees, which are complete here: a synced repo's tree
 * (repo/hf/synced.h) with a folder for each revision, and hosted repositories, a tree each. */
#include "server/hub/inventory_priv.h"

#include <inttypes.h>
#include <stdio.h>

#include "server/repo/hf/info.h"
#include "server/repo/hf/synced.h"
#include "server/repo/hosted/hub.h"
#include "server/repo/hosted/image.h"
#include "server/repo/hosted/python.h"
#include "server/store/ref.h"

enum { NAME_ROOM = 32 };
enum { DOC_BYTES = 64 << 20 };

static struct store *store_of(const struct inventory_view *v)
{
    return v->hub->store;
}

/* --- of all trees ----------------------------------------------------------------------------- */

/* One that is here. */
static void count_file(struct inventory_sum *sum, uint64_t size_bytes)
{
    sum->files++;
    sum->files_here++;
    sum->bytes += size_bytes;
    sum->bytes_here += size_bytes;
}

struct walk {
    struct inventory_sum *sum;
    size_t below;
    int (*each)(void *arg, const struct inventory_file *f);
    void *arg;
};

static int on_inventory_entry(void *arg, const struct entry *en)
{
    struct walk *x = arg;
    struct inventory_file f;

    if (en->type != ENTRY_FILE) {
        return 0;
    }
    if (x->sum != NULL) {
        count_file(x->sum, en->size_bytes);
    }
    f = (struct inventory_file){.path = slice_from(en->path, x->below),
                                .size_bytes = en->size_bytes,
                                .have_bytes = en->size_bytes,
                                .lfs = true,
                                .sha256 = en->digest,
                                .state = INVENTORY_WHOLE};
    return x->each != NULL ? x->each(x->arg, &f) : 0;
}

/* The files below a folder ("" or with its '/'); sum: they are counted there, or NULL. */
static int walk_files(const struct inventory_view *v, const struct digest *root,
                      struct slice folder, struct inventory_sum *sum,
                      int (*each)(void *arg, const struct inventory_file *f), void *arg,
                      struct err *e)
{
    struct walk x = {sum, folder.n, each, arg};

    return tree_walk(store_of(v), root, folder, SLICE_NONE, on_inventory_entry, &x, e);
}

static int no_revision(const struct inventory_view *v, struct slice id, struct slice rev,
                       struct err *e)
{
    return err_set(e, E_NOTFOUND,
                   "no revision \"" SLICE_FMT "\" of " SLICE_FMT
                   " in repo %s; see `mirrorctl hf show %s " SLICE_FMT "`",
                   SLICE_ARG(rev), SLICE_ARG(id), v->r->name, v->r->name, SLICE_ARG(id));
}

/* --- hosted: repositories --------------------------------------------------------------------- */

struct hosted {
    const struct inventory_view *v;
    struct slice prefix, tree;
    bool held;
    int (*each_repo)(void *arg, const struct inventory_repo *x);
    int (*each_revision)(void *arg, const struct inventory_revision *x);
    void *arg;
};

static struct slice repo_of_view(const struct inventory_view *v)
{
    return slice_str(v->r->name);
}

static struct inventory_sum sum_of(const struct snap *sn)
{
    return (struct inventory_sum){true, sn->entries, sn->bytes, sn->entries, sn->bytes};
}

static int count_snap(void *arg, const struct snap *sn)
{
    (void)sn;
    ++*(uint64_t *)arg;
    return 0;
}

static int on_inventory_head(void *arg, struct slice tree, const struct snap *sn)
{
    struct hosted *x = arg;
    char commit[HUB_COMMIT_HEX + 1];
    struct inventory_repo out = {
        .kind = INVENTORY_HOSTED, .id = tree, .sum = sum_of(sn), .cached_bytes = sn->bytes};
    struct err unused;

    out.type = hub_cut_type(&out.id);
    if (image_is_tree(tree) || python_owns(tree) || !inventory_shown(out.type, out.id, x->prefix)) {
        return 0;
    }
    hub_commit_id(&sn->root, commit);
    out.commit = slice_str(commit);
    if (snap_list(store_of(x->v), repo_of_view(x->v), tree, count_snap, &out.revisions, &unused) <
            0 ||
        head_held(store_of(x->v), repo_of_view(x->v), tree, &out.held, &unused) != 0) {
        out.held = false;
    }
    return x->each_repo(x->arg, &out);
}

static int hosted_repos(const struct inventory_view *v, struct slice prefix,
                        int (*each)(void *arg, const struct inventory_repo *x), void *arg,
                        struct err *e)
{
    struct hosted x = {.v = v, .prefix = prefix, .each_repo = each, .arg = arg};

    return head_list(store_of(v), repo_of_view(v), on_inventory_head, &x, e);
}

/* --- hosted: revisions, main, branches, tags, versions ---------------------------------------- */

static int emit_inventory_repo(const struct hosted *x, struct slice name, bool held,
                               const struct snap *sn)
{
    char commit[HUB_COMMIT_HEX + 1];
    struct inventory_revision r = {
        .name = name, .asked_unix_s = sn->created_unix_s, .sum = sum_of(sn), .held = held};

    hub_commit_id(&sn->root, commit);
    r.commit = slice_str(commit);
    return x->each_revision(x->arg, &r);
}

static int on_inventory_ref(void *arg, const struct ref *r)
{
    const struct hosted *x = arg;
    struct err unused;
    struct snap sn;

    return snap_get(store_of(x->v), repo_of_view(x->v), x->tree, r->seq, &sn, &unused) == 0
               ? emit_inventory_repo(x, r->name, false, &sn)
               : 0;
}

static int on_inventory_snap(void *arg, const struct snap *sn)
{
    const struct hosted *x = arg;
    char version[NAME_ROOM];
    int rc;

    snprintf(version, sizeof version, "v%" PRIu64, sn->seq);
    rc = emit_inventory_repo(x, slice_str(version), false, sn);
    return rc == 0 && sn->label[0] != '\0' ? emit_inventory_repo(x, slice_str(sn->label), false, sn)
                                           : rc;
}

static int find_tree(const struct inventory_view *v, struct slice tree, struct snap *live,
                     struct err *e)
{
    int rc = head_get(store_of(v), repo_of_view(v), tree, live, e);

    return rc == E_NOTFOUND || rc == E_INVALID
               ? err_set(e, E_NOTFOUND, "repo %s has no " SLICE_FMT "; see `mirrorctl hf ls %s`",
                         v->r->name, SLICE_ARG(tree), v->r->name)
               : rc;
}

static int hosted_revisions(const struct inventory_view *v, struct slice type, struct slice id,
                            int (*each)(void *arg, const struct inventory_revision *x), void *arg,
                            struct err *e)
{
    struct hosted x = {.v = v, .each_revision = each, .arg = arg};
    struct arena a = {0};
    struct snap live;
    int rc;

    x.tree = hub_tree(type, id, &a);
    rc = find_tree(v, x.tree, &live, e);
    rc = rc != 0 ? rc : head_held(store_of(v), repo_of_view(v), x.tree, &x.held, e);
    rc = rc != 0 ? rc : emit_inventory_repo(&x, SLICE("main"), x.held, &live);
    rc = rc != 0 ? rc : ref_list(store_of(v), repo_of_view(v), x.tree, on_inventory_ref, &x, e);
    rc = rc != 0 ? rc : snap_list(store_of(v), repo_of_view(v), x.tree, on_inventory_snap, &x, e);
    arena_fini(&a);
    return rc;
}

static int hosted_files(const struct inventory_view *v, struct slice type, struct slice id,
                        struct slice rev, struct arena *a, struct inventory_revision *about,
                        int (*each)(void *arg, const struct inventory_file *f), void *arg,
                        struct err *e)
{
    struct slice tree = hub_tree(type, id, a);
    char commit[HUB_COMMIT_HEX + 1];
    struct snap sn;
    int rc = find_tree(v, tree, &sn, e);

    if (rc == 0 && !slice_eqs(rev, "main") &&
        snap_find(store_of(v), repo_of_view(v), tree, rev, &sn, e) != 0) {
        rc = no_revision(v, id, rev, e);
    }
    if (rc == 0 && slice_eqs(rev, "main")) {
        rc = head_held(store_of(v), repo_of_view(v), tree, &about->held, e);
    }
    if (rc != 0) {
        return rc;
    }
    hub_commit_id(&sn.root, commit);
    about->name = arena_copy(a, rev);
    about->commit = arena_copy(a, slice_str(commit));
    about->asked_unix_s = sn.created_unix_s;
    about->sum.known = true;
    return walk_files(v, &sn.root, SLICE(""), &about->sum, each, arg, e);
}

const struct inventory_ops inventory_hosted = {hosted_repos, hosted_revisions, hosted_files, NULL};

/* --- synced: folders of a tree ---------------------------------------------------------------- */

struct folder {        /* "models/org/name@main/" and what is below it */
    struct slice path; /* with its '/' */
    struct slice type, id, rev;
    struct digest info;
    bool has_info;
    struct inventory_sum sum;
};

/* The folder of a path in a snapshot; false: it is in none. Slices of path; the revision as the
 * tree writes it. */
static bool read_folder(struct slice path, struct folder *out)
{
    struct slice rest = path;

    *out = (struct folder){.type = slice_cut(&rest, '/')};
    out->id = slice_cut(&rest, '@');
    out->rev = slice_cut(&rest, '/');
    out->path = slice_first(path, path.n - rest.n);
    return rest.n != 0 && hf_is_id(out->id) && out->rev.n != 0;
}

/* "%2F" and "%25" are all that hf_folder() writes so. */
static struct slice plain_rev(struct arena *a, struct slice rev)
{
    char *out = arena_alloc(a, rev.n + 1);
    size_t n = 0;

    for (size_t i = 0; i < rev.n; i++) {
        bool escaped = rev.p[i] == '%' && i + 2 < rev.n;
        out[n++] = escaped ? (rev.p[i + 2] == '5' ? '%' : '/') : rev.p[i];
        i += escaped ? 2 : 0;
    }
    return slice_of(out, n);
}

static struct slice commit_of(const struct inventory_view *v, struct arena *a,
                              const struct folder *f)
{
    struct buf made = BUF_INIT(2 * (size_t)DOC_BYTES), doc = BUF_INIT(DOC_BYTES);
    struct slice commit = SLICE("");
    struct repo_info info;

    if (f->has_info && blob_read_whole(store_of(v), &f->info, &doc, NULL) == 0 &&
        info_make(buf_slice(&doc), &made, NULL) == 0 && info_read(buf_slice(&made), &info)) {
        commit = arena_copy(a, info.commit);
    }
    buf_free(&doc);
    buf_free(&made);
    return commit;
}

struct folders { /* walked in order: one after the other */
    const struct inventory_view *v;
    struct arena *a;
    struct folder at; /* under way; path.n == 0: none */
    int (*each)(void *arg, const struct folder *f, struct slice commit);
    void *arg;
    int rc;
};

static int end_folder(struct folders *x)
{
    struct folder f = x->at;

    x->at = (struct folder){0};
    if (f.path.n == 0) {
        return 0;
    }
    f.rev = plain_rev(x->a, f.rev);
    return x->each(x->arg, &f, commit_of(x->v, x->a, &f));
}

static int on_tree_entry(void *arg, const struct entry *en)
{
    struct folders *x = arg;
    struct slice below;
    struct folder f;

    if (en->type != ENTRY_FILE || !read_folder(en->path, &f)) {
        return 0;
    }
    if (!slice_eq(f.path, x->at.path)) {
        x->rc = end_folder(x);
        if (x->rc != 0) {
            return x->rc;
        }
        (void)read_folder(arena_copy(x->a, en->path), &x->at);
        x->at.sum.known = true;
    }
    below = slice_from(en->path, f.path.n);
    if (slice_eqs(below, "info.json")) {
        x->at.has_info = true;
        x->at.info = en->digest;
    } else if (slice_starts(below, SLICE("files/"))) {
        count_file(&x->at.sum, en->size_bytes);
    }
    return 0;
}

/* prefix: of paths in the tree. A repo that has published nothing yet has no folders. */
static int each_folder(const struct inventory_view *v, struct slice prefix, struct arena *a,
                       int (*each)(void *arg, const struct folder *f, struct slice commit),
                       void *arg, struct snap *sn, struct err *e)
{
    struct folders x = {.v = v, .a = a, .each = each, .arg = arg};
    int rc = head_get(store_of(v), slice_str(v->r->name), SLICE(SYNC_TREE), sn, e);

    if (rc == E_NOTFOUND) {
        *sn = (struct snap){0};
        return 0;
    }
    rc = rc != 0 ? rc : tree_walk(store_of(v), &sn->root, prefix, SLICE_NONE, on_tree_entry, &x, e);
    return rc != 0 ? rc : end_folder(&x);
}

struct synced_repos {
    const struct inventory_view *v;
    struct slice prefix;
    struct inventory_repo at;
    int (*each)(void *arg, const struct inventory_repo *x);
    void *arg;
};

static int end_repo(struct synced_repos *x)
{
    struct inventory_repo at = x->at;

    x->at = (struct inventory_repo){0};
    return at.id.n != 0 && inventory_shown(at.type, at.id, x->prefix) ? x->each(x->arg, &at) : 0;
}

static int on_repo_folder(void *arg, const struct folder *f, struct slice commit)
{
    struct synced_repos *x = arg;
    int rc = 0;

    if (!slice_eq(f->id, x->at.id) || !slice_eq(f->type, x->at.type)) {
        rc = end_repo(x);
        x->at = (struct inventory_repo){.kind = INVENTORY_SYNCED, .type = f->type, .id = f->id};
    }
    if (x->at.revisions == 0 || slice_eqs(f->rev, "main")) {
        x->at.commit = commit;
        x->at.sum = f->sum;
    }
    x->at.revisions++;
    x->at.cached_bytes += f->sum.bytes;
    return rc;
}

static int synced_repos(const struct inventory_view *v, struct slice prefix,
                        int (*each)(void *arg, const struct inventory_repo *x), void *arg,
                        struct err *e)
{
    struct synced_repos x = {.v = v, .prefix = prefix, .each = each, .arg = arg};
    struct arena a = {0};
    struct snap sn;
    int rc = each_folder(v, SLICE(""), &a, on_repo_folder, &x, &sn, e);

    rc = rc != 0 ? rc : end_repo(&x);
    arena_fini(&a);
    return rc;
}

struct synced_revisions {
    struct inventory_revision *at; /* NULL: each is reported; else the one found */
    struct slice rev;              /* the one that is looked for */
    struct slice path;
    unsigned count;
    uint64_t made_unix_s;
    bool held;
    int (*each)(void *arg, const struct inventory_revision *x);
    void *arg;
};

static int on_revision_folder(void *arg, const struct folder *f, struct slice commit)
{
    struct synced_revisions *x = arg;
    struct inventory_revision r = {.name = f->rev,
                                   .commit = commit,
                                   .sum = f->sum,
                                   .asked_unix_s = x->made_unix_s,
                                   .held = x->held};

    x->count++;
    if (x->at == NULL) {
        return x->each(x->arg, &r);
    }
    if (x->path.n == 0 &&
        (slice_eq(f->rev, x->rev) || (x->rev.n >= 7 && slice_starts(commit, x->rev)))) {
        *x->at = r;
        x->path = f->path;
    }
    return 0;
}

static int each_synced_revision(const struct inventory_view *v, struct slice type, struct slice id,
                                struct synced_revisions *x, struct arena *a, struct snap *sn,
                                struct err *e)
{
    struct slice prefix = arena_fmt(a, SLICE_FMT "/" SLICE_FMT "@", SLICE_ARG(type), SLICE_ARG(id));
    struct err unused;
    int rc = head_held(store_of(v), slice_str(v->r->name), SLICE(SYNC_TREE), &x->held, &unused);

    if (rc == 0 && head_get(store_of(v), slice_str(v->r->name), SLICE(SYNC_TREE), sn, e) == 0) {
        x->made_unix_s = sn->created_unix_s;
    }
    rc = each_folder(v, prefix, a, on_revision_folder, x, sn, e);
    if (rc == 0 && x->count == 0) {
        rc = err_set(e, E_NOTFOUND,
                     SLICE_FMT " is not in the published tree of repo %s, whose settings list what "
                               "it keeps; see `mirrorctl hf ls`",
                     SLICE_ARG(id), v->r->name);
    }
    return rc;
}

static int synced_revisions(const struct inventory_view *v, struct slice type, struct slice id,
                            int (*each)(void *arg, const struct inventory_revision *x), void *arg,
                            struct err *e)
{
    struct synced_revisions x = {.each = each, .arg = arg};
    struct arena a = {0};
    struct snap sn = {0};
    int rc = each_synced_revision(v, type, id, &x, &a, &sn, e);

    arena_fini(&a);
    return rc;
}

static int synced_files(const struct inventory_view *v, struct slice type, struct slice id,
                        struct slice rev, struct arena *a, struct inventory_revision *about,
                        int (*each)(void *arg, const struct inventory_file *f), void *arg,
                        struct err *e)
{
    struct synced_revisions x = {.at = about, .rev = rev};
    struct snap sn = {0};
    int rc = each_synced_revision(v, type, id, &x, a, &sn, e);

    if (rc == 0 && x.path.n == 0) {
        rc = no_revision(v, id, rev, e);
    }
    if (rc == 0) {
        struct slice files = arena_fmt(a, SLICE_FMT "files/", SLICE_ARG(x.path));
        rc = walk_files(v, &sn.root, files, NULL, each, arg, e);
    }
    return rc;
}

const struct inventory_ops inventory_synced = {synced_repos, synced_revisions, synced_files, NULL};
