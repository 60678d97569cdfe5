#include "server/repo/plan.h"

#include <stdlib.h>

#include "common/codec/form.h"
#include "common/codec/url.h"

enum { PATH_MAX_BYTES = 16 << 10 };

/* Moves a buf's bytes to the arena and frees it. */
static struct slice finish_plan_text(struct buf *b, struct arena *a)
{
    struct slice s = arena_copy(a, slice_of(b->p != NULL ? b->p : "", b->n));
    buf_free(b);
    return s;
}

int plan_path(struct slice raw, struct arena *a, struct slice *out, struct err *e)
{
    struct buf whole = BUF_INIT(PATH_MAX_BYTES);
    struct buf clean = BUF_INIT(PATH_MAX_BYTES);
    int rc;

    buf_byte(&whole, '/');
    buf_adds(&whole, raw);
    rc = whole.rc != 0 ? err_set(e, E_TOOBIG, "the path has %zu bytes, which is too long", raw.n)
                       : path_canonical(buf_slice(&whole), &clean, e);
    buf_free(&whole);
    *out = rc == 0 ? slice_from(finish_plan_text(&clean, a), 1) : SLICE_NONE;
    buf_free(&clean);
    return rc;
}

/* pchar of RFC 3986 and '/', but for '+'; '%' begins one of the two escapes that a canonical path
 * has. */
static bool stands_in_url(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("-._~/%!$&'()*,;=:@", c) != NULL);
}

struct slice plan_url(const char *base, struct slice path, struct slice query, struct arena *a)
{
    struct buf b = BUF_INIT(strlen(base) + 3 * path.n + 1 + 3 * query.n);

    buf_str(&b, base);
    for (size_t i = 0; i < path.n; i++) {
        if (stands_in_url(path.p[i])) {
            buf_byte(&b, (uint8_t)path.p[i]);
        } else {
            buf_addf(&b, "%%%02X", (uint8_t)path.p[i]);
        }
    }
    if (query.p != NULL) {
        buf_byte(&b, '?');
    }
    for (size_t i = 0; i < query.n; i++) { /* as it came, but for what no URL may hold */
        uint8_t c = (uint8_t)query.p[i];
        if (c < 0x80 && c != '\\') {
            buf_byte(&b, c);
        } else {
            buf_addf(&b, "%%%02X", c);
        }
    }
    CHECK(b.rc == 0);
    return finish_plan_text(&b, a);
}

struct slice plan_key(struct slice path, struct slice query, struct arena *a)
{
    struct buf b = BUF_INIT(3 * path.n + 1 + query.n);

    if (query.p == NULL && slice_find(path, '?') < 0) {
        return path;
    }
    for (size_t i = 0; i < path.n; i++) {
        if (path.p[i] == '?') {
            buf_str(&b, "%3F");
        } else {
            buf_byte(&b, (uint8_t)path.p[i]);
        }
    }
    if (query.p != NULL) {
        buf_byte(&b, '?');
        buf_adds(&b, query);
    }
    CHECK(b.rc == 0);
    return finish_plan_text(&b, a);
}

void plan_become(struct plan *p, enum plan_kind kind)
{
    size_t own = offsetof(struct plan, dependency); /* the union is last */

    p->kind = kind;
    p->reuse = REUSE_USUAL;
    p->delivery = DELIVERY_STREAM;
    memset((char *)p + own, 0, sizeof *p - own);
}

void plan_reply(struct plan *p, int status, struct slice text)
{
    *p = (struct plan){.kind = PLAN_REPLY, .status = status, .text = text};
}

void plan_redirect(struct plan *p, struct slice location)
{
    plan_reply(p, 301, SLICE("moved; see the Location field\n"));
    p->location = location;
}

bool plan_asks(struct slice query, struct slice wanted)
{
    while (query.n != 0) {
        if (slice_eq(slice_cut(&query, '&'), wanted)) {
            return true;
        }
    }
    return false;
}

