#include "server/repo/hosted/python.h"

#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "common/codec/multipart.h"
#include "common/codec/url.h"
#include "server/repo/hosted/hosted.h"
#include "server/repo/pypi/accept.h"
#include "server/repo/python/name.h"

/* What a form may have beside its file, and more (python_form.c). */
#define FORM_SLACK_BYTES ((uint64_t)32 << 20)

struct spot {                   /* a path below simple/, taken apart */
    struct slice name, version; /* version "": the live one */
    struct slice file;          /* p == NULL: the page, without its '/' */
};

bool python_owns(struct slice tree)
{
    return slice_starts(tree, SLICE("simple/"));
}

bool python_is_file(struct slice name)
{
    return slice_ends(name, SLICE(".whl")) || slice_ends(name, SLICE(".tar.gz")) ||
           slice_ends(name, SLICE(".zip"));
}

/* --- which form of a page --------------------------------------------------------------------- */

static bool asks_for(const struct http_req *req, const char *type)
{
    struct slice accept = http_req_list(req, "accept");

    while (accept.n != 0) {
        struct slice one = slice_cut(&accept, ',');
        if (slice_ieq(slice_trim(slice_cut(&one, ';')), slice_str(type))) {
            return true;
        }
    }
    return false;
}

/* A hosted tree's own listing is asked for as such: agents and scripts read that of any tree. */
static bool wants_tree(const struct http_req *req)
{
    return plan_asks(req->query, SLICE("recursive=1")) ||
           plan_asks(req->query, SLICE("format=json")) ||
           (page_format_of(http_req_list(req, "accept"), req->query) == PAGE_NONE &&
            http_weight_of(http_req_list(req, "accept"), SLICE("application/json")) >= 0);
}

