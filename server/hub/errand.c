#include "server/hub/errand.h"

#include "common/codec/url.h"
#include "common/os/clock.h"
#include "server/repo/hf/hf.h"
#include "server/repo/hf/key.h"
#include "server/repo/part.h"

enum {
    MADE_BYTES = 256 << 20,
    URL_BYTES = 16384,
    ASKS_MAX = 2 * FACTS_MAX,
    WAIT_MS = 200,
};

void errand_init(struct errand *x, const struct hub_parts *hub, const struct repo *r,
                 struct porters *ps, struct slice authorization, const _Atomic bool *stop)
{
    *x = (struct errand){.hub = hub, .r = r, .porters = ps, .stop = stop, .unix_s = clock_unix_s()};
    x->loop = loops_at(hub->loops, 0);
    if (authorization.p != NULL) {
        x->authorization =
            (struct http_field){SLICE("authorization"), arena_copy(&x->arena, authorization)};
        x->nfields = 1;
    }
}

void errand_fini(struct errand *x)
{
    for (size_t i = 0; i < FACTS_MAX; i++) {
        buf_free(&x->made[i]);
    }
    if (x->nfields != 0) {
        explicit_bzero((void *)(uintptr_t)x->authorization.value.p, x->authorization.value.n);
    }
    arena_fini(&x->arena);
}

/* --- a gathering, part by part (serve/gather.c does the same on a loop) --------------------------------------------- */

static struct slice keep(struct errand *x, struct slice s)
{
    return s.p != NULL ? arena_copy(&x->arena, s) : SLICE_NONE;
}

static int wait_for(struct errand *x, struct porter *p, struct err *e)
{
    uint64_t seen = UINT64_MAX;

    while (!porter_over(p)) {
        porters_wait(x->porters, &seen, WAIT_MS);
        if (*x->stop) {
            return err_set(e, E_CANCELLED, "it was stopped");
        }
    }
    return 0;
}

static void learn_no(struct errand *x, const struct porter *p, struct fact *f)
{
    const struct answer *a = porter_answer(p);
    struct err why = {0};

    if (a != NULL && a->status != 200) {
        part_refused(a, &x->arena, f);
        return;
    }
    f->rc = porter_rc(p, &why);
    f->status = 502;
    f->message = keep(x, slice_str(why.text));
}

static int add_part(struct errand *x, const struct porter *p, unsigned number,
                    struct gather_part *part, struct fact *f, struct buf *out, struct slice *next,
                    struct err *e)
{
    const struct answer *a = porter_answer(p);
    struct buf doc = BUF_INIT(MADE_BYTES);
    int rc = part_next(a, number, &x->arena, next, e);

    if (rc == 0) {
        rc = porter_read(p, &doc, e);
    }
    if (rc == 0 && part->need->one_part) {
        f->next = *next;
        *next = SLICE_NONE;
    }
    part->doc = buf_slice(&doc);
    part->url = keep(x, a->url);
    part->first = number == 0;
    part->last = next->p == NULL;
    part_note(a, f);
    if (rc == 0) {
        rc = x->r->ops->gather(x->r, part, out, e);
    }
    if (rc == 0 && out->rc != 0) {
        rc = err_set(e, E_TOOBIG, "the origin's listing is too large");
    }
    buf_free(&doc);
    return rc;
}

/* 0: f is learned, whatever it says. */
static int gather(struct errand *x, const struct need *n, struct buf *out, struct fact *f,
                  struct err *e)
{
    struct want w = n->want;
    struct gather_part part = {.need = n};
    struct slice next = SLICE_NONE;
    int rc = 0;

