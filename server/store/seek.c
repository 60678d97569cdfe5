#include "server/store/seek.h"

void seek_open(struct seek *k, struct store *s, const struct digest *root)
{
    *k = (struct seek){.s = s, .root = *root};
}

void seek_close(struct seek *k)
{
    for (size_t i = 0; i < NODE_LEVELS; i++) {
        if (k->way[i].full) {
            node_free(&k->way[i].node);
        }
    }
}

int seek_load(struct store *s, const struct child *c, unsigned level, struct tree_node *out,
              struct err *e)
{
    int rc = node_load(s, &c->id, out, e);

    if (rc != 0) {
        return rc;
    }
    if (out->level != level || out->count == 0 ||
        !slice_eq(c->first, level == 0 ? out->entry[0].path : out->child[0].first)) {
        node_free(out);
        return err_set(e, E_CORRUPT, "a node of the tree does not match its parent");
    }
    return 0;
}

/* parent NULL: the root. */
static int descend_into_child(struct seek *k, size_t depth, const struct tree_node *parent,
                              const struct child *c, struct tree_node **out, struct err *e)
{
    const struct digest *id = c != NULL ? &c->id : &k->root;
    int rc;

    if (depth == NODE_LEVELS) {
        return err_set(e, E_CORRUPT, "the tree is too deep");
    }
    if (k->way[depth].full && digest_eq(&k->way[depth].id, id)) {
        *out = &k->way[depth].node;
        return 0;
    }
    if (k->way[depth].full) {
        node_free(&k->way[depth].node);
        k->way[depth].full = false;
    }
    *out = &k->way[depth].node;
    rc = c != NULL ? seek_load(k->s, c, parent->level - 1, *out, e) : node_load(k->s, id, *out, e);
    if (rc == 0) {
        k->way[depth].id = *id;
        k->way[depth].full = true;
    }
    return rc;
}

/* Down to the leaf where `path` is or would be; *next: where the following leaf begins, or p ==
 * NULL. */
static int descend(struct seek *k, struct slice path, struct tree_node **leaf, struct slice *next,
                   struct err *e)
{
    struct tree_node *n = NULL;
    int rc = descend_into_child(k, 0, NULL, NULL, &n, e);

    *next = SLICE_NONE;
    for (size_t depth = 1; rc == 0 && n->level != 0; depth++) {
        ptrdiff_t at = node_find(n, path);
        size_t i = at < 0 ? 0 : (size_t)at;
        if (i + 1 < n->count) {
            *next = n->child[i + 1].first;
        }
        rc = descend_into_child(k, depth, n, &n->child[i], &n, e);
    }
    *leaf = n;
    return rc;
}

int seek_get(struct seek *k, struct slice path, const struct entry **out, struct err *e)
{
    struct tree_node *leaf;
    struct slice next;
    ptrdiff_t at;
    int rc = descend(k, path, &leaf, &next, e);

    if (rc != 0) {
        return rc;
    }
    at = node_find(leaf, path);
    if (at < 0 || !slice_eq(leaf->entry[at].path, path)) {
        return err_set(e, E_NOTFOUND, "no such path in the tree");
    }
    *out = &leaf->entry[at];
    return 0;
}

int seek_from(struct seek *k, struct slice path, bool behind, const struct entry **out,
              struct err *e)
{
    struct tree_node *leaf;
    struct slice next;
    ptrdiff_t at;
    int rc = descend(k, path, &leaf, &next, e);

    if (rc != 0) {
        return rc;
    }
    at = node_find(leaf, path);
    if (at < 0 || behind || !slice_eq(leaf->entry[at].path, path)) {
        at++;
    }
    if ((size_t)at == leaf->count) {
        if (next.p == NULL) {
            return err_set(e, E_NOTFOUND, "there are no more entries in the tree");
        }
        rc = descend(k, next, &leaf, &next, e);
        at = 0;
    }
    if (rc == 0) {
        *out = &leaf->entry[at];
    }
    return rc;
}
