/* stock_trees.c - repositories that lie in trees: those that a sync keeps (repo/hf/synced.h), and those of our own. All that is
 * known of them is here, whole. */
#include <inttypes.h>
#include <stdlib.h>

#include "server/hub/stock_priv.h"
#include "server/repo/hf/info.h"
#include "server/repo/hf/synced.h"
#include "server/repo/hosted/hub.h"
#include "server/store/ref.h"

enum { DOC_BYTES = 64 << 20, PATH_BYTES = 8192, NAME_ROOM = 32 };

static struct store *store_of(const struct stock_view *v)
{
    return v->d->store;
}

static void count_file(struct stock_sum *sum, const struct entry *en)
{
    sum->files++;
    sum->files_here++;
    sum->bytes += en->size_bytes;
    sum->bytes_here += en->size_bytes;
}

static struct stock_file file_of(const struct entry *en, size_t below)
{
    return (struct stock_file){.path = slice_from(en->path, below),
                               .size_bytes = en->size_bytes,
                               .have_bytes = en->size_bytes,
                               .lfs = true,
                               .sha256 = en->digest,
                               .state = STOCK_WHOLE};
}

/* ================================================================== synced ==== */

struct folder {        /* "models/org/name@main/" and what is below it */
    struct slice path; /* with its '/' */
    struct slice type, id, rev;
    struct digest info;
    bool has_info;
    struct stock_sum sum;
};

/* The folder of a path in a snapshot; false: it is in none. Slices of path; the revision as the tree writes it. */
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

static struct slice commit_of(const struct stock_view *v, struct arena *a, const struct folder *f)
{
    struct buf made = BUF_INIT(2 * (size_t)DOC_BYTES), doc = BUF_INIT(DOC_BYTES);
    struct slice commit = SLICE("");
    struct repo_info info;
    struct blob *b = NULL;
    struct err unused;
    char *to = NULL;

    if (f->has_info && blob_open(store_of(v), &f->info, &b, &unused) == 0) {
        to = blob_size_bytes(b) < DOC_BYTES ? buf_room(&doc, (size_t)blob_size_bytes(b)) : NULL;
    }
    if (to != NULL && blob_read(b, 0, to, (size_t)blob_size_bytes(b), &unused) == 0) {
        buf_grew(&doc, (size_t)blob_size_bytes(b));
        if (info_make(buf_slice(&doc), &made, &unused) == 0 && info_read(buf_slice(&made), &info)) {
            commit = arena_copy(a, info.commit);
        }
    }
    blob_release(&b);
    buf_free(&doc);
    buf_free(&made);
    return commit;
}

struct folders { /* walked in order: one after the other */
    const struct stock_view *v;
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
        count_file(&x->at.sum, en);
    }
    return 0;
}

/* prefix: of paths in the tree. A repo that has published nothing yet has no folders. */
static int each_folder(const struct stock_view *v, struct slice prefix, struct arena *a,
                       int (*each)(void *arg, const struct folder *f, struct slice commit),
                       void *arg, struct snap *sn, struct err *e)
{
    struct folders x = {.v = v, .a = a, .each = each, .arg = arg};
    int rc = head_get(store_of(v), slice_str(v->r->name), SLICE(SYNC_TREE), sn, e);

    if (rc == E_NOTFOUND) {
        *sn = (struct snap){0};
        return 0;
    }
    if (rc == 0) {
        rc = tree_walk(store_of(v), &sn->root, prefix, SLICE_NONE, on_tree_entry, &x, e);
    }
    return rc == 0 ? end_folder(&x) : rc;
}

struct synced_repos {
    const struct stock_view *v;
    struct slice prefix;
    struct stock_repo at;
    int (*each)(void *arg, const struct stock_repo *x);
    void *arg;
};

static int end_repo(struct synced_repos *x)
{
    struct stock_repo at = x->at;

    x->at = (struct stock_repo){0};
    return at.id.n != 0 && stock_shown(at.type, at.id, x->prefix) ? x->each(x->arg, &at) : 0;
}

static int on_repo_folder(void *arg, const struct folder *f, struct slice commit)
{
    struct synced_repos *x = arg;
    int rc = 0;

    if (!slice_eq(f->id, x->at.id) || !slice_eq(f->type, x->at.type)) {
        rc = end_repo(x);
        x->at = (struct stock_repo){.kind = STOCK_SYNCED, .type = f->type, .id = f->id};
    }
    if (x->at.revisions == 0 || slice_eqs(f->rev, "main")) {
        x->at.commit = commit;
        x->at.sum = f->sum;
    }
    x->at.revisions++;
    x->at.cached_bytes += f->sum.bytes;
    return rc;
}

