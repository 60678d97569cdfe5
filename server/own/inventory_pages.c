#include "server/own/inventory_pages.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/codec/form.h"
#include "server/admin/inventory_page.h"
#include "server/http/status.h"
#include "server/own/own.h"
#include "server/page/html.h"
#include "server/repo/hf/synced.h"
#include "server/request/request.h"
#include "server/request/refusal.h"
#include "server/request/rendering.h"
#include "server/request/reply.h"

enum { PAGE_BYTES = 900 << 10, WORD_BYTES = 2048, PAGES_MOST = 1000000, FRESH_S = 2 };

struct inventory_work { /* what it points to is the call's */
    struct inventory_page page;
    const struct principal *who;
    bool one;
};

/* --- what is asked for --- */

/* A field of a form; p == NULL: it is not there. */
static struct slice field(struct slice query, const char *name, struct arena *a)
{
    return form_find(&query, name, WORD_BYTES, a);
}

/* As the gate knows a repository: "hf/models/org/name", "models/me/gpt/". */
static struct slice subject(const struct repo *r, struct slice type, struct slice id,
                            struct arena *a)
{
    enum inventory_kind k;
    bool bare;

    CHECK(inventory_kind_of(r, &k));
    bare = k == INVENTORY_HOSTED && slice_eqs(type, "models");
    return arena_fmt(a, "%s/" SLICE_FMT "%s" SLICE_FMT "%s", r->name,
                     SLICE_ARG(bare ? SLICE("") : type), bare ? "" : "/", SLICE_ARG(id),
                     k == INVENTORY_HOSTED ? "/" : "");
}

static bool may_read_inventory(void *arg, struct slice type, struct slice id)
{
    const struct inventory_work *w = arg;
    struct arena a = {0};
    bool yes = w->page.view.r->anonymous_read ||
               gate_allows(w->who, "read", subject(w->page.view.r, type, id, &a));

    arena_fini(&a);
    return yes;
}

/* --- the page --- */

static int make_inventory_page(void *arg, struct buf *out, struct rendering *about, struct err *e)
{
    struct inventory_work *w = arg;

    about->content_type = SLICE("text/html; charset=utf-8");
    w->page.may = may_read_inventory;
    w->page.arg = w;
    return w->one ? inventory_page_one(&w->page, out, e) : inventory_page_list(&w->page, out, e);
}

static void on_made(struct request *c, struct rendering *r, int rc, const struct err *why)
{
    struct buf policy = BUF_INIT(1024);

    if (rc != 0) {
        refuse(c->x, status_of_error(rc, STATUS_REQUEST), "%s\n", why->text);
        return;
    }
    if (r->bytes == NULL) { /* memory is short, and a page is not worth a file */
        refuse(c->x, 503, "too many of these pages are being made; try again\n");
        return;
    }
    html_policy(&policy, HTML_REPOSITORY);
    reply_page(c->x, slice_of(r->bytes, (size_t)r->size_bytes),
               arena_copy(&c->arena, buf_slice(&policy)));
    buf_free(&policy);
}

static void answer_inventory_page(struct request *c, const struct inventory_page *p, bool one)
{
    static const struct rendering_work work = {make_inventory_page, free};
    struct inventory_work *w = NEW(struct inventory_work);
    struct digest of_text;
    char hex[DIGEST_HEX + 1];

    *w = (struct inventory_work){.page = *p, .who = &c->who, .one = one};
    /* All that it is made of; what is here is looked at anew every other second. */
    digest_of(arena_fmt(&c->arena,
                        SLICE_FMT "\n" SLICE_FMT "\n" SLICE_FMT "\n" SLICE_FMT "\n%d" SLICE_FMT
                                  "\n" SLICE_FMT,
                        SLICE_ARG(p->base), SLICE_ARG(p->search), SLICE_ARG(p->type),
                        SLICE_ARG(p->id), p->rev.p != NULL, SLICE_ARG(p->rev),
                        SLICE_ARG(c->who.name)),
              &of_text);
    digest_format(&of_text, hex);
    rendering_ask(c,
                  arena_fmt(&c->arena, "stock %d %s %" PRIu64 " %" PRIu64, one, hex, p->page,
                            p->now_unix_s / FRESH_S),
                  PAGE_BYTES, &work, w, on_made);
}

/* --- who may see it --- */

void inventory_pages_answer(struct serve_loop *d, struct exchange *x, struct request_log *v,
                            struct slice path, struct slice base)
{
    const struct http_req *req = exchange_req(x);
    struct slice rest = path, page;
    struct repo *r = repo_set_find(d->set, slice_cut(&rest, '/'));
    struct inventory_page p = {.view = {d->deps->own->hub, r, false},
                               .now_unix_s = d->loop->unix_s};
    struct hf_spec spec;
    enum inventory_kind k;
    struct request *c;

    if (r == NULL || !inventory_kind_of(r, &k) ||
        (rest.n != 0 && (!hf_spec_parse(rest, &spec) || slice_find(rest, '@') >= 0))) {
        refuse(x, 404,
               "no such page; " INVENTORY_PAGES "REPO/ lists the repositories in a repo "
               "of a Hub\n");
        return;
    }
    v->repo = NULL; /* a page of ours */
    c = request_new(d, x, v, r, slice_first(req->path, 0));
    if (c == NULL) {
        return;
    }
    if (hf_spec_parse(slice_from(c->req.path, c->req.path.n - rest.n), &spec)) {
        p.type = spec.type;
        p.id = spec.id;
    }
    c->plan = (struct plan){.kind = PLAN_LIST,
                            .right = RIGHT_READ,
                            .subject = rest.n != 0 ? subject(r, p.type, p.id, &c->arena)
                                                   : arena_fmt(&c->arena, "%s/api", r->name)};
    if ((rest.n != 0 || c->who.token == NULL) && !request_allowed(c)) {
        return;
    }
    p.base = arena_copy(&c->arena, base);
    p.search = field(c->req.query, "q", &c->arena);
    p.search = p.search.p != NULL ? p.search : SLICE("");
    p.rev = field(c->req.query, "rev", &c->arena);
    p.rev = p.rev.n != 0 ? p.rev : SLICE_NONE;
    page = field(c->req.query, "page", &c->arena);
    if (page.p != NULL && (!slice_u64(page, &p.page) || p.page > PAGES_MOST)) {
        p.page = 0;
    }
    answer_inventory_page(c, &p, rest.n != 0);
}
