/* plan.c - fuzzes the plans of all adapters: requests of any path, query and fields within the
 * largest limits of http { }, and facts that nobody would send. No CHECK may fail, and what is
 * planned is whole.
 *
 * An input is lines: the repo and method, path?query, a field each, then a fact each ("r<rc>
 * bytes"). A byte 0x01 repeats the one before it as often as the next says, times 256: long texts
 * come from short inputs.
 */
#include <stdio.h>
#include <stdlib.h>

#include "server/cache/object.h"
#include "server/http/h1_parse.h"
#include "server/repo/repo.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { HEAD_BYTES = 1 << 20, URI_BYTES = 64 << 10, FIELDS = 1000 }; /* as settings.def allows */

static const char *const names[] = {"oci.example", NULL};
static const char *const forward[] = {"Accept", "Accept-Language", "X-A"};
static const struct sync_conf sync_tree = {.list = "index"};
static const struct sync_conf sync_hub = {.list = "hf"};
static const struct sync_conf sync_index = {.list = "pypi"};
static const struct repo_conf confs[] = {
    {.name = "g",
     .protocol = "generic",
     .origin.url = "https://o.example/",
     .forward = forward,
     .forward_count = 3},
    {.name = "h",
     .protocol = "hf",
     .origin.url = "https://o.example/",
     .credentials = "caller",
     .xet = "on"},
    {.name = "s",
     .protocol = "hf",
     .origin.url = "https://o.example/",
     .origin.authorization = "Bearer x",
     .xet = "on"},
    {.name = "p", .protocol = "pypi", .origin.url = "https://o.example/"},
    {.name = "c", .protocol = "conda", .origin.url = "https://o.example/"},
    {.name = "o",
     .protocol = "oci",
     .origin.url = "https://o.example/",
     .origin.tokens = true,
     .names = names,
     .names_count = 1},
    {.name = "u", .protocol = "hosted", .xet = "on"},
    {.name = "a", .protocol = "hosted", .xet = "on", .anonymous_read = true},
    {.name = "t", .protocol = "generic", .origin.url = "https://o.example/", .sync = &sync_tree},
    {.name = "i",
     .protocol = "hf",
     .origin.url = "https://o.example/",
     .sync = &sync_hub,
     .xet = "on"},
    {.name = "y", .protocol = "pypi", .origin.url = "https://o.example/", .sync = &sync_index},
    {.name = "d", .protocol = "conda", .origin.url = "https://o.example/", .sync = &sync_tree},
};
static struct repo *repos[ARRAY_LEN(confs)];

static void open_all(void)
{
    for (size_t i = 0; i < ARRAY_LEN(confs); i++) {
        struct repo_conf conf = confs[i];
        struct err e;
        conf.source = "fuzz";
        if (repo_open(&conf, &repos[i], &e) != 0) {
            fprintf(stderr, "%s\n", e.text);
            abort();
        }
    }
}

/* The input with what 0x01 repeats. */
static void stretch(struct slice in, struct buf *out)
{
    for (size_t i = 0; i < in.n && out->rc == 0; i++) {
        if (in.p[i] != 1 || i + 1 == in.n || out->n == 0) {
            buf_byte(out, (uint8_t)in.p[i]);
            continue;
        }
        size_t times = (size_t)(uint8_t)in.p[++i] << 8;
        for (; times != 0; times--) {
            buf_byte(out, (uint8_t)out->p[out->n - 1]);
        }
    }
}

static const struct http_field *fields_of(struct slice *rest, struct arena *a, size_t *count)
{
    struct http_field *f = arena_alloc(a, FIELDS * sizeof *f);
    size_t n = 0;

    while (rest->n > 0 && n < FIELDS && !slice_starts(*rest, SLICE("r"))) {
        struct slice value = slice_cut(rest, '\n');
        f[n].name = slice_cut(&value, ':');
        f[n].value = slice_trim(value);
        n++;
    }
    *count = n;
    return f;
}

/* What came of the plan's need: the next line has it. */
static void learn(const struct repo *r, struct results *results, const struct plan *p,
                  struct slice *rest, struct arena *a, struct buf *room)
{
    struct slice line = slice_cut(rest, '\n');
    struct result *f = &results->result[results->count++];
    uint8_t how = line.n > 1 ? (uint8_t)line.p[1] : 0;
    static const int rcs[] = {0, 0, 0, E_NOTFOUND, E_DENIED, E_NETWORK, E_TOOBIG};
    bool any = p->dependency.kind == DEPENDENCY_PAGES;

