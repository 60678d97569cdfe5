/* hosted.c - hosted trees: /<repo>/<owner>/<name>[@version]/<path>, read, written, and published
 * folder by folder. Writes are passed to upload/upload.h as a struct put.
 * docs/protocols/hosted.md */
#include "server/repo/hosted/hosted.h"

#include "server/repo/folder.h"
#include "server/repo/hosted/hub.h"
#include "server/repo/hosted/image.h"
#include "server/repo/hosted/python.h"
#include "server/repo/hf/xet.h"
#include "server/store/rename.h"

enum { SEGMENT_MAX_BYTES = 96 };

struct place {         /* a request's path, taken apart */
    struct slice tree; /* "owner/name", "datasets/owner/name"; p == NULL: above the trees */
    struct slice version;
    struct slice path;  /* below the tree */
    struct slice clean; /* all of it */
    struct slice tail;  /* clean, all that stands behind the tree's name */
    size_t prefix;      /* bytes of the request's path in front of what is below the repo */
    bool bare;          /* no '/' behind the name: the path of a folder that lacks its slash */
};

static int hosted_open(struct repo *r, const struct repo_conf *conf, struct err *e)
{
    if (r->origin != NULL) {
        return err_set(e, E_CONFIG, "protocol \"hosted\" has no origin; remove the setting origin");
    }
    r->xet_from_bytes = xet_from_bytes(conf->xet);
    return 0;
}

bool hosted_segment_valid(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        bool alnum =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        if (!alnum && (i == 0 || (c != '.' && c != '-'))) {
            return false;
        }
    }
    return s.n > 0 && s.n <= SEGMENT_MAX_BYTES;
}

bool hosted_version_valid(struct slice s)
{
    return s.n > 0 && s.n <= REF_NAME_MAX + 11 && slice_find(s, '\0') < 0; /* "refs/heads/" */
}

struct slice hosted_cut_kind(struct slice *path)
{
    static const struct slice kinds[] = {{"datasets/", 9}, {"spaces/", 7}};

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct slice owner = *path;
        if (slice_starts(*path, kinds[i])) {
            owner = slice_from(owner, kinds[i].n);
            owner = slice_cut(&owner, '/');
            if (slice_find(owner, '@') <
                0) { /* else an owner's name from before there were kinds */
                *path = slice_from(*path, kinds[i].n);
                return kinds[i];
            }
        }
    }
    return SLICE("");
}

/* In a canonical path '/' and '%' within a segment are still escaped. */
static struct slice plain_version(struct slice v, struct arena *a)
{
    char *out = arena_cstr(a, v);
    size_t n = 0;

    for (size_t i = 0; i < v.n; i++) {
        bool slash = slice_starts(slice_from(v, i), SLICE("%2F"));
        bool percent = slice_starts(slice_from(v, i), SLICE("%25"));
        out[n++] = slash ? '/' : v.p[i];
        i += slash || percent ? 2 : 0;
    }
    return slice_of(out, n);
}

/* false: no such path can be. */
static bool split_hosted_path(struct slice clean, struct arena *a, struct place *out)
{
    struct slice rest = clean;
    struct slice kind = hosted_cut_kind(&rest);
    struct slice owner = slice_cut(&rest, '/');
    struct slice name;

    *out = (struct place){.clean = clean, .bare = kind.n + owner.n == clean.n && owner.n != 0};
    if (rest.n == 0) { /* "", "owner", "owner/" */
        out->path = clean;
        return clean.n == kind.n || hosted_segment_valid(owner);
    }
    name = slice_cut(&rest, '/');
    out->bare = name.p + name.n == clean.p + clean.n;
    out->path = rest;
    out->version = name;
    name = slice_cut(&out->version, '@');
    if (name.n == (size_t)(out->version.p - name.p)) {
        out->version = SLICE_NONE; /* no '@' */
    }
    if (out->version.p != NULL) {
        out->version = plain_version(out->version, a);
    }
    out->tree = slice_first(clean, kind.n + owner.n + 1 + name.n);
    out->tail = slice_from(clean, out->tree.n);
    return hosted_segment_valid(owner) && hosted_segment_valid(name) &&
           (out->version.p == NULL || hosted_version_valid(out->version));
}

