#include "server/serve/entrance.h"

static bool is_below(struct slice path, const char *root)
{
    size_t n = strlen(root);

    return slice_starts(path, slice_of(root, n)) && (path.n == n || path.p[n] == '/');
}

const struct entrance *entrance_of(const struct entrance *const *doors, const struct http_req *req)
{
    while ((*doors)->root != NULL && !is_below(req->path, (*doors)->root)) {
        doors++;
    }
    return *doors;
}
