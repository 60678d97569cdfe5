#include "server/registry/route.h"

#include "common/codec/form.h"
#include "server/repo/oci/path.h"

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

struct route registry_route(struct repo *const *repos, size_t count, struct slice path,
                            struct slice query, const char *root, struct arena *a)
{
    struct route to = {.path = slice_from(path, strlen(OCI_ROOT))};
    struct slice rest = to.path;
    struct slice first = slice_cut(&rest, '/');

    /* The version and the token server (registry/registry.h): no image is called so, whatever else
     * the request says. */
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
    to.repo = registry(repo_named(repos, count, first));
    if (to.repo != NULL) {
        to.path = rest;
    } else if (root != NULL) {
        to.repo = registry(repo_named(repos, count, slice_str(root)));
    }
    return to;
}