/* --- reading --- */

struct slice hosted_type_of(struct slice path)
{
    static const struct {
        struct slice end, type;
    } types[] = {
        {{".json", 5}, {"application/json", 16}},
        {{".jsonl", 6}, {"text/plain; charset=utf-8", 25}},
        {{".txt", 4}, {"text/plain; charset=utf-8", 25}},
        {{".md", 3}, {"text/plain; charset=utf-8", 25}},
        {{".yaml", 5}, {"text/plain; charset=utf-8", 25}},
        {{".log", 4}, {"text/plain; charset=utf-8", 25}},
    };

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (slice_ends(path, types[i].end)) {
            return types[i].type;
        }
    }
    return SLICE("application/octet-stream");
}

/* "v7" and a root's digest name one state for ever; labels and the head move. */
static bool version_is_fixed(struct slice v)
{
    struct digest d;
    uint64_t seq;

    return (v.n > 1 && v.p[0] == 'v' && slice_u64(slice_from(v, 1), &seq)) || digest_parse(v, &d);
}

/* 307 to where the tree is now: links and scripts that have the old name go on. */
static void plan_moved(const struct repo *r, const struct http_req *req, const struct place *at,
                       const struct results *results, struct arena *a, struct plan *p)
{
    struct buf key = BUF_INIT(8192);
    const struct result *to;

    rename_key(&key, slice_str(r->name), at->tree);
    to = plan_row(results, TABLE_MOVED, arena_copy(a, buf_slice(&key)), p);
    buf_free(&key);
    if (to == NULL) {
        return;
    }
    if (to->rc != 0) {
        plan_reply(p, 404, SLICE("no such tree, or no such version of it\n"));
        return;
    }
    plan_redirect(
        p, plan_url(arena_cstr(a, slice_first(req->path, at->prefix)),
                    arena_fmt(a, SLICE_FMT SLICE_FMT, SLICE_ARG(to->bytes), SLICE_ARG(at->tail)),
                    req->query, a));
    p->status = 307;
}

static void plan_hosted_read(const struct repo *r, const struct http_req *req,
                             const struct place *at, const struct results *results, struct arena *a,
                             struct plan *p)
{
    const struct result *head =
        plan_head(results, at->tree, at->version.p != NULL ? at->version : SLICE(""), p);
    const struct result *file;

    if (head == NULL) {
        return;
    }
    if (head->rc != 0) {
        plan_moved(r, req, at, results, a, p);
        return;
    }
    plan_become(p, PLAN_BLOB);
    p->snap = head->snap;
    p->name = at->tree;
    if (at->path.n == 0 || at->path.p[at->path.n - 1] == '/') {
        plan_folder(p, req, at->clean, at->path, a);
        return;
    }
    file = plan_entry(results, &head->snap.root, at->path, p);
    if (file == NULL) {
        return;
    }
    if (file->rc != 0 || file->entry.type != ENTRY_FILE) {
        /* A folder without its slash, or nothing: the listing knows. */
        plan_folder(p, req, at->clean, at->path, a);
        return;
    }
    p->kind = PLAN_BLOB;
    p->entry = file->entry;
    p->content_type = hosted_type_of(at->path);
    p->cache_control = !version_is_fixed(at->version) ? SLICE("no-cache")
                       : r->anonymous_read            ? SLICE("public, max-age=31536000, immutable")
                                           : SLICE("private, max-age=31536000, immutable");
}

/* --- writing --- */

/* An ETag out of If-Match and the like: the text between the quotes; p == NULL for a weak or broken
 * one. */
static struct slice cut_etag(struct slice *rest)
{
    struct slice tag = slice_trim(slice_cut(rest, ','));

    if (tag.n < 2 || tag.p[0] != '"' || tag.p[tag.n - 1] != '"') {
        return SLICE_NONE;
    }
    return slice_of(tag.p + 1, tag.n - 2);
}

