#include "server/store/tree.h"

#include "server/store/seek.h"

int tree_get(struct store *s, const struct digest *root, struct slice path, struct arena *a,
             struct entry *out, struct err *e)
{
    const struct entry *en;
    struct seek k;
    int rc;

    seek_open(&k, s, root);
    rc = seek_get(&k, path, &en, e);
    if (rc == 0) {
        *out = *en;
        out->path = arena_copy(a, en->path);
        out->target = arena_copy(a, en->target);
        out->leader = arena_copy(a, en->leader);
    }
    seek_close(&k);
    return rc;
}

enum { HOPS_MAX = 32 };

/* Puts a link's target in the place of the link, whose path is the first n bytes of `at`. */
static int follow(struct buf *at, size_t n, struct slice target, struct err *e)
{
    struct slice rest = slice_from(buf_slice(at), n); /* empty, or "/..." */
    struct buf out = BUF_INIT(2 * TREE_PATH_MAX);
    int rc = 0;

    n = slice_behind(slice_first(buf_slice(at), n), '/');
    buf_add(&out, at->p, n); /* the link's folder, with its '/' */
    if (target.p[0] == '/') {
        rc = err_set(e, E_INVALID, "a symbolic link points outside the tree");
    }
    while (rc == 0 && target.n != 0) {
        struct slice part = slice_cut(&target, '/');
        if (part.n == 0 || slice_eqs(part, ".")) {
            continue;
        }
        if (!slice_eqs(part, "..")) {
            buf_adds(&out, part);
            buf_byte(&out, '/');
        } else if (out.n == 0) {
            rc = err_set(e, E_INVALID, "a symbolic link points outside the tree");
        } else {
            out.n--;
            while (out.n > 0 && out.p[out.n - 1] != '/') {
                out.n--;
            }
        }
    }
    if (rc == 0 && rest.n != 0) {
        buf_adds(&out, slice_from(rest, 1));
    } else if (out.n != 0) {
        out.n--;
    }
    if (rc == 0 && (out.rc != 0 || out.n > TREE_PATH_MAX)) {
        rc = err_set(e, E_INVALID, "a symbolic link points to a path that is too long");
    }
    if (rc == 0) {
        buf_clear(at);
        buf_adds(at, buf_slice(&out));
    }
    buf_free(&out);
    return rc;
}

/* The first link on the way to buf `at`: 1 and its place is taken by its target; 0: there is
 * none. */
static int follow_first(struct seek *k, struct buf *at, struct err *e)
{
    for (size_t n = 1; n <= at->n; n++) {
        const struct entry *en;
        int rc;
        if (n != at->n && at->p[n] != '/') {
            continue;
        }
        rc = seek_get(k, slice_of(at->p, n), &en, e);
        if (rc == 0 && en->type == ENTRY_LINK) {
            rc = follow(at, n, en->target, e);
            return rc == 0 ? 1 : rc;
        }
        if (rc != 0 && rc != E_NOTFOUND) {
            return rc;
        }
    }
    return 0;
}

int tree_resolve(struct store *s, const struct digest *root, struct slice path, struct arena *a,
                 struct entry *out, struct err *e)
{
    struct buf at = BUF_INIT(4 * TREE_PATH_MAX);
    const struct entry *en;
    struct seek k;
    int rc = E_NOTFOUND;

    *out = (struct entry){0};
    buf_adds(&at, path);
    seek_open(&k, s, root);
    for (unsigned hops = 0; at.n != 0; hops++) {
        rc = seek_get(&k, buf_slice(&at), &en, e);
        if ((rc == 0 && en->type != ENTRY_LINK) || (rc != 0 && rc != E_NOTFOUND)) {
            break;
        }
        rc = hops == HOPS_MAX ? err_set(e, E_INVALID, "too many symbolic links, possibly a loop")
                              : follow_first(&k, &at, e);
        if (rc != 1) {
            rc = rc != 0 ? rc : E_NOTFOUND;
            break;
        }
    }
    if (rc >= 0 && at.n == 0) {
        rc = E_NOTFOUND; /* a link to the top */
    }
    if (rc == 0) {
        *out = *en;
        out->target = arena_copy(a, en->target);
        out->leader = arena_copy(a, en->leader);
    }
    out->path = arena_copy(a, buf_slice(&at));
    seek_close(&k);
    buf_free(&at);
    return rc;
}

int tree_walk(struct store *s, const struct digest *root, struct slice prefix, struct slice after,
              int (*each)(void *arg, const struct entry *en), void *arg, struct err *e)
{
    struct buf at = BUF_INIT(TREE_PATH_MAX + 1);
    bool behind = after.p != NULL && slice_cmp(after, prefix) >= 0;
    struct slice from = behind ? after : prefix; /* may be longer than any path */
    struct seek k;
    int rc = 0;

    seek_open(&k, s, root);
    while (rc == 0) {
        const struct entry *en;
        rc = seek_from(&k, from, behind, &en, e);
        if (rc == 0 && !slice_starts(en->path, prefix)) {
            break;
        }
        if (rc == 0) {
            buf_clear(&at);
            buf_adds(&at, en->path);
            from = buf_slice(&at);
            behind = true;
            rc = each(arg, en);
        } else if (rc == E_NOTFOUND) {
            rc = 0;
            break;
        }
    }
    seek_close(&k);
    buf_free(&at);
    return rc;
}