    *f = (struct fact){.need = *n, .until_unix_s = UINT64_MAX};
    w.document = !w.head_only;
    for (unsigned i = 0; rc == 0 && (i == 0 || next.p != NULL); i++) {
        w.key = part_key(n->want.key, i, &x->arena);
        struct porter *p = porter_start(x->porters, x->hub->cache, x->loop, &w);
        rc = wait_for(x, p, e);
        if (rc == 0 && porter_rc(p, NULL) != 0) {
            learn_no(x, p, f);
            porter_end(&p);
            return 0;
        }
        if (rc == 0) {
            rc = w.head_only ? part_of_head(porter_answer(p), &w, clock_unix_s(), f, e)
                             : add_part(x, p, i, &part, f, out, &next, e);
        }
        porter_end(&p);
        w.via = part.url;
        w.url = next;
    }
    f->bytes = buf_slice(out);
    return rc;
}

/* What facts are found by outlives the plan that asked. */
static struct need keep_need(struct errand *x, const struct need *n)
{
    struct need out = *n;

    out.key = keep(x, n->key);
    out.path = keep(x, n->path);
    out.name = keep(x, n->name);
    out.version = keep(x, n->version);
    out.want.repo = slice_str(x->r->name);
    out.want.key = keep(x, n->want.key);
    out.want.url = keep(x, n->want.url);
    out.want.via = keep(x, n->want.via);
    out.want.accept = keep(x, n->want.accept);
    out.want.authorization = keep(x, n->want.authorization);
    out.want.principal = keep(x, n->want.principal);
    return out;
}

static int resolve(struct errand *x, const struct need *asked, struct err *e)
{
    struct fact *f = &x->facts.fact[x->facts.count];
    struct buf *made = &x->made[x->facts.count];
    bool stored = need_is_stored(asked->kind);
    struct need n;
    int rc;

    if (x->facts.count == FACTS_MAX || (!stored && asked->kind != NEED_GATHER) || asked->of_blob) {
        return err_set(e, E_INTERNAL, "the plan for this repository asks for what is not there");
    }
    n = keep_need(x, asked);
    *made = BUF_INIT(MADE_BYTES);
    *f = (struct fact){.need = n};
    rc = stored ? need_read(x->hub->store, slice_str(x->r->name), f, made, &x->arena, e)
                : gather(x, &n, made, f, e);
    f->need = n;
    if (rc == 0) {
        x->facts.count++;
    } else {
        buf_free(made);
    }
    return rc;
}

int errand_plan(struct errand *x, struct slice path, struct arena *a, struct plan *out,
                struct err *e)
{
    struct slice target = arena_fmt(a, "/%s/" SLICE_FMT, x->r->name, SLICE_ARG(path));
    struct http_req req = {.method = METHOD_GET,
                           .version = HTTP_11,
                           .method_text = SLICE("GET"),
                           .target = target,
                           .path = target,
                           .host = SLICE("localhost"),
                           .fields = &x->authorization,
                           .nfields = x->nfields,
                           .arena = a,
                           .unix_s = x->unix_s,
                           .id = "-"};
    const struct principal nobody = {.name = SLICE("")};
    ptrdiff_t query = slice_find(target, '?');

    if (query >= 0) {
        req.path = slice_first(target, (size_t)query);
        req.query = slice_from(target, (size_t)query + 1);
    }
    for (unsigned i = 0; i < ASKS_MAX; i++) {
        int rc;
        *out = (struct plan){0};
        rc = x->r->ops->plan(x->r, &req, slice_from(req.path, strlen(x->r->name) + 2), &nobody,
                             &x->facts, a, out, e);
        if (rc != 0 || out->kind != PLAN_NEED) {
            return rc;
        }
        rc = resolve(x, &out->need, e);
        if (rc != 0) {
            return rc;
        }
    }
    return err_set(e, E_INTERNAL, "the plan for this repository never ends");
}

struct slice errand_field(const struct plan *p, const char *name)
{
    for (size_t i = 0; i < p->nfields; i++) {
        if (slice_eqs(p->fields[i].name, name)) {
            return p->fields[i].value;
        }
    }
    return SLICE_NONE;
}

/* --- a Hub -------------------------------------------------------------------------------------------------------- */

