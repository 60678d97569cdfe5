/* pypi.c - Python package indexes: simple pages in both forms, files by link id, find-links pages.
 * docs/protocols/pypi.md */
#include <stdlib.h>

#include "server/repo/pypi/page.h"
#include "server/repo/plan.h"

struct pypi {
    bool only_named; /* unknown_host = "drop" */
};

/* One representation is kept; either form can be made of either. */
static const struct slice accept_upstream = {
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.5, "
    "text/html;q=0.1",
    sizeof("application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.5, "
           "text/html;q=0.1") -
        1};

/* Object stores say 403 for what is not there; to pip and uv that would be the end, not the next
 * index. */
static const struct status_map forbidden_is_absent[] = {{403, 404}};

static int pypi_open(struct repo *r, const struct repo_conf *conf, struct err *e)
{
    struct pypi *p;
    const char *unknown = conf->unknown_host != NULL ? conf->unknown_host : "register";

    if (r->origin == NULL) {
        return err_set(e, E_CONFIG, "protocol \"pypi\" needs an origin = \"https://...\"");
    }
    if (strcmp(unknown, "register") != 0 && strcmp(unknown, "drop") != 0) {
        return err_set(e, E_CONFIG, "unknown_host is \"%s\"; it must be register or drop", unknown);
    }
    p = NEW(struct pypi);
    p->only_named = strcmp(unknown, "drop") == 0;
    r->state = p;
    return 0;
}

static void pypi_close(struct repo *r)
{
    free(r->state);
}

/* --- paths --- */

static bool ends_with_any(struct slice s, const char *const *ends)
{
    for (; *ends != NULL; ends++) {
        size_t n = strlen(*ends);
        if (s.n > n && slice_ieq(slice_from(s, s.n - n), slice_str(*ends))) {
            return true;
        }
    }
    return false;
}

/* Files whose bytes never change under their name. */
static bool is_distribution(struct slice path)
{
    static const char *const ends[] = {
        ".whl", ".tar.gz", ".zip", ".tar.bz2", ".tar.xz", ".tgz", ".egg", ".exe",      ".msi",
        ".deb", ".rpm",    ".dmg", ".tar.zst", ".tar.z",  ".asc", ".sig", ".metadata", NULL};
    return ends_with_any(path, ends);
}

static bool is_page(struct slice path)
{
    static const char *const ends[] = {".html", ".htm", NULL};
    return path.n == 0 || path.p[path.n - 1] == '/' || ends_with_any(path, ends);
}

static struct slice last_segment(struct slice path)
{
    return slice_from(path, slice_behind(path, '/'));
}

/* PEP 503: small letters, runs of - _ . become one '-'. p == NULL: no project has such a name. */
static struct slice normal_name(struct slice name, struct arena *a)
{
    char *out = arena_alloc(a, name.n + 1);
    size_t n = 0;

    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        bool mark = c == '-' || c == '_' || c == '.';
        bool upper = c >= 'A' && c <= 'Z';

        if (!mark && !upper && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9')) {
            return SLICE_NONE;
        }
        if (!mark) {
            out[n++] = upper ? (char)(c + 'a' - 'A') : c;
        } else if (n == 0 || out[n - 1] != '-') {
            out[n++] = '-';
        }
    }
    return slice_of(out, n);
}

/* Is it simple/<name> or simple/<name>/? */
static bool project_of(struct slice path, struct slice *name)
{
    if (!slice_starts(path, SLICE("simple/"))) {
        return false;
    }
    *name = slice_from(path, 7);
    name->n -= name->n != 0 && name->p[name->n - 1] == '/';
    return name->n != 0 && slice_find(*name, '/') < 0;
}

static struct slice with_query(struct slice location, struct slice query, struct arena *a)
{
    return query.p == NULL
               ? location
               : arena_fmt(a, SLICE_FMT "?" SLICE_FMT, SLICE_ARG(location), SLICE_ARG(query));
}

/* --- pages --- */

static void plan_unacceptable(struct plan *p)
{
    plan_reply(p, 406,
               SLICE("this page is available as application/vnd.pypi.simple.v1+json, "
                     "application/vnd.pypi.simple.v1+html or text/html\n"));
}

static void plan_page(const struct repo *r, const struct http_req *req, struct slice path,
                      struct arena *a, struct plan *p)
{
    enum page_format f = page_format_of(http_req_list(req, "accept"), req->query);
    const struct rule *rule = plan_rule(r, path, a);