/* False: the client accepts none of our formats, and was answered. */
static bool page_form(struct python_ask *k, enum hosted_list form)
{
    enum page_format f = page_format_of(http_req_list(k->req, "accept"), k->req->query);

    if (f == PAGE_NONE) {
        plan_reply(k->p, 406,
                   SLICE("the pages of a package index are available as "
                         "application/vnd.pypi.simple.v1+json, ...v1+html or text/html, and as the "
                         "listing of a tree with ?recursive=1\n"));
        return false;
    }
    plan_become(k->p, PLAN_LIST);
    k->p->form = (int)form;
    k->p->text = page_format_name(f);
    k->p->cache_control = k->r->anonymous_read ? SLICE("no-cache") : SLICE("private, no-cache");
    return true;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Of a closed repo each sees what their token's scopes name. */
static void plan_projects(struct python_ask *k)
{
    bool sift = !k->r->anonymous_read && k->who->token != NULL;

    k->p->subject = arena_fmt(k->a, "%s/simple/", k->r->name);
    k->p->right = sift ? RIGHT_KNOWN : RIGHT_READ;
    if (page_form(k, LIST_PYTHON_PROJECTS)) {
        k->p->sift = sift;
    }
}

static struct slice tree_of(const struct python_ask *k, const struct spot *at)
{
    return arena_fmt(k->a, "simple/" SLICE_FMT, SLICE_ARG(at->name));
}

/* NULL: the plan asks, or has answered. */
static const struct result *project_head(struct python_ask *k, const struct spot *at)
{
    const struct result *head = plan_head(k->results, tree_of(k, at), at->version, k->p);

    if (head != NULL && head->rc != 0) {
        plan_reply(k->p, 404, SLICE("no such project, or no such version of its tree\n"));
    }
    return head != NULL && head->rc == 0 ? head : NULL;
}

static void plan_project(struct python_ask *k, const struct spot *at)
{
    const struct result *head = project_head(k, at);

    if (head != NULL && page_form(k, LIST_PYTHON_PROJECT)) {
        k->p->snap = head->snap;
        k->p->name = tree_of(k, at);
        k->p->entry.path = SLICE("");
    }
}

static void plan_wheel_file(struct python_ask *k, const struct spot *at)
{
    const struct result *head = project_head(k, at);
    const struct result *file = NULL;
    struct plan *p = k->p;

    if (head != NULL) {
        file = plan_entry(k->results, &head->snap.root, at->file, p);
    }
    if (file == NULL) {
        return;
    }
    if (file->rc != 0 || file->entry.type != ENTRY_FILE) {
        plan_reply(p, 404, SLICE("this project does not have that file\n"));
        return;
    }
    plan_become(p, PLAN_BLOB);
    p->entry = file->entry;
    p->snap = head->snap;
    p->name = tree_of(k, at);
    p->content_type = python_is_file(at->file) ? SLICE("application/octet-stream")
                                               : SLICE("text/plain; charset=utf-8");
    /* uv keeps files for ever only on hosts that it knows; on ours this must be said. */
    p->cache_control = !python_is_file(at->file) && !slice_ends(at->file, SLICE(".metadata"))
                           ? SLICE("no-cache")
                       : k->r->anonymous_read ? SLICE("max-age=365000000, immutable, public")
                                              : SLICE("max-age=365000000, immutable, private");
}

/* --- marks, and taking away ------------------------------------------------------------------- */

static void plan_put(struct python_ask *k, const struct spot *at, enum put_kind kind)
{
    struct put *put = &k->p->put;

    plan_become(k->p, PLAN_PUT);
    k->p->right = RIGHT_PUBLISH;
    put->kind = kind;
    put->repo = slice_str(k->r->name);
    put->name = tree_of(k, at);
    put->path = at->file.p != NULL ? at->file : SLICE("");
    put->branch = SLICE("");
    put->total = LENGTH_UNKNOWN;
    put->note.author = k->who->name;
}

/* PUT <file>.yanked, with the reason as its body. */
static void plan_yank(struct python_ask *k, const struct spot *at)
{
    const struct result *head, *file;
    struct plan *p = k->p;

    p->right = RIGHT_PUBLISH; /* only callers that may publish see what exists */
    head = project_head(k, at);
    if (head == NULL) {
        return;
    }
    file = plan_entry(k->results, &head->snap.root, slice_first(at->file, at->file.n - 7), p);
    if (file != NULL && file->rc != 0) {
        plan_reply(p, 404, SLICE("this project does not have that file\n"));
    } else if (file != NULL) {
        plan_put(k, at, PUT_FILE);
        p->put.max_bytes = PYTHON_WHY_MAX;
    }
}

static void plan_change(struct python_ask *k, const struct spot *at)
{
    bool mark = slice_ends(at->file, SLICE(".yanked")) &&
                python_is_file(slice_first(at->file, at->file.n - 7));
    bool whole = at->file.p != NULL && at->file.n == 0;

    if (at->version.n != 0) {
        plan_method(k->p, SLICE("GET, HEAD"), SLICE("a version of a project never changes\n"));
    } else if (k->req->method == METHOD_PUT && mark) {
        plan_yank(k, at);
    } else if (k->req->method == METHOD_DELETE && (whole || mark || python_is_file(at->file))) {
        plan_put(k, at, PUT_DELETE);
        k->p->put.beside = !mark && !whole;
    } else {
        plan_method(
            k->p, SLICE("GET, HEAD"),
            SLICE("this is a Python package index; upload files by POST to legacy/ (twine upload "
                  "--repository-url .../legacy/, uv publish --publish-url .../legacy/); other "
                  "writes are PUT and DELETE <file>.yanked and DELETE <file>\n"));
    }
}

/* --- uploads ---------------------------------------------------------------------------------- */

static void plan_wheel_upload(struct python_ask *k)
{
    struct plan *p = k->p;
    struct slice boundary;

    p->right = RIGHT_TOKEN;
    p->subject = arena_fmt(k->a, "%s/simple/", k->r->name);
    p->variant =
        asks_for(k->req, "application/problem+json") ? SLICE("python problem") : SLICE("python");
    if (k->who->token == NULL) {
        plan_become(p, PLAN_PUT); /* answered with 401 */
    } else if (!multipart_boundary(http_req_field(k->req, "content-type"), k->a, &boundary)) {
        plan_reply(
            p, 415,
            SLICE("invalid upload: send a multipart/form-data form, as twine and uv publish do\n"));
    } else if (http_req_field(k->req, "content-encoding").p != NULL) {
        plan_reply(p, 415,
                   SLICE("forms are read as received; send this one without Content-Encoding\n"));
    } else if (k->r->max_object_bytes != 0 && k->req->content_length != LENGTH_UNKNOWN &&
               k->req->content_length > k->r->max_object_bytes &&
               k->req->content_length - k->r->max_object_bytes > FORM_SLACK_BYTES) {
        plan_reply(
            p, 413,
            arena_fmt(
                k->a,
                "the file is too large: files of this repo have at most %llu bytes (max_object)\n",
                (unsigned long long)k->r->max_object_bytes));
    } else {
        plan_become(p, PLAN_PUT);
        p->form_reader = &python_form_reader;
        p->text = boundary;
        p->put.kind = PUT_FORM;
        p->put.repo = slice_str(k->r->name);
        p->put.branch = SLICE("");
        p->put.total = LENGTH_UNKNOWN;
        p->put.max_bytes = k->r->max_object_bytes;
        p->put.note.author = k->who->name;
    }
}

/* {"error": ...}, or the tree that came of it, as one line or as RFC 9457 has it. */
void python_put_answer(const struct plan *p, struct upload_reply *u)
{
    bool good = u->status == 200 || u->status == 201;
    json_t *o = good ? NULL : json_loadb(u->body.p, u->body.n, 0, NULL);
    struct slice why = jread_text(o, "error");
    struct buf body = BUF_INIT(u->body.max);

    if (good) {
        buf_str(&body,
                u->published ? "the file is published\n" : "the file was already published\n");
        u->status = 200; /* what the tools' own index answers */
    } else if (why.p == NULL) {
        json_decref(o);
        return;
    } else if (slice_eqs(p->variant, "python problem")) {
        jwrite_open(&body, NULL, '{');
        jwrite_str(&body, "type", "about:blank");
        jwrite_str(&body, "title", http_reason(u->status));
        jwrite_u64(&body, "status", (uint64_t)u->status);
        jwrite_text(&body, "detail", why);
        jwrite_close(&body, '}');
        buf_byte(&body, '\n');
    } else {
        buf_adds(&body, why);
        buf_byte(&body, '\n');
    }
    u->content_type = !good && slice_eqs(p->variant, "python problem")
                          ? SLICE("application/problem+json")
                          : SLICE("text/plain; charset=utf-8");
    buf_free(&u->body);
    u->body = body;
    json_decref(o);
}

/* --- which requests --------------------------------------------------------------------------- */

/* True: the client is redirected to the page's canonical name. */
static bool redirect_project(struct python_ask *k, const struct spot *at)
{
    struct slice normal = pyname_normal(at->name, k->a);
    bool bare = at->file.p == NULL;
    struct slice query = k->req->query;

    if (slice_eq(normal, at->name) && !bare) {
        return false;
    }
    plan_redirect(k->p,
                  arena_fmt(k->a, "%s" SLICE_FMT "%s" SLICE_FMT "/" SLICE_FMT "%s" SLICE_FMT,
                            bare ? "./" : "../", SLICE_ARG(normal), at->version.n != 0 ? "@" : "",
                            SLICE_ARG(at->version), SLICE_ARG(url_encoded_path(at->file, k->a)),
                            query.n != 0 ? "?" : "", SLICE_ARG(query)));
    return true;
}

/* False: no project has such a path. */
static bool split_python_path(struct slice rest, struct arena *a, struct spot *out)
{
    struct slice name = slice_cut(&rest, '/');
    bool bare = name.p + name.n == rest.p && rest.n == 0;
    size_t before = name.n;

    out->version = name;
    out->name = slice_cut(&out->version, '@');
    if (out->name.n != before && !hosted_version_valid(out->version)) {
        return false;
    }
    out->file = SLICE_NONE;
    if (!bare && !plan_tree_path(rest, a, &out->file)) {
        return false;
    }
    return pyname_valid(out->name) && out->name.n <= PYTHON_NAME_MAX &&
           (out->file.n == 0 || (slice_find(out->file, '/') < 0 && tree_path_valid(out->file)));
}

static void plan_spot(struct python_ask *k, const struct spot *at)
{
    bool read = k->req->method == METHOD_GET || k->req->method == METHOD_HEAD;
    struct plan *p = k->p;

    p->right = read ? RIGHT_READ : RIGHT_PUBLISH;
    p->subject = arena_fmt(k->a, "%s/simple/" SLICE_FMT "/" SLICE_FMT, k->r->name,
                           SLICE_ARG(at->name), SLICE_ARG(at->file));
    if (read && redirect_project(k, at)) {
        return;
    }
    if (!slice_eq(pyname_normal(at->name, k->a), at->name)) {
        plan_reply(p, 404, SLICE("the path of a project must have its normalized name\n"));
    } else if (!read) {
        plan_change(k, at);
    } else if (at->file.n == 0) {
        plan_project(k, at);
    } else {
        plan_wheel_file(k, at);
    }
}

bool python_plan(struct python_ask *k)
{
    struct slice rest = k->clean;
    struct slice first = slice_cut(&rest, '/');
    bool read = k->req->method == METHOD_GET || k->req->method == METHOD_HEAD;
    struct spot at;

    if (slice_eqs(first, "legacy") && rest.n == 0 && k->req->method == METHOD_POST) {
        plan_wheel_upload(k);
        return true;
    }
    if (!slice_eqs(first, "simple") || (read && wants_tree(k->req))) {
        return false;
    }
    if (rest.n == 0 && !read) {
        plan_method(k->p, SLICE("GET, HEAD"),
                    SLICE("this is the index; upload by POST to legacy/ (twine upload "
                          "--repository-url .../legacy/, uv publish --publish-url .../legacy/)\n"));
    } else if (rest.n == 0 && first.n == k->clean.n) {
        plan_redirect(k->p, SLICE("./simple/"));
    } else if (rest.n == 0) {
        plan_projects(k);
    } else if (split_python_path(rest, k->a, &at)) {
        plan_spot(k, &at);
    } else {
        plan_reply(k->p, 404, SLICE("invalid path of a project: write simple/<name>/<file>\n"));
    }
    return true;
}