/* Whose token, and where to write it. */
static int no_right(const struct errand *x, struct slice id, bool gated, struct err *e)
{
    const struct hf *state = x->r->state;
    const char *what = gated ? "gated" : "private, or not there at all";

    if (state->service) {
        return err_set(e, E_DENIED,
                       SLICE_FMT " is %s, the mirror's own token (authorization of repo %s) has no "
                                 "right to it, ask the Hub for it or set another",
                       SLICE_ARG(id), what, x->r->name);
    }
    if (x->nfields != 0) {
        return err_set(e, E_DENIED,
                       SLICE_FMT " is %s, the token in --token-file has no right to it, ask the "
                                 "Hub for it or give another",
                       SLICE_ARG(id), what);
    }
    return err_set(e, E_DENIED,
                   SLICE_FMT
                   " is %s, repo %s has no token of its own, give one of the Hub's by `hf "
                   "prefetch --token-file` or set authorization",
                   SLICE_ARG(id), what, x->r->name);
}

/* A reply that is none of what was asked for. */
static int judge(const struct errand *x, struct slice id, const struct plan *p, struct err *e)
{
    struct slice code = errand_field(p, "x-error-code");
    struct slice says = errand_field(p, "x-error-message");

    if (slice_eqs(code, "GatedRepo")) {
        return no_right(x, id, true, e);
    }
    if (p->status == 401) {
        return no_right(x, id, false, e);
    }
    return err_set(e,
                   p->status == 404   ? E_NOTFOUND
                   : p->status == 403 ? E_DENIED
                   : p->status == 503 ? E_BUSY
                   : p->status == 507 ? E_NOSPACE
                                      : E_NETWORK,
                   SLICE_FMT ": " SLICE_FMT, SLICE_ARG(id),
                   SLICE_ARG(says.p != NULL ? says : SLICE("the Hub does not have it")));
}

int errand_list(struct errand *x, struct slice type, struct slice id, struct slice rev,
                struct errand_commit *out, struct err *e)
{
    struct buf path = BUF_INIT(URL_BYTES);
    struct plan p;
    int rc;

    buf_addf(&path, "api/" SLICE_FMT "/" SLICE_FMT "/tree/", SLICE_ARG(type), SLICE_ARG(id));
    url_encode(rev, &path);
    rc = path.rc != 0 ? err_set(e, E_INVALID, "the revision's name is too long")
                      : errand_plan(x, buf_slice(&path), &x->arena, &p, e);
    buf_free(&path);
    if (rc == 0 && (p.kind != PLAN_REPLY || p.status != 200)) {
        rc = judge(x, id, &p, e);
    }
    if (rc != 0) {
        return rc;
    }
    out->commit = errand_field(&p, "x-repo-commit");
    for (size_t i = 0; i < x->facts.count; i++) {
        const struct fact *f = &x->facts.fact[i];
        if (slice_eqs(f->need.key, HF_MAKE_TREE) && f->rc == 0 &&
            manifest_open(f->bytes, &out->files) && hf_is_commit(out->commit)) {
            out->id = out->files.id.n != 0 ? out->files.id : keep(x, id);
            return 0;
        }
    }
    return err_set(e, E_PROTOCOL, "the Hub's listing of " SLICE_FMT " is not understood",
                   SLICE_ARG(id));
}

int errand_want(struct errand *x, struct slice prefix, struct slice id, struct slice commit,
                struct slice path, struct arena *a, struct want *out, struct err *e)
{
    struct plan p;
    int rc = errand_plan(x, key_resolve(prefix, id, commit, path, a), a, &p, e);

    /* An empty file is answered by its listing; the want is made all the same. */
    if (rc == 0 && p.kind != PLAN_WANT && (p.kind != PLAN_REPLY || p.status != 200)) {
        rc = judge(x, id, &p, e);
    }
    if (rc == 0) {
        if (p.kind == PLAN_WANT) {
            *out = p.want;
        } else {
            *out = p.brings != NULL ? *p.brings : (struct want){0};
        }
    }
    return rc;
}