/* JSON is for clients that ask for it by name. Clients that walk folders (rclone, wget, fsspec)
 * send no Accept field or any wildcard, and read HTML. Scripts may ask for recursive=1 without a
 * type; they have always received JSON. */
static bool wants_page(const struct http_req *req, bool recursive)
{
    struct slice accept = http_req_list(req, "accept");
    int json = http_weight_of(accept, SLICE("application/json"));
    int html = http_weight_of(accept, SLICE("text/html"));

    if (plan_asks(req->query, SLICE("format=json")) ||
        plan_asks(req->query, SLICE("format=html"))) {
        return !plan_asks(req->query, SLICE("format=json"));
    }
    if (json > 0 || html > 0) {
        return html > json;
    }
    return !recursive;
}

/* "./": so that a ':' in the name is no scheme's (RFC 3986 4.2). */
static struct slice with_slash(const struct http_req *req, struct slice path, struct arena *a)
{
    struct slice name = slice_from(path, slice_behind(path, '/'));

    return plan_url("./", arena_fmt(a, SLICE_FMT "/", SLICE_ARG(name)), req->query, a);
}

void plan_redirect_to_folder(struct plan *p, const struct http_req *req, struct slice at,
                             struct arena *a)
{
    plan_redirect(p, with_slash(req, at, a));
}

void plan_folder(struct plan *p, const struct http_req *req, struct slice at, struct slice folder,
                 struct arena *a)
{
    p->kind = PLAN_LIST;
    p->entry.path = folder;
    p->recursive = plan_asks(req->query, SLICE("recursive=1"));
    p->html = wants_page(req, p->recursive);
    p->cache_control = SLICE("no-cache");
    if (p->html) {
        p->text = at;
        p->location = at.n != 0 && at.p[at.n - 1] != '/' ? with_slash(req, at, a) : SLICE_NONE;
    }
}

void plan_method(struct plan *p, struct slice allow, struct slice text)
{
    plan_reply(p, 405, text);
    p->allow = allow;
}

bool plan_enter(const struct http_req *req, struct slice raw, struct arena *a, struct slice *out,
                struct plan *p, int *rc, struct err *e)
{
    *rc = plan_path(raw, a, out, e);
    if (*rc == 0 && req->method != METHOD_GET && req->method != METHOD_HEAD) {
        plan_method(p, SLICE("GET, HEAD"),
                    SLICE("this repo is a mirror; its paths accept GET and HEAD only\n"));
        return false;
    }
    return *rc == 0;
}

/* p == NULL: it reads in one way only. */
static struct slice read_loosely(struct slice path, struct arena *a)
{
    struct slice loose = slice_of(arena_alloc(a, path.n + 1), 0);
    char *to = (char *)(uintptr_t)loose.p;

    for (size_t i = 0; i < path.n; i++) {
        bool encoded = path.n - i >= 3 && memcmp(path.p + i, "%2F", 3) == 0;
        char c = encoded ? '/' : path.p[i];
        if (c != '/' || (loose.n != 0 && to[loose.n - 1] != '/')) {
            to[loose.n++] = c;
        }
        i += encoded ? 2 : 0;
    }
    return loose.n != path.n ? loose : SLICE_NONE;
}

const struct rule *plan_rule(const struct repo *r, struct slice path, struct arena *a)
{
    const struct rule *rule = rules_match(r->rules, path);
    struct slice loose = read_loosely(path, a);

    if (loose.p != NULL && rule->class != RULE_DENY) {
        const struct rule *other = rules_match(r->rules, loose);
        rule = other->class == RULE_DENY ? other : rule;
    }
    return rule;
}