static bool plan_condition(const struct http_req *req, struct plan *p)
{
    struct slice match = http_req_list(req, "if-match");
    struct slice none = http_req_list(req, "if-none-match");
    struct slice tag;

    if (slice_eq(none, SLICE("*"))) {
        p->put.if_none_match_any = true;
    } else if (none.p != NULL) {
        plan_reply(
            p, 400,
            SLICE("If-None-Match must be * here, to write a file only if it does not exist\n"));
        return false;
    }
    if (match.p == NULL) {
        return true;
    }
    if (slice_eq(match, SLICE("*"))) {
        p->put.match = MATCH_ANY;
        return true;
    }
    tag = cut_etag(&match);
    p->put.match = slice_starts(tag, SLICE("sha256-")) ? MATCH_FILE : MATCH_ROOT;
    if (!digest_parse(p->put.match == MATCH_FILE ? slice_from(tag, 7) : tag, &p->put.if_match) ||
        match.n != 0) {
        plan_reply(p, 412, SLICE("If-Match must be the root of a listing, in quotes\n"));
        return false;
    }
    return true;
}

/* "bytes a-b/total"; "*" is no total: the last part must be known as such */
static bool content_range(struct slice v, uint64_t *first, uint64_t *end, uint64_t *total)
{
    struct slice b;
    struct slice a;
    uint64_t last;

    if (!slice_starts(v, SLICE("bytes "))) {
        return false;
    }
    v = slice_from(v, 6);
    b = slice_cut(&v, '/');
    a = slice_cut(&b, '-');
    if (!slice_u64(a, first) || !slice_u64(b, &last) || !slice_u64(v, total) || last < *first ||
        last >= *total) {
        return false;
    }
    *end = last + 1;
    return true;
}

static bool plan_body(const struct http_req *req, struct plan *p)
{
    struct slice range = http_req_field(req, "content-range");
    uint64_t end = 0;

    if (http_req_field(req, "content-encoding").p != NULL) {
        plan_reply(
            p, 415,
            SLICE("bodies are stored as received; send this one without Content-Encoding\n"));
        return false;
    }
    p->put.digest_known = digest_from_field(http_req_list(req, "repr-digest"), &p->put.digest);
    if (range.p == NULL) {
        return true;
    }
    if (p->put.kind == PUT_FILE) {
        plan_reply(p, 400,
                   SLICE("Content-Range is only accepted in an upload session; see -/uploads\n"));
        return false;
    }
    if (!content_range(range, &p->put.first, &end, &p->put.total) ||
        (req->content_length != LENGTH_UNKNOWN && req->content_length != end - p->put.first)) {
        plan_reply(p, 400,
                   SLICE("invalid Content-Range; send bytes <first>-<last>/<total>, with the "
                         "length of the body\n"));
        return false;
    }
    return true;
}

bool hosted_path_valid(struct slice path)
{
    return tree_path_valid(path) && !slice_eq(path, SLICE("-")) &&
           !slice_starts(path, SLICE("-/")) && !slice_starts(path, SLICE("resolve/"));
}

static bool plan_target(struct slice path, struct plan *p)
{
    if (!hosted_path_valid(path)) {
        plan_reply(p, 400,
                   SLICE("invalid path of a file: no part may be empty, '.' or '..', it has at "
                         "most 4095 bytes, and '-' and 'resolve/' at the top are reserved\n"));
        return false;
    }
    return true;
}

static void plan_hosted_upload(const struct http_req *req, struct slice rest, struct arena *a,
                               struct plan *p)
{
    struct slice below = rest;
    struct digest unused;
    struct slice raw = req->path;
    bool read = req->method == METHOD_GET || req->method == METHOD_HEAD;

