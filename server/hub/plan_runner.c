#include "server/hub/plan_runner.h"

#include "common/codec/url.h"
#include "common/os/clock.h"
#include "server/repo/hf/hf.h"
#include "server/repo/hf/key.h"

enum { URL_BYTES = 16384 };

void plan_runner_init(struct plan_runner *x, const struct hub_deps *hub, struct repo *r,
                      struct slice authorization, const _Atomic bool *stop)
{
    *x = (struct plan_runner){.hub = hub, .r = r, .stop = stop, .unix_s = clock_unix_s()};
    x->run.planner = planners_at(hub->planners, 0);
    x->run.repo = r;
    plan_run_init(&x->run);
    if (authorization.p != NULL) {
        x->authorization =
            (struct http_field){SLICE("authorization"), arena_copy(&x->arena, authorization)};
        x->nfields = 1;
    }
}

void plan_runner_fini(struct plan_runner *x)
{
    plan_run_fini(&x->run);
    if (x->nfields != 0) {
        explicit_bzero((void *)(uintptr_t)x->authorization.value.p, x->authorization.value.n);
    }
    arena_fini(&x->arena);
}

static int plan_of(struct plan_runner *x, struct slice path, struct arena *a, struct plan *out,
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
    x->run.generation = x->r->generation;
    x->run.req = &req;
    x->run.path = slice_from(req.path, strlen(x->r->name) + 2);
    x->run.who = &nobody;
    x->run.arena = a;
    x->run.plan = out;
    return plan_run_wait(&x->run, x->stop, e);
}

static struct slice plan_field_of(const struct plan *p, const char *name)
{
    for (size_t i = 0; i < p->nfields; i++) {
        if (slice_eqs(p->fields[i].name, name)) {
            return p->fields[i].value;
        }
    }
    return SLICE_NONE;
}

/* --- a Hub ------------------------------------------------------------------------------------ */

/* Whose token, and where to write it. */
static int no_right(const struct plan_runner *x, struct slice id, bool gated, struct err *e)
{
    const struct hf *state = x->r->state;
    const char *what = gated ? "gated" : "private, or does not exist";

    if (state->service) {
        return err_set(e, E_DENIED,
                       SLICE_FMT " is %s, and the mirror's token (authorization of repo %s) has no "
                                 "access to it; request access at the Hub, or set another token",
                       SLICE_ARG(id), what, x->r->name);
    }
    if (x->nfields != 0) {
        return err_set(e, E_DENIED,
                       SLICE_FMT " is %s, and the token in --token-file has no access to it; "
                                 "request access at the Hub, or use another token",
                       SLICE_ARG(id), what);
    }
    return err_set(e, E_DENIED,
                   SLICE_FMT " is %s, and repo %s has no token; use one of the Hub's with `hf "
                             "prefetch --token-file`, or set authorization",
                   SLICE_ARG(id), what, x->r->name);
}

/* What was gathered for a reply could not be read: that is no trouble of the network. */
static int rc_of_results(const struct plan_runner *x)
{
    int rc = E_NETWORK;

    for (size_t i = 0; i < x->run.results.count; i++) {
        int of_result = x->run.results.result[i].rc;
        rc = of_result == E_PROTOCOL || of_result == E_TOOBIG ? of_result : rc;
    }
    return rc;
}

/* A reply that is none of what was asked for. */
static int runner_plan_error(const struct plan_runner *x, struct slice id, const struct plan *p,
                             struct err *e)
{
    struct slice code = plan_field_of(p, "x-error-code");
    struct slice says = plan_field_of(p, "x-error-message");

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
                                      : rc_of_results(x),
                   SLICE_FMT ": " SLICE_FMT, SLICE_ARG(id),
                   SLICE_ARG(says.p != NULL ? says : SLICE("the Hub does not have it")));
}

int plan_runner_list(struct plan_runner *x, struct slice type, struct slice id, struct slice rev,
                     struct plan_runner_commit *out, struct err *e)
{
    struct buf path = BUF_INIT(URL_BYTES);
    struct plan p;
    int rc;

    buf_addf(&path, "api/" SLICE_FMT "/" SLICE_FMT "/tree/", SLICE_ARG(type), SLICE_ARG(id));
    url_encode(rev, &path);
    rc = path.rc != 0 ? err_set(e, E_INVALID, "the name of the revision is too long")
                      : plan_of(x, buf_slice(&path), &x->arena, &p, e);
    buf_free(&path);
    if (rc == 0 && (p.kind != PLAN_REPLY || p.status != 200)) {
        rc = runner_plan_error(x, id, &p, e);
    }
    if (rc != 0) {
        return rc;
    }
    out->commit = plan_field_of(&p, "x-repo-commit");
    for (size_t i = 0; i < x->run.results.count; i++) {
        const struct result *f = &x->run.results.result[i];
        if (slice_eqs(f->dependency.key, HF_MAKE_TREE) && f->rc == 0 &&
            manifest_open(f->bytes, &out->files) && hf_is_commit(out->commit)) {
            out->id = out->files.id.n != 0 ? out->files.id : arena_copy(&x->arena, id);
            return 0;
        }
    }
    return err_set(e, E_PROTOCOL, "the Hub's listing of " SLICE_FMT " cannot be parsed",
                   SLICE_ARG(id));
}

int plan_runner_lookup(struct plan_runner *x, struct slice prefix, struct slice id,
                       struct slice commit, struct slice path, struct arena *a, struct lookup *out,
                       struct err *e)
{
    struct plan p;
    int rc = plan_of(x, key_resolve(prefix, id, commit, path, a), a, &p, e);

    /* An empty file is answered by its listing; the want is made all the same. */
    if (rc == 0 && p.kind != PLAN_LOOKUP && (p.kind != PLAN_REPLY || p.status != 200)) {
        rc = runner_plan_error(x, id, &p, e);
    }
    if (rc == 0) {
        if (p.kind == PLAN_LOOKUP) {
            *out = p.lookup;
        } else {
            *out = p.brings != NULL ? *p.brings : (struct lookup){0};
        }
    }
    return rc;
}