static int synced_repos(const struct stock_view *v, struct slice prefix,
                        int (*each)(void *arg, const struct stock_repo *x), void *arg,
                        struct err *e)
{
    struct synced_repos x = {.v = v, .prefix = prefix, .each = each, .arg = arg};
    struct arena a = {0};
    struct snap sn;
    int rc = each_folder(v, SLICE(""), &a, on_repo_folder, &x, &sn, e);

    rc = rc == 0 ? end_repo(&x) : rc;
    arena_fini(&a);
    return rc;
}

struct synced_revisions {
    struct stock_revision *at; /* NULL: told, else found */
    struct slice rev;          /* the one that is looked for */
    struct slice path;
    unsigned count;
    uint64_t made_unix_s;
    bool held;
    int (*each)(void *arg, const struct stock_revision *x);
    void *arg;
};

static int on_revision_folder(void *arg, const struct folder *f, struct slice commit)
{
    struct synced_revisions *x = arg;
    struct stock_revision r = {.name = f->rev,
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

static int each_synced_revision(const struct stock_view *v, struct slice type, struct slice id,
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
                     SLICE_FMT " is not in what repo %s has published, its settings list what it "
                               "keeps, see `mirrorctl hf ls`",
                     SLICE_ARG(id), v->r->name);
    }
    return rc;
}

static int synced_revisions(const struct stock_view *v, struct slice type, struct slice id,
                            int (*each)(void *arg, const struct stock_revision *x), void *arg,
                            struct err *e)
{
    struct synced_revisions x = {.each = each, .arg = arg};
    struct arena a = {0};
    struct snap sn = {0};
    int rc = each_synced_revision(v, type, id, &x, &a, &sn, e);

    arena_fini(&a);
    return rc;
}

struct tree_files {
    struct stock_sum *sum; /* NULL: it is known */
    size_t below;
    int (*each)(void *arg, const struct stock_file *f);
    void *arg;
};

static int on_tree_file(void *arg, const struct entry *en)
{
    struct tree_files *x = arg;
    struct stock_file f;

    if (en->type != ENTRY_FILE) {
        return 0;
    }
    if (x->sum != NULL) {
        count_file(x->sum, en);
    }
    f = file_of(en, x->below);
    return x->each != NULL ? x->each(x->arg, &f) : 0;
}

static int no_revision(const struct stock_view *v, struct slice id, struct slice rev, struct err *e)
{
    return err_set(e, E_NOTFOUND,
                   "no revision \"" SLICE_FMT "\" of " SLICE_FMT
                   " in repo %s, see `mirrorctl hf show %s " SLICE_FMT "`",
                   SLICE_ARG(rev), SLICE_ARG(id), v->r->name, v->r->name, SLICE_ARG(id));
}

static int synced_files(const struct stock_view *v, struct slice type, struct slice id,
                        struct slice rev, struct arena *a, struct stock_revision *about,
                        int (*each)(void *arg, const struct stock_file *f), void *arg,
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
        struct tree_files w = {.below = files.n, .each = each, .arg = arg};
        rc = tree_walk(store_of(v), &sn.root, files, SLICE_NONE, on_tree_file, &w, e);
    }
    return rc;
}

const struct stock_ops stock_synced = {synced_repos, synced_revisions, synced_files};

/* ================================================================== hosted ==== */

struct hosted {
    const struct stock_view *v;
    struct slice prefix;
    struct slice tree;
    uint64_t live_seq;
    bool held;
    uint64_t count;
    int (*each_repo)(void *arg, const struct stock_repo *x);
    int (*each_revision)(void *arg, const struct stock_revision *x);
    void *arg;
};

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
    struct slice repo = slice_str(x->v->r->name);
    char commit[HUB_COMMIT_HEX + 1];
    struct stock_repo out = {
        .kind = STOCK_HOSTED, .id = tree, .sum = sum_of(sn), .cached_bytes = sn->bytes};
    struct err unused;

    out.type = hub_cut_type(&out.id);
    if (!stock_shown(out.type, out.id, x->prefix)) {
        return 0;
    }
    hub_commit_id(&sn->root, commit);
    out.commit = slice_str(commit);
    if (snap_list(store_of(x->v), repo, tree, count_snap, &out.revisions, &unused) < 0 ||
        head_held(store_of(x->v), repo, tree, &out.held, &unused) != 0) {
        out.held = false;
    }
    return x->each_repo(x->arg, &out);
}

