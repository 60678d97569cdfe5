#include "server/sync/closure.h"

#include <stdlib.h>

#include "server/store/blob.h"
#include "server/store/seek.h"
#include "server/sync/debian/packages.h"
#include "server/sync/debian/release.h"

enum { PIECE_BYTES = 256 << 10, RELEASE_BYTES = 64 << 20, PATH_ROOM = 8192 };
#define UNPACKED_BYTES ((uint64_t)8 << 30)

struct checker {
    struct store *s;
    struct seek tree;
    struct seek pool; /* its way down is another */
    struct closure_report *out;
    struct slice root;  /* what stands before "dists/" */
    struct slice suite; /* folder of the Release at hand, with its '/' */
    const char *index;  /* at hand, for the sentence */
    struct buf path;
    struct err *e;
};

/* --- what a Packages names --- */

static int on_file(void *arg, struct slice path, uint64_t size_bytes, const struct digest *d,
                   struct err *e)
{
    struct checker *x = arg;
    const struct entry *en;
    int rc;

    buf_clear(&x->path);
    buf_adds(&x->path, x->root);
    buf_adds(&x->path, path);
    rc = seek_get(&x->pool, buf_slice(&x->path), &en, e);
    if (rc == E_NOTFOUND) {
        return err_set(e, E_AGAIN, "%.80s names %.120s, which is not there", x->index,
                       buf_cstr(&x->path));
    }
    if (rc == 0 &&
        (en->type != ENTRY_FILE || en->size_bytes != size_bytes || !digest_eq(&en->digest, d))) {
        return err_set(e, E_AGAIN, "%.80s names %.120s, which is another", x->index,
                       buf_cstr(&x->path));
    }
    x->out->files += rc == 0;
    return rc;
}

static int feed_packages(void *arg, struct slice bytes, struct err *e)
{
    return packages_feed(arg, bytes, e);
}

static int feed_gunzip(void *arg, struct slice bytes, struct err *e)
{
    return gunzip_feed(arg, bytes, e);
}

static int each_piece(struct store *s, const struct digest *d,
                      int (*feed)(void *arg, struct slice bytes, struct err *e), void *arg,
                      struct err *e)
{
    char *piece = mem_new(PIECE_BYTES);
    struct blob *b = NULL;
    uint64_t at = 0;
    int rc = blob_open(s, d, &b, e);

    while (rc == 0 && at < blob_size_bytes(b)) {
        size_t n = (size_t)min_u64(PIECE_BYTES, blob_size_bytes(b) - at);
        rc = blob_read(b, at, piece, n, e);
        if (rc == 0) {
            rc = feed(arg, slice_of(piece, n), e);
        }
        at += n;
    }
    blob_release(&b);
    free(piece);
    return rc;
}

static int check_index(struct checker *x, const struct digest *d, bool sources, bool packed)
{
    struct packages_events ev = {on_file, x};
    struct packages *p = packages_open(sources, &ev);
    struct gunzip *z = packed ? gunzip_open(feed_packages, p, UNPACKED_BYTES) : NULL;
    int rc = packed ? each_piece(x->s, d, feed_gunzip, z, x->e)
                    : each_piece(x->s, d, feed_packages, p, x->e);

    if (rc == 0 && packed) {
        rc = gunzip_finish(z, x->e);
    }
    if (rc == 0) {
        rc = packages_finish(p, x->e);
    }
    x->out->indexes += rc == 0;
    gunzip_close(&z);
    packages_close(&p);
    return rc == E_INVALID ? E_AGAIN : rc;
}

/* --- what a Release names --- */

static struct slice last_part(struct slice path)
{
    ptrdiff_t slash;

    while ((slash = slice_find(path, '/')) >= 0) {
        path = slice_from(path, (size_t)slash + 1);
    }
    return path;
}

static int find(struct checker *x, struct slice below, const char *ending, const struct entry **en)
{
    buf_clear(&x->path);
    buf_adds(&x->path, x->suite);
    buf_adds(&x->path, below);
    buf_str(&x->path, ending);
    return seek_get(&x->tree, buf_slice(&x->path), en, x->e);
}

/* True: this form of the index is the one to read, gzip before plain. */
static bool is_read(struct checker *x, const struct release_file *f, bool *sources, bool *packed)
{
    struct slice name = last_part(f->path);
    const struct entry *en;

    *packed = slice_ends(name, SLICE(".gz"));
    *sources = slice_starts(name, SLICE("Sources"));
    if (slice_eqs(name, "Packages.gz") || slice_eqs(name, "Sources.gz")) {
        return true;
    }
    if (slice_eqs(name, "Packages") || slice_eqs(name, "Sources")) {
        return find(x, f->path, ".gz", &en) != 0;
    }
    if (slice_eqs(name, "Packages.xz") || slice_eqs(name, "Sources.xz")) {
        struct slice plain = slice_first(f->path, f->path.n - 3);
        x->out->unread += find(x, plain, "", &en) != 0 && find(x, plain, ".gz", &en) != 0;
    }
    return false;
}

