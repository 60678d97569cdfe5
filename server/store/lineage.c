#include "server/store/lineage.h"

#include <stdlib.h>
#include <uthash.h>

struct path {
    UT_hash_handle hh;
    struct slice name;
    uint64_t seq;
};

struct lineage {
    struct arena arena;
    struct path *paths;
    uint64_t oldest_seq; /* of all that is not in `paths` */
    uint64_t seq;        /* of the version at work */
};

static void add_lineage_name(struct lineage *l, struct slice name)
{
    struct path *p;

    HASH_FIND(hh, l->paths, name.p, name.n, p);
    if (p != NULL) {
        return;
    }
    p = ARENA_NEW(&l->arena, struct path);
    p->name = arena_copy(&l->arena, name);
    p->seq = l->seq;
    HASH_ADD_KEYPTR(hh, l->paths, p->name.p, p->name.n, p);
}

static int on_difference(void *arg, const struct entry *old, const struct entry *new)
{
    struct lineage *l = arg;
    struct slice path = (new != NULL ? new : old)->path;

    if (new != NULL) {
        add_lineage_name(l, path);
    }
    for (size_t i = 0; i < path.n; i++) {
        if (path.p[i] == '/') {
            add_lineage_name(l, slice_first(path, i));
        }
    }
    return HASH_COUNT(l->paths) > LINEAGE_PATHS;
}

int lineage_open(struct store *s, struct slice repo, struct slice tree, const struct snap *from,
                 struct lineage **out, struct err *e)
{
    struct lineage *l = NEW(struct lineage);
    struct snap at = *from;
    struct snap older;
    int rc = 0;

    for (int i = 0; rc == 0 && i < LINEAGE_VERSIONS && at.parent_seq != 0; i++) {
        l->seq = at.seq;
        rc = snap_get(s, repo, tree, at.parent_seq, &older, e);
        rc = rc != 0 ? rc : tree_diff(s, &older.root, &at.root, on_difference, l, e);
        at = rc == 0 ? older : at;
    }
    l->oldest_seq = at.seq;
    if (rc < 0 && rc != E_NOTFOUND) { /* a version that went, with what it was made from */
        lineage_close(&l);
        return rc;
    }
    *out = l;
    return 0;
}

uint64_t lineage_seq(const struct lineage *l, struct slice path)
{
    struct path *p;

    HASH_FIND(hh, l->paths, path.p, path.n, p);
    return p != NULL ? p->seq : l->oldest_seq;
}

void lineage_close(struct lineage **lp)
{
    struct lineage *l = *lp;

    *lp = NULL;
    if (l != NULL) {
        HASH_CLEAR(hh, l->paths);
        arena_fini(&l->arena);
        free(l);
    }
}
