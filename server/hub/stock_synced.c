/* stock_synced.c - repositories that a sync keeps, in its tree (repo/hf/synced.h): all that is known of them is here, whole. */
#include "server/hub/stock_priv.h"
#include "server/repo/hf/info.h"
#include "server/repo/hf/synced.h"

enum { DOC_BYTES = 64 << 20 };

static struct store *store_of(const struct stock_view *v)
{
    return v->hub->store;
}

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

    if (f->has_info && blob_read_whole(store_of(v), &f->info, &doc, NULL) == 0 &&
        info_make(buf_slice(&doc), &made, NULL) == 0 && info_read(buf_slice(&made), &info)) {
        commit = arena_copy(a, info.commit);
    }
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
        stock_count(&x->at.sum, en->size_bytes);
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

static int synced_files(const struct stock_view *v, struct slice type, struct slice id,
                        struct slice rev, struct arena *a, struct stock_revision *about,
                        int (*each)(void *arg, const struct stock_file *f), void *arg,
                        struct err *e)
{
    struct synced_revisions x = {.at = about, .rev = rev};
    struct snap sn = {0};
    int rc = each_synced_revision(v, type, id, &x, a, &sn, e);

    if (rc == 0 && x.path.n == 0) {
        rc = stock_no_revision(v, id, rev, e);
    }
    if (rc == 0) {
        struct slice files = arena_fmt(a, SLICE_FMT "files/", SLICE_ARG(x.path));
        rc = stock_walk(v, &sn.root, files, NULL, each, arg, e);
    }
    return rc;
}

const struct stock_ops stock_synced = {synced_repos, synced_revisions, synced_files};