static int check_named(struct checker *x, const struct release_file *f)
{
    const struct entry *en;
    struct digest d;
    bool sources, packed;
    int rc = find(x, f->path, "", &en);

    if (rc == E_NOTFOUND) {
        return 0; /* not mirrored, or only unpacked from what is */
    }
    if (rc != 0) {
        return rc;
    }
    if (en->type == ENTRY_FILE && !digest_eq(&en->digest, &f->digest)) {
        return err_set(x->e, E_AGAIN, "%.120s is not the one that its Release names",
                       buf_cstr(&x->path));
    }
    d = en->digest;
    if (en->type != ENTRY_FILE || f->size_bytes == 0 || !is_read(x, f, &sources, &packed)) {
        return 0;
    }
    struct buf name = BUF_INIT(PATH_ROOM);
    buf_adds(&name, x->suite);
    buf_adds(&name, f->path);
    x->index = buf_cstr(&name);
    rc = check_index(x, &d, sources, packed);
    buf_free(&name);
    return rc;
}

static int add_to_buf(void *arg, struct slice bytes, struct err *e)
{
    struct buf *b = arg;

    buf_adds(b, bytes);
    return b->rc == 0 ? 0 : err_set(e, E_TOOBIG, "a Release file of more than %zu bytes", b->max);
}

static int read_release(struct checker *x, const struct digest *d, struct release *r)
{
    struct buf text = BUF_INIT(RELEASE_BYTES);
    int rc = each_piece(x->s, d, add_to_buf, &text, x->e);

    if (rc == 0) {
        rc = release_read(buf_slice(&text), r, x->e);
    }
    buf_free(&text);
    return rc;
}

static int check_release(struct checker *x, struct slice path, const struct digest *d)
{
    bool in = slice_ends(path, SLICE("/InRelease"));
    struct release r, other;
    const struct entry *en;
    int rc = read_release(x, d, &r);

    if (rc == E_INVALID && !in) {
        return 0; /* a component's own, which names nothing */
    }
    if (rc != 0) {
        return rc == E_INVALID ? E_AGAIN : rc;
    }
    x->suite = slice_first(path, path.n - (in ? 9 : 7));
    if (!in && find(x, SLICE("InRelease"), "", &en) == 0) {
        /* Both speak of the same: then it was done with the other. */
        struct digest in_digest = en->digest;
        rc = read_release(x, &in_digest, &other);
        for (size_t i = 0; rc == 0 && i < r.count; i++) {
            const struct release_file *f = release_find(&other, r.file[i].path);
            if (f == NULL || !digest_eq(&f->digest, &r.file[i].digest)) {
                rc = err_set(x->e, E_AGAIN, "Release and InRelease speak of two states");
            }
        }
        release_free(&other);
    } else {
        for (size_t i = 0; rc == 0 && i < r.count; i++) {
            rc = check_named(x, &r.file[i]);
        }
    }
    release_free(&r);
    return rc;
}

/* --- every suite --- */

struct found {
    struct arena arena;
    struct {
        struct slice path;
        struct digest digest;
    } * at;
    size_t count, room;
};

static int on_entry(void *arg, const struct entry *en)
{
    struct found *f = arg;

    if (en->type != ENTRY_FILE || memmem(en->path.p, en->path.n, "dists/", 6) == NULL ||
        (!slice_ends(en->path, SLICE("/InRelease")) && !slice_ends(en->path, SLICE("/Release")))) {
        return 0;
    }
    if (f->count == f->room) {
        f->room = f->room != 0 ? 2 * f->room : 16;
        f->at = realloc(f->at, f->room * sizeof f->at[0]);
        CHECK(f->at != NULL);
    }
    f->at[f->count].path = arena_copy(&f->arena, en->path);
    f->at[f->count++].digest = en->digest;
    return 0;
}

int closure_debian(struct store *s, const struct digest *root, struct closure_report *out,
                   struct err *e)
{
    struct checker x = {.s = s, .out = out, .path = BUF_INIT(PATH_ROOM), .e = e};
    struct found f = {0};
    int rc = tree_walk(s, root, SLICE(""), SLICE_NONE, on_entry, &f, e);

    *out = (struct closure_report){0};
    seek_open(&x.tree, s, root);
    seek_open(&x.pool, s, root);
    for (size_t i = 0; rc == 0 && i < f.count; i++) {
        const char *dists = memmem(f.at[i].path.p, f.at[i].path.n, "dists/", 6);
        x.root = slice_first(f.at[i].path, (size_t)(dists - f.at[i].path.p));
        rc = check_release(&x, f.at[i].path, &f.at[i].digest);
    }
    seek_close(&x.tree);
    seek_close(&x.pool);
    arena_fini(&f.arena);
    free(f.at);
    buf_free(&x.path);
    return rc;
}
