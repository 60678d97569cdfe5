#include "server/repo/generic/synced.h"

#include "server/repo/plan.h"

/* What is mirrored must not run as ours in a browser. */
static struct slice content_type_of_synced(struct slice path)
{
    static const struct {
        struct slice end, type;
    } types[] = {
        {{".json", 5}, {"application/json", 16}},
        {{".txt", 4}, {"text/plain; charset=utf-8", 25}},
        {{".gz", 3}, {"application/gzip", 16}},
        {{".xz", 3}, {"application/x-xz", 16}},
        {{".deb", 4}, {"application/vnd.debian.binary-package", 37}},
        {{"Release", 7}, {"text/plain; charset=utf-8", 25}},
    };

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (slice_ends(path, types[i].end)) {
            return types[i].type;
        }
    }
    return SLICE("application/octet-stream");
}

/* found: where links lead; with a '/' behind it where one was asked for. */
static struct slice folder_of_synced_path(struct slice asked, struct slice found, struct arena *a)
{
    bool bare = asked.n != 0 && asked.p[asked.n - 1] != '/';

    if (found.n != 0 && found.p[found.n - 1] == '/') {
        found.n--;
    }
    return bare || found.n == 0 ? found : arena_fmt(a, SLICE_FMT "/", SLICE_ARG(found));
}

void synced_plan(const struct repo *r, const struct http_req *req, struct slice clean,
                 const struct results *results, struct arena *a, struct plan *p)
{
    const struct snap *sn;
    const struct result *found;
    struct slice path, version;

    p->right = RIGHT_READ;
    p->subject = arena_fmt(a, "%s/" SLICE_FMT, r->name, SLICE_ARG(clean));
    if (!plan_tree_path(clean, a, &path)) {
        plan_reply(p, 404, SLICE("no such path in this repo's snapshot\n"));
        return;
    }
    version = plan_cut_version(&path);
    sn = plan_synced(results, version, p);
    if (sn == NULL) {
        return;
    }
    plan_become(p, PLAN_BLOB);
    p->snap = *sn;
    p->name = slice_str(r->name);
    if (path.n == 0) {
        plan_folder(p, req, clean, path, a);
        return;
    }
    found = plan_resolve(results, &sn->root, path, p);
    if (found == NULL) {
        return;
    }
    if (found->rc != 0 || found->entry.type != ENTRY_FILE) {
        /* Or nothing: the listing knows. */
        plan_folder(p, req, clean, folder_of_synced_path(path, found->entry.path, a), a);
        return;
    }
    p->kind = PLAN_BLOB;
    p->entry = found->entry;
    p->content_type = content_type_of_synced(path);
    p->cache_control = version.n == 0      ? SLICE("no-cache")
                       : r->anonymous_read ? SLICE("public, max-age=31536000, immutable")
                                           : SLICE("private, max-age=31536000, immutable");
}
