#include "server/repo/repo.h"

#include "common/codec/form.h"
#include "server/repo/oci/path.h"

/* DESIGN 2.2; the empty one is the status page at '/'. */
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

static struct repo *find(struct repo *const *repos, size_t count, struct slice name)
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
    to.repo = find(repos, count, first);
    to.path = rest;
    if (to.repo == NULL && root != NULL) {
        to.repo = find(repos, count, slice_str(root));
        to.path = whole;
    }
    return to;
}

/* --- below /v2/ --------------------------------------------------------------------------------------------------- */

enum { NS_MAX = 300 };

static struct repo *registry(struct repo *r)
{
    return r != NULL && r->ops->registry ? r : NULL;
}

static struct repo *registry_called(struct repo *const *repos, size_t count, struct slice ns)
{
    for (size_t i = 0; i < count; i++) {
        struct repo *r = registry(repos[i]);
        for (const char **name = r != NULL ? r->names : NULL; name != NULL && *name; name++) {
            if (slice_ieq(ns, slice_str(*name))) {
                return r;
            }
        }
    }
    return NULL;
}

struct route route_v2(struct repo *const *repos, size_t count, struct slice path,
                      struct slice query, const char *root, struct arena *a)
{
    struct route to = {.path = slice_from(path, strlen(OCI_ROOT))};
    struct slice rest = to.path;
    struct slice first = slice_cut(&rest, '/');

    /* The version and the token server (registry/registry.h): no image is called so, whatever else the request says. */
    if (first.n == 0 || slice_eqs(first, "-")) {
        return to;
    }
    to.ns = form_find(&query, "ns", NS_MAX, a);
    if (to.ns.n != 0) {
        to.repo = registry_called(repos, count, to.ns);
        if (to.repo != NULL && slice_eqs(first, to.repo->name)) {
            to.path = rest;
        }
        return to;
    }
    to.repo = registry(find(repos, count, first));
    if (to.repo != NULL) {
        to.path = rest;
    } else if (root != NULL) {
        to.repo = registry(find(repos, count, slice_str(root)));
    }
    return to;
}
