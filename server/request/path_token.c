#include "server/request/path_token.h"

#include "server/gate/gate.h"

bool path_token_cut(struct slice *path, struct slice *token)
{
    struct slice rest = *path;

    if (!slice_starts(rest, SLICE("t/"))) {
        return false;
    }
    rest = slice_from(rest, 2);
    if (slice_find(rest, '/') <= 0) {
        return false;
    }
    *token = slice_cut(&rest, '/');
    *path = rest;
    return true;
}

static bool route_takes_token(const struct route *to)
{
    return to->repo != NULL && to->repo->ops->path_tokens;
}

static bool is_our_path_token(struct slice token)
{
    return slice_starts(token, SLICE("mrd-")) || slice_starts(token, SLICE("mrd_"));
}

/* "t/<token>" and nothing behind it: the channel's own page. Another's may be a file of that
 * name. */
static bool cut_all(struct slice *path, struct slice *token)
{
    struct slice rest = slice_starts(*path, SLICE("t/")) ? slice_from(*path, 2) : SLICE_NONE;

    if (!is_our_path_token(rest)) {
        return false;
    }
    *token = rest;
    *path = SLICE("");
    return true;
}

/* Where nobody takes it out, a repo's name was misspelt: the path is nobody's, for another repo's
 * origin would be shown the token. */
static struct route unless_shown(struct route to, struct slice path)
{
    bool shown = slice_starts(path, SLICE("t/")) && token_bytes(slice_from(path, 2)) != 0;

    return shown ? (struct route){0} : to;
}

static void unlock(struct exchange *x, struct slice before, struct slice token, struct slice behind)
{
    const struct http_req *req = exchange_req(x);
    struct arena *a = exchange_arena(x);
    struct slice credential = SLICE("");
    struct slice query = req->query;

    if (is_our_path_token(token)) {
        credential = arena_fmt(a, "Bearer " SLICE_FMT, SLICE_ARG(token));
        for (size_t i = sizeof "Bearer " - 1; i < credential.n; i++) {
            char *c = (char *)(uintptr_t)credential.p + i;
            *c = *c == '-' ? '_' : *c;
        }
    }
    exchange_unlock(x,
                    arena_fmt(a, SLICE_FMT SLICE_FMT "%s" SLICE_FMT, SLICE_ARG(before),
                              SLICE_ARG(behind), query.p != NULL ? "?" : "", SLICE_ARG(query)),
                    credential);
}

struct route path_token_take(struct exchange *x, struct repo *const *repos, size_t count,
                             const char *root)
{
    const struct http_req *req = exchange_req(x);
    struct slice whole = req->path;
    struct route to = route_of(repos, count, whole, root), behind = {0};
    struct slice path = slice_starts(whole, SLICE("/")) ? slice_from(whole, 1) : whole;
    struct slice token;

    if (!slice_starts(path, SLICE("t/")) && !route_takes_token(&to)) {
        return unless_shown(to, to.path); /* nearly all */
    }
    if (path_token_cut(&path, &token)) {
        behind = route_of(repos, count, slice_from(whole, whole.n - path.n - 1), root);
    }
    if (route_takes_token(&behind)) {
        unlock(x, SLICE("/"), token, path);
        return route_of(repos, count, req->path, root);
    }
    path = to.path;
    if (route_takes_token(&to) && (path_token_cut(&path, &token) || cut_all(&path, &token))) {
        unlock(x, slice_first(whole, whole.n - to.path.n), token, path);
        return route_of(repos, count, req->path, root);
    }
    return unless_shown(unless_shown(to, to.path),
                        slice_from(whole, slice_starts(whole, SLICE("/"))));
}
