/* profile.c - a Debian archive's gate, wherever its dists/ stands: what each suite's Release
 * vouches for is what it says, and what its Packages and Sources name is there. */
#include "server/sync/closure.h"
#include "server/sync/debian/packages.h"
#include "server/sync/debian/release.h"

enum { RELEASE_BYTES = 64 << 20, PATH_ROOM = 8192 };

struct reading {
    struct closure *x;
    struct slice root;  /* what stands before "dists/" */
    struct slice suite; /* folder of the Release at hand, with its '/' */
    struct buf path;    /* of what is looked up */
    struct slice index; /* at hand */
    struct buf named;
};

static const char *dists_in(struct slice path)
{
    return memmem(path.p, path.n, "dists/", 6);
}

static bool is_release(struct slice path)
{
    return dists_in(path) != NULL &&
           (slice_ends(path, SLICE("/InRelease")) || slice_ends(path, SLICE("/Release")));
}

static unsigned debian_profile_rank(struct slice path)
{
    struct slice name = closure_name_of(path, NULL);

    if (dists_in(path) == NULL) {
        return 0;
    }
    return slice_eqs(name, "InRelease") || slice_starts(name, SLICE("Release")) ? 2 : 1;
}

/* --- what a Packages names --- */

static int on_debian_closure_file(void *arg, struct slice path, uint64_t size_bytes,
                                  const struct digest *d, struct err *e)
{
    struct reading *r = arg;
    struct sum sum = {.kind = SUM_SHA256};

    memcpy(sum.b, d->b, DIGEST_BYTES);
    buf_clear(&r->named);
    buf_adds(&r->named, r->root);
    buf_adds(&r->named, path);
    return closure_names(r->x, r->index, buf_slice(&r->named), size_bytes, &sum, e);
}

static int feed_debian_closure(void *arg, struct slice bytes, struct err *e)
{
    return packages_feed(arg, bytes, e);
}

static int check_index(struct reading *r, const struct closure_file *f, bool sources, struct err *e)
{
    struct packages_events ev = {on_debian_closure_file, r};
    struct packages *p = packages_open(sources, &ev);
    int rc;

    r->index = f->path;
    rc = pieces_read(closure_store(r->x), &f->digest, packing_of(f->path, NULL),
                     feed_debian_closure, p, e);
    rc = rc != 0 ? rc : packages_finish(p, e);
    packages_close(&p);
    closure_report(r->x)->indexes += rc == 0;
    return rc != 0 ? err_prefix(e, SLICE_FMT, SLICE_ARG(f->path)) : 0;
}

/* --- what a Release names --- */

static int find_listed_file(struct reading *r, struct slice below, const char *ending,
                            struct closure_file *f, struct err *e)
{
    buf_clear(&r->path);
    buf_adds(&r->path, r->suite);
    buf_adds(&r->path, below);
    buf_str(&r->path, ending);
    return closure_find(r->x, buf_slice(&r->path), f, e);
}

/* Of the forms of an index that are there, one is read. */
static bool is_read(struct reading *r, const struct release_file *f, bool *sources)
{
    struct slice bare;
    enum packing how;
    struct closure_file other;

    if (!packages_named(f->path, &bare, sources)) {
        return false;
    }
    how = packing_of(f->path, NULL);
    for (size_t i = 0; i < PACKAGES_FORMS; i++) {
        if (packages_form[i].how == how) {
            return true;
        }
        if (find_listed_file(r, bare, packages_form[i].ending, &other, NULL) == 0) {
            return false;
        }
    }
    return false;
}

static int check_named(struct reading *r, const struct release_file *f, struct err *e)
{
    struct closure_file at;
    struct buf path = BUF_INIT(PATH_ROOM);
    bool sources;
    int rc = find_listed_file(r, f->path, "", &at, e);

    if (rc == E_NOTFOUND) {
        return 0; /* not mirrored, or only unpacked from what is */
    }
    if (rc == 0 && !digest_eq(&at.digest, &f->digest)) {
        closure_wrong(r->x, "%.100s does not match its Release file", buf_cstr(&r->path));
        return 0;
    }
    if (rc == 0 && f->size_bytes != 0 && is_read(r, f, &sources)) {
        buf_adds(&path, r->suite);
        buf_adds(&path, f->path);
        at.path = buf_slice(&path);
        rc = check_index(r, &at, sources, e);
    }
    buf_free(&path);
    return rc;
}

static int load_release_blob(struct reading *r, const struct digest *d, struct release *out,
                             struct err *e)
{
    struct buf text = BUF_INIT(RELEASE_BYTES);
    int rc = pieces_load(closure_store(r->x), d, &text, e);

    rc = rc != 0 ? rc : release_read(buf_slice(&text), out, e);
    buf_free(&text);
    return rc;
}

/* Beside an InRelease: both speak of the same. */
static int compare_releases(struct reading *r, const struct release *a, const struct digest *in,
                            struct err *e)
{
    struct release b;
    int rc = load_release_blob(r, in, &b, e);

    for (size_t i = 0; rc == 0 && i < a->count; i++) {
        const struct release_file *f = release_find(&b, a->file[i].path);
        if (f == NULL || !digest_eq(&f->digest, &a->file[i].digest)) {
            closure_wrong(r->x, "Release and InRelease of %.*s list different files",
                          (int)min_u64(r->suite.n, 80), r->suite.p);
            break;
        }
    }
    if (rc == 0) {
        release_free(&b);
    }
    return rc;
}

static int check_release(struct closure *x, const struct closure_file *f, struct err *e)
{
    bool in = slice_ends(f->path, SLICE("/InRelease"));
    struct reading r = {.x = x, .path = BUF_INIT(PATH_ROOM), .named = BUF_INIT(PATH_ROOM)};
    struct closure_file other;
    struct release rel;
    int rc = load_release_blob(&r, &f->digest, &rel, e);

    if (rc != 0) { /* a component's own Release names nothing */
        return rc == E_INVALID && !in ? 0 : rc;
    }
    r.root = slice_first(f->path, (size_t)(dists_in(f->path) - f->path.p));
    r.suite = slice_first(f->path, f->path.n - (in ? 9 : 7));
    if (!in && find_listed_file(&r, SLICE("InRelease"), "", &other, e) == 0) {
        rc = compare_releases(&r, &rel, &other.digest, e);
    } else {
        for (size_t i = 0; rc == 0 && i < rel.count; i++) {
            rc = check_named(&r, &rel.file[i], e);
        }
    }
    release_free(&rel);
    buf_free(&r.path);
    buf_free(&r.named);
    return rc;
}

static int check_debian_closure(struct closure *x, struct err *e)
{
    return closure_each(x, is_release, check_release, e);
}

const struct profile profile_debian = {"debian", debian_profile_rank, check_debian_closure};
