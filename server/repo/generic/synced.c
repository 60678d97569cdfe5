#include "server/repo/generic/synced.h"

#include "server/repo/plan.h"

/* wget, curl and browsers want a page as other servers have it; who asks for JSON gets that. */
static bool wants_json(const struct http_req *req)
{
    struct slice accept = http_req_list(req, "accept");

    while (accept.n != 0) {
        struct slice type = slice_cut(&accept, ',');
        type = slice_trim(slice_cut(&type, ';'));
        if (slice_ieq(type, SLICE("text/html"))) {
            return false;
        }
        if (slice_ieq(type, SLICE("application/json"))) {
            return true;
        }
    }
    return false;
}

/* What is mirrored must not run as ours in a browser. */
static struct slice type_of(struct slice path)
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

static void plan_folder(const struct http_req *req, struct slice asked, struct slice folder,
                        struct arena *a, struct plan *p)
{
    bool bare = asked.n != 0 && asked.p[asked.n - 1] != '/';

    p->kind = PLAN_LIST;
    p->html = !wants_json(req);
    p->cache_control = SLICE("no-cache");
    p->recursive = slice_eqs(req->query, "recursive=1");
    /* Links are relative: of "a/b" the page's begin with "b/", wherever a link has led. */
    if (folder.n != 0 && folder.p[folder.n - 1] == '/') {
        folder.n--;
    }
    p->entry.path = bare || folder.n == 0 ? folder : arena_fmt(a, SLICE_FMT "/", SLICE_ARG(folder));
}

void synced_plan(const struct repo *r, const struct http_req *req, struct slice clean,
                 const struct facts *facts, struct arena *a, struct plan *p)
{
    const struct snap *sn;
    const struct fact *found;
    struct slice path, version, asked;

    p->right = RIGHT_READ;
    p->subject = arena_fmt(a, "%s/" SLICE_FMT, r->name, SLICE_ARG(clean));
    if (!plan_tree_path(clean, a, &path)) {
        plan_reply(p, 404, SLICE("no such path in this repo's snapshot\n"));
        return;
    }
    version = plan_cut_version(&path);
    sn = plan_synced(facts, version, p);
    if (sn == NULL) {
        return;
    }
    p->snap = *sn;
    p->name = slice_str(r->name);
    asked = path;
    if (path.n == 0) {
        plan_folder(req, asked, path, a, p);
        return;
    }
    found = plan_resolve(facts, &sn->root, path, p);
    if (found == NULL) {
        return;
    }
    if (found->rc != 0 || found->entry.type != ENTRY_FILE) {
        plan_folder(req, asked, found->entry.path, a, p); /* or nothing: the listing knows */
        return;
    }
    p->kind = PLAN_BLOB;
    p->entry = found->entry;
    p->content_type = type_of(path);
    p->cache_control = version.n == 0      ? SLICE("no-cache")
                       : r->anonymous_read ? SLICE("public, max-age=31536000, immutable")
                                           : SLICE("private, max-age=31536000, immutable");
}
