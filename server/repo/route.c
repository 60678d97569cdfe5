#include "server/repo/repo.h"

/* No repo is named like one of our own paths; the empty one is the status page at '/'. */
static bool reserved_segment(struct slice seg)
{
    static const char *const name[] = {"", "healthz", "readyz", "metrics", "v2", "-"};

    for (size_t i = 0; i < ARRAY_LEN(name); i++) {
        if (slice_eqs(seg, name[i])) {
            return true;
        }
    }
    return false;
}

struct repo *repo_named(struct repo *const *repos, size_t count, struct slice name)
{
    for (size_t i = 0; i < count; i++) {
        if (slice_eqs(name, repos[i]->name)) {
            return repos[i];
        }
    }
    return NULL;
}

struct route route_of(struct repo *const *repos, size_t count, struct slice path, const char *root)
{
    struct route to = {0};
    struct slice rest = path.n != 0 && path.p[0] == '/' ? slice_from(path, 1) : SLICE("");
    struct slice whole = rest;
    struct slice first = slice_cut(&rest, '/');

    /* "//x" is nobody's: its empty segment is not the status page. */
    to.reserved = first.n != 0 ? reserved_segment(first) : whole.n == 0;
    if (to.reserved || first.n == 0) {
        return to;
    }
    to.repo = repo_named(repos, count, first);
    to.path = rest;
    if (to.repo == NULL && root != NULL) {
        to.repo = repo_named(repos, count, slice_str(root));
        to.path = whole;
    }
    return to;
}