    if (f == PAGE_NONE) {
        plan_unacceptable(p);
        return;
    }
    if (rule->class == RULE_DENY) {
        plan_reply(p, 403, SLICE("a rule of this repo denies this path\n"));
        return;
    }
    plan_lookup(r, rule, path, a, p);
    p->lookup.url = plan_url(origin_url(r->origin), path, SLICE_NONE, a);
    p->lookup.accept = accept_upstream;
    if (rule->status_maps == 0) {
        p->lookup.status_map = forbidden_is_absent;
        p->lookup.status_maps = ARRAY_LEN(forbidden_is_absent);
    }
    p->delivery = DELIVERY_REWRITTEN;
    p->variant = page_format_name(f);
}

/* True: the client is redirected to the page's canonical name. */
static bool redirect_simple_page(const struct http_req *req, struct slice path, struct arena *a,
                                 struct plan *p)
{
    bool slash = path.n != 0 && path.p[path.n - 1] == '/';
    struct slice name;
    struct slice normal;

    if (project_of(path, &name) && !is_distribution(name)) {
        normal = normal_name(name, a);
        if (normal.p == NULL) {
            plan_reply(p, 404, SLICE("invalid name of a project\n"));
            return true;
        }
        if (slash && slice_eq(normal, name)) {
            return false;
        }
        plan_redirect(
            p, with_query(arena_fmt(a, "%s" SLICE_FMT "/", slash ? "../" : "./", SLICE_ARG(normal)),
                          req->query, a));
        return true;
    }
    if (path.n == 0 && req->path.n != 0 && req->path.p[req->path.n - 1] != '/') {
        path = slice_from(req->path, 1); /* the repo itself, without its '/' */
    } else if (is_page(path) || is_distribution(path)) {
        return false;
    }
    plan_redirect(
        p, with_query(arena_fmt(a, SLICE_FMT "/",
                                SLICE_ARG(plan_url("./", last_segment(path), SLICE_NONE, a))),
                      req->query, a));
    return true;
}

/* --- files --- */

static void as_file(const struct repo *r, struct slice path, const struct rule *rule,
                    struct plan *p)
{
    if (rule->built_in && is_distribution(path)) {
        p->lookup.class = LOOKUP_IMMUTABLE;
    }
    if (p->lookup.class == LOOKUP_IMMUTABLE) {
        /* uv keeps files for ever only on hosts that it knows; on ours this must be said. */
        p->cache_control = r->anonymous_read ? SLICE("max-age=365000000, immutable, public")
                                             : SLICE("max-age=365000000, immutable, private");
    }
    p->content_type = slice_ends(path, SLICE(".metadata")) ? SLICE("text/plain; charset=utf-8")
                                                           : SLICE("application/octet-stream");
}

static bool denied(const struct rule *rule, struct plan *p)
{
    if (rule->class == RULE_DENY) {
        plan_reply(p, 403, SLICE("a rule of this repo denies this path\n"));
    }
    return rule->class == RULE_DENY;
}

/* A file below the index itself, as find-links pages and PyTorch's have them. */
static void plan_own_file(const struct repo *r, const struct http_req *req, struct slice path,
                          struct arena *a, struct plan *p)
{
    const struct rule *rule = plan_rule(r, path, a);

    if (denied(rule, p)) {
        return;
    }
    plan_lookup(r, rule, path, a, p);
    p->lookup.key = plan_key(path, req->query, a);
    p->lookup.url = plan_url(origin_url(r->origin), path, req->query, a);
    as_file(r, path, rule, p);
}

/* Another mirror may have made the page that a client has its links from. */
static void may_be_elsewhere(const struct result *f, struct plan *p)
{
    if (f == NULL) {
        p->dependency.elsewhere = true;
    }
}

/* What stands for the link's id; NULL: it is not known yet. */
static const struct result *require_link(const struct repo *r, const struct results *results,
                                         struct slice id, struct arena *a, struct plan *p)
{
    struct buf key = BUF_INIT(256);
    const struct result *f;

    link_row_key(&key, slice_str(r->name), id);
    f = plan_row(results, TABLE_ORIGIN, arena_copy(a, buf_slice(&key)), p);
    may_be_elsewhere(f, p);
    buf_free(&key);
    return f;
}

/* What the link's page tells of the file, else what all others do; NULL as above. */
static const struct result *require_file(const struct repo *r, const struct results *results,
                                         struct slice origin, struct slice file, struct slice id,
                                         struct arena *a, struct plan *p)
{
    struct buf key = BUF_INIT(256 + origin.n + file.n);
    const struct result *f;