    p->put.upload_id = slice_cut(&below, '/');
    p->put.path = SLICE("");
    if (rest.n == 0 && req->method == METHOD_POST) {
        while (raw.n > 0 && raw.p[raw.n - 1] == '/') {
            raw.n--;
        }
        p->put.kind = PUT_UPLOAD_OPEN;
        p->put.location = arena_copy(a, raw);
        return;
    }
    /* 32 hex digits: half of what digest_parse() takes */
    if (!digest_parse(arena_fmt(a, SLICE_FMT SLICE_FMT, SLICE_ARG(p->put.upload_id),
                                SLICE_ARG(p->put.upload_id)),
                      &unused)) {
        plan_reply(p, 404, SLICE("no such upload\n"));
    } else if (req->method == METHOD_POST && slice_eq(below, SLICE("commit"))) {
        p->put.kind = PUT_UPLOAD_COMMIT;
        p->put.replace = plan_asks(req->query, SLICE("replace=1"));
        (void)plan_condition(req, p);
    } else if (req->method == METHOD_DELETE && below.n == 0) {
        p->put.kind = PUT_UPLOAD_ABORT;
    } else if (read && below.n == 0) {
        p->put.kind = PUT_UPLOAD_STATUS;
    } else if (read || req->method == METHOD_PUT) {
        p->put.kind = read ? PUT_UPLOAD_STATUS : PUT_UPLOAD_FILE;
        p->put.take_over = req->method == METHOD_HEAD;
        p->put.path = below;
        if (plan_target(below, p) && !read) {
            (void)plan_body(req, p);
        }
    } else {
        plan_method(p, SLICE("GET, HEAD, PUT, POST, DELETE"),
                    SLICE("method not allowed: an upload accepts POST .../-/uploads, PUT and HEAD "
                          "below its Location, POST <Location>/commit, DELETE <Location>\n"));
    }
}

/* False: what is named does not move. That a branch is one, the store knows. */
static bool plan_branch(const struct place *at, struct plan *p)
{
    if (at->version.p != NULL && version_is_fixed(at->version)) {
        plan_method(p, SLICE("GET, HEAD"),
                    SLICE("a version never changes; write to the tree, or to a branch of it\n"));
        return false;
    }
    p->put.branch =
        at->version.p == NULL || slice_eqs(at->version, "main") ? SLICE("") : at->version;
    return true;
}

static void plan_write(const struct http_req *req, const struct place *at, struct plan *p)
{
    p->put.path = at->path;
    if (!plan_branch(at, p)) {
        return;
    } else if (req->method == METHOD_PUT) {
        p->put.kind = PUT_FILE;
        if (plan_target(at->path, p) && plan_condition(req, p)) {
            (void)plan_body(req, p);
        }
    } else if (req->method == METHOD_DELETE) {
        struct slice path = at->path;
        p->put.kind = PUT_DELETE;
        path.n -= path.n != 0 && path.p[path.n - 1] == '/'; /* a folder */
        if ((path.n == 0 && !at->bare) || plan_target(path, p)) {
            (void)plan_condition(req, p);
        }
    } else {
        plan_method(p, SLICE("GET, HEAD, PUT, DELETE"),
                    SLICE("method not allowed: this path accepts GET, HEAD, PUT and DELETE\n"));
    }
}

static int hosted_plan(const struct repo *r, const struct http_req *req, struct slice path,
                       const struct principal *who, const struct results *results,
                       struct arena *arena, struct plan *out, struct err *e)
{
    bool read = req->method == METHOD_GET || req->method == METHOD_HEAD;
    struct slice uploads = SLICE("-/uploads");
    struct place at;
    struct slice clean;
    int rc;

    struct hub_ask hub = {
        .r = r, .req = req, .who = who, .results = results, .a = arena, .p = out, .path = path};
    struct python_ask python = {
        .r = r, .req = req, .who = who, .results = results, .a = arena, .p = out, .path = path};