void plan_lookup(const struct repo *r, const struct rule *rule, struct slice path, struct arena *a,
                 struct plan *p)
{
    *p = (struct plan){.kind = PLAN_LOOKUP, .right = RIGHT_READ};
    p->subject = arena_fmt(a, "%s/" SLICE_FMT, r->name, SLICE_ARG(path));
    p->lookup.repo = slice_str(r->name);
    p->lookup.key = path;
    p->lookup.origin = r->origin;
    p->lookup.size_bytes = LENGTH_UNKNOWN;
    p->lookup.max_bytes = r->max_object_bytes;
    p->lookup.hint_end = LENGTH_UNKNOWN;
    p->lookup.principal = SLICE("");
    rule_apply(rule, path, &p->lookup);
    if (r->ops->stale_first) {
        p->lookup.floor_s = (rule->ruled & RULED_FLOOR) != 0 ? rule->floor_s : FLOOR_NEVER;
        p->lookup.swr_s = (rule->ruled & RULED_SWR) != 0 ? rule->swr_s : SWR_LIKE_TTL;
        p->lookup.patience_ms = r->origin != NULL ? origin_patience_ms(r->origin) : 0;
    }
}

bool plan_tree_path(struct slice clean, struct arena *a, struct slice *out)
{
    char *p = arena_alloc(a, clean.n + 1);
    size_t n = 0;

    for (size_t i = 0; i < clean.n; i++) {
        p[n++] = clean.p[i];
        if (clean.p[i] == '%') {
            if (!slice_starts(slice_from(clean, i), SLICE("%25"))) {
                return false;
            }
            i += 2;
        }
    }
    *out = slice_of(p, n);
    return true;
}

struct slice plan_home(const struct repo *r, const struct http_req *req, struct slice path,
                       struct arena *a)
{
    struct slice prefix = slice_first(req->path, (size_t)(path.p - req->path.p));
    struct slice u;

    prefix.n -= prefix.n != 0 && prefix.p[prefix.n - 1] == '/';
    if (r->public_url == NULL) {
        return arena_fmt(a, "http%s://" SLICE_FMT SLICE_FMT, req->tls ? "s" : "",
                         SLICE_ARG(req->host), SLICE_ARG(prefix));
    }
    u = slice_str(r->public_url);
    u.n -= u.n != 0 && u.p[u.n - 1] == '/';
    return arena_fmt(a, SLICE_FMT SLICE_FMT, SLICE_ARG(u), SLICE_ARG(prefix));
}

struct slice plan_cut_version(struct slice *path)
{
    struct slice rest = *path;
    struct slice first = slice_cut(&rest, '/');
    uint64_t seq;

    if (first.n < 3 || first.p[0] != '@' || first.p[1] != 'v' ||
        !slice_u64(slice_from(first, 2), &seq)) {
        return SLICE("");
    }
    *path = rest;
    return slice_from(first, 1);
}

const struct snap *plan_synced(const struct results *f, struct slice version, struct plan *p)
{
    const struct result *head = plan_head(f, SLICE(SYNC_TREE), version, p);

    if (head == NULL) {
        return NULL;
    }
    if (head->rc != 0 && version.n != 0) {
        plan_reply(p, 404, SLICE("no such snapshot of this repo\n"));
    } else if (head->rc != 0) {
        plan_reply(
            p, 503,
            SLICE("the first synchronization of this repo is not finished; try again later\n"));
    }
    return head->rc == 0 ? &head->snap : NULL;
}

struct slice plan_line(struct slice text, struct arena *a)
{
    enum { LINE_MAX_BYTES = 400 };
    size_t n = text.n < LINE_MAX_BYTES ? text.n : LINE_MAX_BYTES;
    char *out = arena_alloc(a, n + 1);

    for (size_t i = 0; i < n; i++) {
        out[i] = text.p[i] >= ' ' && text.p[i] < 0x7f ? text.p[i] : ' ';
    }
    return slice_of(out, n);
}

void plan_field(struct plan *p, struct slice name, struct slice value)
{
    CHECK(p->nfields < PLAN_FIELDS);
    p->fields[p->nfields++] = (struct http_field){name, value};
}