    line = slice_from(line, line.n < 2 ? line.n : 2);
    *f = (struct result){.dependency = p->dependency, .rc = rcs[how % (any ? ARRAY_LEN(rcs) : 4)]};
    f->bytes = line;
    f->status = f->rc == 0 ? 0 : f->rc == E_NOTFOUND ? 404 : f->rc == E_DENIED ? 401 : 502;
    f->code = how & 16 ? line : SLICE_NONE;
    f->message = how & 32 ? line : SLICE_NONE;
    f->until_unix_s = how & 64 ? UINT64_MAX : 1;
    f->stale = (how & 128) != 0;
    f->snap.seq = how;
    f->entry = (struct entry){.path = p->dependency.path,
                              .type = how & 8 ? ENTRY_DIR : ENTRY_FILE,
                              .size_bytes = how * 77777777777ull,
                              .target = line};
    if (any && f->rc == 0) { /* these bytes are our own writing, out of what the origin wrote */
        struct paged_fetch_part part = {.dependency = &p->dependency,
                                        .doc = line,
                                        .url = SLICE("https://o.example/x"),
                                        .first = true,
                                        .last = true};
        buf_clear(room);
        f->rc = r->ops->paged_fetch(r, &part, room, NULL);
        f->status = f->rc == 0 ? 0 : 502;
        f->bytes = arena_copy(a, buf_slice(room));
    }
}

static void judge(const struct repo *r, const struct plan *p, struct arena *a)
{
    struct http_reply reply = {.status = 404};

    CHECK(p->nfields <= PLAN_FIELDS);
    switch (p->kind) {
    case PLAN_LOOKUP:
        CHECK(p->lookup.repo.n > 0 && p->lookup.url.n > 0);
        CHECK(slice_find(p->lookup.key, '\0') < 0 && slice_find(p->lookup.principal, '\0') < 0);
        break;
    case PLAN_REPLY:
        CHECK(p->status >= 200 && p->status < 600);
        break;
    case PLAN_DEPENDENCY:
    case PLAN_BLOB:
    case PLAN_LIST:
    case PLAN_PUT:
        CHECK(p->right == RIGHT_KNOWN || p->right == RIGHT_TOKEN || p->subject.n > 0 ||
              p->kind == PLAN_DEPENDENCY);
        break;
    }
    if (r->ops->failed != NULL) {
        r->ops->failed(r, p, 502, SLICE("why"), a, &reply);
        CHECK(reply.nfields <= REPLY_FIELDS);
    }
}

static void ask(const struct repo *r, struct slice rest, uint8_t how, struct arena *a)
{
    static const enum method methods[] = {METHOD_GET,  METHOD_HEAD,   METHOD_PUT,
                                          METHOD_POST, METHOD_DELETE, METHOD_OTHER};
    static const char *const texts[] = {"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"};
    struct slice target = slice_cut(&rest, '\n');
    struct slice head = arena_fmt(a, how & 8 && r->ops->registry ? "/v2/%s/" : "/%s/", r->name);
    struct http_req req = {.method = methods[how % 6],
                           .method_text = slice_str(texts[how % 6]),
                           .version = HTTP_11,
                           .host = SLICE("mirror.example"),
                           .tls = (how & 64) != 0,
                           .content_length = how & 128 ? 1000 : 0,
                           .has_body = (how & 128) != 0,
                           .arena = a};
    struct principal who = {.name = SLICE("")};
    struct results results = {0};
    struct buf room = BUF_INIT(64 << 20);
    struct slice path;
    struct plan p;

    target = slice_first(target, target.n < URI_BYTES - head.n ? target.n : URI_BYTES - head.n);
    req.target = arena_fmt(a, SLICE_FMT SLICE_FMT, SLICE_ARG(head), SLICE_ARG(target));
    req.query = req.target;
    req.path = slice_cut(&req.query, '?');
    req.query = req.path.n == req.target.n ? SLICE_NONE : req.query;
    path = slice_from(req.path, head.n);
    req.fields = fields_of(&rest, a, &req.nfields);
    for (;;) {
        p = (struct plan){0};
        if (r->ops->plan(r, &req, path, &who, &results, a, &p, NULL) != 0) {
            break;
        }
        judge(r, &p, a);
        if (p.kind != PLAN_DEPENDENCY || results.count == RESULTS_MAX) {
            break;
        }
        learn(r, &results, &p, &rest, a, &room);
    }
    buf_free(&room);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct buf text = BUF_INIT(HEAD_BYTES + (1 << 20));
    struct arena a = {0};

    if (repos[0] == NULL) {
        open_all();
    }
    if (n < 3) {
        return 0;
    }
    stretch(slice_of((const char *)p + 2, n - 2), &text);
    for (size_t i = 0; i < text.n; i++) { /* the parser lets no others in */
        char c = text.p[i];
        text.p[i] = c == '\n' || ((uint8_t)c > ' ' && c != 0x7f) ? c
                    : c == ' ' && i > 100                        ? c
                                                                 : '_';
    }
    ask(repos[p[0] % ARRAY_LEN(repos)], buf_slice(&text), p[1], &a);
    arena_fini(&a);
    buf_free(&text);
    return 0;
}