    if (oci_asked(req)) {
        image_plan(&(struct image_ask){.r = r,
                                       .req = req,
                                       .who = who,
                                       .results = results,
                                       .a = arena,
                                       .p = out,
                                       .path = path});
        return 0;
    }
    rc = plan_path(path, arena, &clean, e);
    python.clean = clean;
    if (rc != 0 || python_plan(&python) || hub_plan(&hub, &rc, e)) {
        return rc;
    }
    if (!split_hosted_path(clean, arena, &at)) {
        plan_reply(out, 404,
                   SLICE("invalid path: write [datasets/|spaces/]<owner>/<name>[@version]/<path>; "
                         "owner and name have letters, digits, '_', '.' and '-'\n"));
        return 0;
    }
    at.prefix = req->path.n - path.n;
    if (!plan_tree_path(at.path, arena, &at.path)) {
        plan_reply(out, read ? 404 : 400, SLICE("a file name must not have a slash\n"));
        return 0;
    }
    out->right = read ? RIGHT_READ : RIGHT_PUBLISH;
    out->subject = arena_fmt(arena, "%s/" SLICE_FMT "%s" SLICE_FMT, r->name, SLICE_ARG(at.tree),
                             at.tree.p != NULL ? "/" : "", SLICE_ARG(at.path));
    if (at.tree.p == NULL) {
        if (!read) {
            plan_method(out, SLICE("GET, HEAD"),
                        SLICE("files must be in a tree: <owner>/<name>/<path>\n"));
        } else if (at.bare) {
            plan_redirect_to_folder(out, req, clean, arena);
        } else {
            plan_become(out, PLAN_LIST);
            plan_folder(out, req, clean, at.path, arena);
        }
        return 0;
    }
    plan_become(out, PLAN_PUT);
    out->put.repo = slice_str(r->name);
    out->put.name = at.tree;
    out->put.total = LENGTH_UNKNOWN;
    out->put.note.author = who->name;
    if (slice_eq(at.path, uploads) || slice_starts(at.path, SLICE("-/uploads/"))) {
        struct slice rest = slice_from(at.path, uploads.n);
        out->right = RIGHT_PUBLISH;
        if (plan_branch(&at, out)) {
            plan_hosted_upload(req, rest.n != 0 ? slice_from(rest, 1) : rest, arena, out);
        }
    } else if (at.version.p == NULL && slice_starts(at.path, SLICE("-/objects/"))) {
        hub.tree = at.tree;
        hub_object(&hub, slice_from(at.path, 10));
    } else if (!read) {
        plan_write(req, &at, out);
    } else if (at.bare) {
        plan_redirect_to_folder(out, req, clean, arena);
    } else {
        plan_hosted_read(r, req, &at, results, arena, out);
    }
    return 0;
}

static void hosted_put_answer(const struct repo *r, const struct plan *p, struct upload_reply *u,
                              struct arena *a, struct http_reply *reply)
{
    if (slice_eqs(p->variant, "oci")) {
        image_put_answer(p, u, a, reply);
    } else if (p->put.kind == PUT_FORM) {
        python_put_answer(p, u);
    } else {
        hub_put_answer(r, p, u, a, reply);
    }
}

/* No page of ours shows an image. */
static int hosted_list(const struct repo *r, const struct plan *p, struct store *s,
                       const struct listing_sight *sight, struct listing_out *out, struct err *e)
{
    switch ((enum hosted_list)p->form) {
    case LIST_HOSTED_FOLDER:
        return folder_list_but(r, p, s, image_is_tree, out, e);
    case LIST_HUB_TREES:
        return hub_trees(s, r, p, sight, out, e);
    case LIST_HUB_INFO:
    case LIST_HUB_TREE:
    case LIST_HUB_PATHS:
    case LIST_HUB_MODES:
    case LIST_HUB_REFS:
    case LIST_HUB_COMMITS:
    case LIST_HUB_OBJECTS:
    case LIST_HUB_TENSORS:
        return hub_listing(s, r, p, out->body, &out->content_type, e);
    case LIST_IMAGE_TAGS:
    case LIST_IMAGE_REFERRERS:
        return image_listing(s, p, out, e);
    case LIST_PYTHON_PROJECTS:
    case LIST_PYTHON_PROJECT:
        return python_listing(s, r, p, sight, out, e);
    }
    return err_set(e, E_INTERNAL, "no such listing");
}

const struct repo_ops repo_hosted = {
    .name = "hosted",
    .by_host = true,
    .registry = true,
    .open = hosted_open,
    .plan = hosted_plan,
    .list = hosted_list,
    .put_answer = hosted_put_answer,
    .failed = hub_failed,
};