static bool digests_same(const struct digest *a, const struct digest *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static bool asks_same(const struct dependency *a, const struct dependency *b)
{
    return a->kind == b->kind && a->table == b->table && slice_eq(a->key, b->key) &&
           slice_eq(a->name, b->name) && slice_eq(a->version, b->version) &&
           digests_same(&a->root, &b->root) && slice_eq(a->path, b->path) &&
           a->follow == b->follow && a->one_part == b->one_part &&
           a->lookup.ttl_s == b->lookup.ttl_s;
}

static const struct result *have(const struct results *f, const struct dependency *n,
                                 struct plan *p)
{
    for (size_t i = 0; i < f->count; i++) {
        if (asks_same(&f->result[i].dependency, n)) {
            return &f->result[i];
        }
    }
    p->kind = PLAN_DEPENDENCY;
    p->dependency = *n;
    return NULL;
}

const struct result *plan_row(const struct results *f, enum table table, struct slice key,
                              struct plan *p)
{
    return have(f, &(struct dependency){.kind = DEPENDENCY_ROW, .table = table, .key = key}, p);
}

const struct result *plan_rows(const struct results *f, enum table table, struct slice key_prefix,
                               struct plan *p)
{
    return have(f, &(struct dependency){.kind = DEPENDENCY_ROWS, .table = table, .key = key_prefix},
                p);
}

const struct result *plan_put_row(const struct results *f, enum table table, struct slice key,
                                  struct slice old, struct slice value, struct plan *p)
{
    return have(f,
                &(struct dependency){
                    .kind = DEPENDENCY_PUT, .table = table, .key = key, .name = old, .path = value},
                p);
}

const struct result *plan_head(const struct results *f, struct slice name, struct slice version,
                               struct plan *p)
{
    return have(f, &(struct dependency){.kind = DEPENDENCY_HEAD, .name = name, .version = version},
                p);
}

const struct result *plan_entry(const struct results *f, const struct digest *root,
                                struct slice path, struct plan *p)
{
    return have(f, &(struct dependency){.kind = DEPENDENCY_ENTRY, .root = *root, .path = path}, p);
}

const struct result *plan_paged_fetch(const struct results *f, struct slice what,
                                      const struct lookup *w, bool one_part, struct plan *p)
{
    return have(f,
                &(struct dependency){.kind = DEPENDENCY_PAGES,
                                     .key = what,
                                     .path = w->key,
                                     .name = w->principal,
                                     .lookup = *w,
                                     .one_part = one_part},
                p);
}

const struct result *plan_paged_blob(const struct results *f, struct slice what,
                                     const struct entry *en, struct arena *a, struct plan *p)
{
    char hex[DIGEST_HEX + 1];
    struct slice name;

    digest_format(&en->digest, hex);
    name = arena_copy(a, slice_str(hex));
    return have(f,
                &(struct dependency){.kind = DEPENDENCY_PAGES,
                                     .key = what,
                                     .path = name,
                                     .name = SLICE(""),
                                     .lookup = {.key = name, .principal = SLICE("")},
                                     .root = en->digest,
                                     .of_blob = true,
                                     .one_part = true},
                p);
}

const struct result *plan_right(const struct results *f, struct slice right, struct slice subject,
                                struct plan *p)
{
    return have(f, &(struct dependency){.kind = DEPENDENCY_RIGHT, .name = right, .path = subject},
                p);
}

const struct result *plan_request_body(const struct results *f, struct plan *p)
{
    return have(f, &(struct dependency){.kind = DEPENDENCY_BODY}, p);
}

bool plan_form_fits(const struct result *body, struct arena *a, struct slice *why)
{
    if (body->rc == 0 && form_within(body->bytes, FORM_FIELDS_MAX)) {
        return true;
    }
    *why = arena_fmt(a, "the list of paths has more than %d fields or %d MiB; split the request",
                     FORM_FIELDS_MAX, BODY_BYTES >> 20);
    return false;
}

const struct result *plan_resolve(const struct results *f, const struct digest *root,
                                  struct slice path, struct plan *p)
{
    return have(
        f,
        &(struct dependency){.kind = DEPENDENCY_ENTRY, .root = *root, .path = path, .follow = true},
        p);
}