    file_row_key(&key, slice_str(r->name), origin, file, id);
    f = plan_row(results, TABLE_ORIGIN, arena_copy(a, buf_slice(&key)), p);
    may_be_elsewhere(f, p);
    if (f != NULL && f->rc != 0) {
        file_row_key(&key, slice_str(r->name), origin, file, SLICE(""));
        f = plan_rows(results, TABLE_ORIGIN, arena_copy(a, buf_slice(&key)), p);
    }
    buf_free(&key);
    return f;
}

static void plan_unknown_file(struct plan *p)
{
    plan_reply(p, 404,
               SLICE("this mirror does not know the host of this file; request the page of the "
                     "project first\n"));
}

/* "+f/<id>/<path>": the row of the link, then of the file; what they say does not come from the
 * client. */
static void plan_pypi_file(const struct repo *r, const struct http_req *req, struct slice path,
                           const struct results *results, struct arena *a, struct plan *p)
{
    const struct rule *rule = plan_rule(r, path, a);
    struct slice file = slice_from(path, 3);
    struct slice id = slice_cut(&file, '/');
    struct slice key = plan_key(file, req->query, a);
    struct file_results known;
    const struct result *link;
    const struct result *reported;
    struct slice via;
    struct slice origin;

    if (denied(rule, p)) {
        return;
    }
    if (id.n != LINK_ID || file.n == 0) {
        plan_unknown_file(p);
        return;
    }
    plan_lookup(r, rule, path, a, p);
    link = require_link(r, results, id, a, p);
    if (link == NULL) {
        return;
    }
    if (link->rc != 0) {
        plan_unknown_file(p);
        return;
    }
    via = link->bytes;
    origin = slice_cut(&via, '\0');
    reported = require_file(r, results, origin, key, id, a, p);
    if (reported == NULL) {
        return;
    }
    p->lookup.key = arena_fmt(a, "+f/" SLICE_FMT "/" SLICE_FMT, SLICE_ARG(origin), SLICE_ARG(key));
    p->lookup.url = plan_url(arena_fmt(a, SLICE_FMT "/", SLICE_ARG(origin)).p, file, req->query, a);
    p->lookup.via = via;
    if (reported->rc == 0 && file_rows_agree(reported->bytes, &known)) {
        p->lookup.size_bytes = known.size_bytes;
        p->lookup.digest_known = true;
        p->lookup.digest = known.digest;
    }
    as_file(r, file, rule, p);
}

/* The key has the host where the path had the link's id, of which there may be many; rules see it
 * so here. */
static bool pypi_kept(const struct repo *r, struct slice key, struct arena *a, struct lookup *out)
{
    struct slice path = slice_cut(&key, '?');
    const struct rule *rule = plan_rule(r, path, a);
    struct plan p = {0};

    if (!slice_starts(path, SLICE("+f/")) || rule->class == RULE_DENY) {
        return false;
    }
    plan_lookup(r, rule, path, a, &p);
    as_file(r, path, rule, &p);
    *out = p.lookup;
    return true;
}

/* --- mirrored whole: pages and files out of the published tree (docs/decisions/0011) --- */

static void plan_entry_of(const struct repo *r, const struct results *results,
                          const struct snap *sn, struct slice path, struct plan *p)
{
    const struct result *f = plan_entry(results, &sn->root, path, p);

    if (f == NULL) {
        return;
    }
    if (f->rc != 0 || f->entry.type != ENTRY_FILE) {
        plan_reply(
            p, 404,
            SLICE(
                "this mirror keeps only what its settings require, which does not include this\n"));
        return;
    }
    plan_become(p, PLAN_BLOB);
    p->entry = f->entry;
    p->snap = *sn;
    p->name = slice_str(r->name);
}

static void plan_synced_page(const struct repo *r, const struct http_req *req, struct slice path,
                             const struct results *results, const struct snap *sn, struct arena *a,
                             struct plan *p)
{
    enum page_format f = page_format_of(http_req_list(req, "accept"), req->query);

    if (f == PAGE_NONE) {
        plan_unacceptable(p);
        return;
    }
    plan_entry_of(
        r, results, sn,
        arena_fmt(a, SLICE_FMT "index.%s", SLICE_ARG(path), f == PAGE_JSON ? "json" : "html"), p);
    if (p->kind == PLAN_BLOB) {
        p->content_type = page_format_type(f);
        p->cache_control = SLICE("no-cache");
        plan_field(p, SLICE("vary"), SLICE("accept"));
    }
}

