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
    }
    seek_close(&k);
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