static int hosted_repos(const struct stock_view *v, struct slice prefix,
                        int (*each)(void *arg, const struct stock_repo *x), void *arg,
                        struct err *e)
{
    struct hosted x = {.v = v, .prefix = prefix, .each_repo = each, .arg = arg};

    return head_list(store_of(v), slice_str(v->r->name), on_head, &x, e);
}

static int tell_snap(const struct hosted *x, struct slice name, const struct snap *sn)
{
    char commit[HUB_COMMIT_HEX + 1];
    struct stock_revision r = {.name = name,
                               .asked_unix_s = sn->created_unix_s,
                               .sum = sum_of(sn),
                               .held = slice_eqs(name, "main") && x->held};

    hub_commit_id(&sn->root, commit);
    r.commit = slice_str(commit);
    return x->each_revision(x->arg, &r);
}

static int on_ref(void *arg, const struct ref *r)
{
    const struct hosted *x = arg;
    struct snap sn;
    int rc = snap_get(store_of(x->v), slice_str(x->v->r->name), x->tree, r->seq, &sn, NULL);

    return rc == 0 ? tell_snap(x, r->name, &sn) : rc;
}

static int on_snap(void *arg, const struct snap *sn)
{
    const struct hosted *x = arg;
    char version[NAME_ROOM];
    int rc;

    snprintf(version, sizeof version, "v%" PRIu64, sn->seq);
    rc = tell_snap(x, slice_str(version), sn);
    return rc == 0 && sn->label[0] != '\0' ? tell_snap(x, slice_str(sn->label), sn) : rc;
}

/* tree: its name in the store. */
static int find_tree(const struct stock_view *v, struct slice type, struct slice id,
                     struct arena *a, struct slice *tree, struct snap *live, struct err *e)
{
    int rc;

    *tree = hub_tree(type, id, a);
    rc = head_get(store_of(v), slice_str(v->r->name), *tree, live, e);

    return rc == E_NOTFOUND || rc == E_INVALID
               ? err_set(e, E_NOTFOUND,
                         "repo %s has no " SLICE_FMT " among its " SLICE_FMT
                         ", see `mirrorctl hf ls %s`",
                         v->r->name, SLICE_ARG(id), SLICE_ARG(type), v->r->name)
               : rc;
}

static int hosted_revisions(const struct stock_view *v, struct slice type, struct slice id,
                            int (*each)(void *arg, const struct stock_revision *x), void *arg,
                            struct err *e)
{
    struct hosted x = {.v = v, .each_revision = each, .arg = arg};
    struct slice repo = slice_str(v->r->name);
    struct arena a = {0};
    struct snap live;
    int rc = find_tree(v, type, id, &a, &x.tree, &live, e);

    if (rc == 0) {
        rc = head_held(store_of(v), repo, x.tree, &x.held, e);
    }
    if (rc == 0) {
        rc = tell_snap(&x, SLICE("main"), &live);
    }
    if (rc == 0) {
        rc = ref_list(store_of(v), repo, x.tree, on_ref, &x, e);
    }
    if (rc == 0) {
        rc = snap_list(store_of(v), repo, x.tree, on_snap, &x, e);
    }
    arena_fini(&a);
    return rc;
}

static int hosted_files(const struct stock_view *v, struct slice type, struct slice id,
                        struct slice rev, struct arena *a, struct stock_revision *about,
                        int (*each)(void *arg, const struct stock_file *f), void *arg,
                        struct err *e)
{
    struct tree_files w = {.sum = &about->sum, .each = each, .arg = arg};
    struct slice repo = slice_str(v->r->name);
    char commit[HUB_COMMIT_HEX + 1];
    struct slice tree;
    struct snap sn;
    int rc = find_tree(v, type, id, a, &tree, &sn, e);

    if (rc == 0 && !slice_eqs(rev, "main") &&
        snap_find(store_of(v), repo, tree, rev, &sn, e) != 0) {
        rc = no_revision(v, id, rev, e);
    }
    if (rc != 0) {
        return rc;
    }
    hub_commit_id(&sn.root, commit);
    about->name = arena_copy(a, rev);
    about->commit = arena_copy(a, slice_str(commit));
    about->asked_unix_s = sn.created_unix_s;
    about->sum.known = true;
    return tree_walk(store_of(v), &sn.root, SLICE(""), SLICE_NONE, on_tree_file, &w, e);
}

const struct stock_ops stock_hosted = {hosted_repos, hosted_revisions, hosted_files};