static void plan_of_tree(const struct repo *r, const struct http_req *req, struct slice path,
                         const struct results *results, struct arena *a, struct plan *p)
{
    const struct snap *sn;
    struct slice version;

    p->right = RIGHT_READ;
    p->subject = arena_fmt(a, "%s/" SLICE_FMT, r->name, SLICE_ARG(path));
    version = plan_cut_version(&path);
    if (denied(plan_rule(r, path, a), p) || redirect_simple_page(req, path, a, p)) {
        return;
    }
    sn = plan_synced(results, version, p);
    if (sn == NULL) {
        return;
    }
    if (path.n == 0 || path.p[path.n - 1] == '/') {
        plan_synced_page(r, req, path, results, sn, a, p);
        return;
    }
    plan_entry_of(r, results, sn, path, p);
    if (p->kind == PLAN_BLOB) {
        p->lookup.class = LOOKUP_IMMUTABLE;
        as_file(r, path, plan_rule(r, path, a), p);
    }
}

static int pypi_plan(const struct repo *r, const struct http_req *req, struct slice path,
                     const struct principal *who, const struct results *results,
                     struct arena *arena, struct plan *out, struct err *e)
{
    struct slice clean;
    int rc;

    (void)who;
    if (!plan_enter(req, path, arena, &clean, out, &rc, e)) {
        return rc;
    }
    if (r->synced) {
        plan_of_tree(r, req, clean, results, arena, out);
    } else if (slice_starts(clean, SLICE("+f/"))) {
        plan_pypi_file(r, req, clean, results, arena, out);
    } else if (redirect_simple_page(req, clean, arena, out)) {
        return 0;
    } else if (is_page(clean)) {
        plan_page(r, req, clean, arena, out);
    } else {
        plan_own_file(r, req, clean, arena, out);
    }
    return 0;
}

static void pypi_answer(const struct repo *r, const struct plan *p, const struct answer *a,
                        struct arena *arena, struct http_reply *reply)
{
    (void)r;
    (void)a;
    (void)arena;
    if (p->kind == PLAN_LOOKUP && p->delivery == DELIVERY_REWRITTEN) {
        reply_add(reply, SLICE("vary"), SLICE("accept"));
    }
}

/* --- documents --- */

enum document { DOCUMENT_NEITHER, DOCUMENT_JSON, DOCUMENT_HTML };

static bool type_has(struct slice type, const char *word)
{
    return type.n != 0 && memmem(type.p, type.n, word, strlen(word)) != NULL;
}

/* By its type; plain file servers may give none that says it, then by its first byte. */
static enum document document_of(struct slice doc, struct slice type)
{
    type = slice_cut(&type, ';');
    if (type_has(type, "json")) {
        return DOCUMENT_JSON;
    }
    if (type_has(type, "html")) {
        return DOCUMENT_HTML;
    }
    while (doc.n > 0 &&
           (doc.p[0] == ' ' || doc.p[0] == '\n' || doc.p[0] == '\r' || doc.p[0] == '\t')) {
        doc = slice_from(doc, 1);
    }
    return doc.n == 0        ? DOCUMENT_NEITHER
           : doc.p[0] == '{' ? DOCUMENT_JSON
           : doc.p[0] == '<' ? DOCUMENT_HTML
                             : DOCUMENT_NEITHER;
}

static int pypi_rewrite(const struct repo *r, const struct plan *p, struct slice doc,
                        struct slice content_type, struct slice url, struct rewrite_out *out,
                        struct err *e)
{
    const struct pypi *state = r->state;
    enum page_format f = page_format_named(p->variant);
    enum document kind = document_of(doc, content_type);
    struct page page;
    int rc;

    if (kind == DOCUMENT_NEITHER) {
        return err_set(
            e, E_UNSUPPORTED, "the page is neither HTML nor JSON, but \"" SLICE_FMT "\"",
            SLICE_ARG(slice_first(content_type, content_type.n < 64 ? content_type.n : 64)));
    }
    out->content_type = page_format_type(f);
    if (out->body.max == 0) {
        out->body.max = 512 << 20;
    }
    out->rows = batch_new();
    page_init(&page, f, r, state->only_named, p->lookup.key, url, out->rows, out->body.max);
    if (kind == DOCUMENT_JSON && f == PAGE_JSON) {
        rc = page_edit_json(&page, doc, &out->body, e);
    } else {
        rc = kind == DOCUMENT_JSON ? page_read_json(&page, doc, e) : page_read_html(&page, doc, e);
        rc = rc != 0 ? rc : page_finish(&page, &out->body, e);
    }
    page_fini(&page);
    return rc;
}

const struct repo_ops repo_pypi = {
    .name = "pypi",
    .stale_first = true,
    .open = pypi_open,
    .close = pypi_close,
    .plan = pypi_plan,
    .answer = pypi_answer,
    .rewrite = pypi_rewrite,
    .kept = pypi_kept,
};
