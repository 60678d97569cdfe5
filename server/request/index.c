#include "server/request/index.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "server/plan/document.h"
#include "server/request/rendering.h"
#include "server/request/reply.h"
#include "server/request/response.h"

struct rewriting { /* what the maker has; all but the document is the call's */
    const struct serve_deps *deps;
    const struct repo *repo;
    const struct plan *plan;
    struct document *doc;
    size_t doc_max;
};

/* What the page says of its files. It is rewritten again and again and seldom has anything new;
 * when it contradicts an earlier version, answers that were resolved by that are void. */
static int keep_rows(struct rewriting *w, struct batch **rows, struct err *e)
{
    bool replaces;
    int rc;

    if (*rows == NULL || batch_prune(*rows, w->deps->store, &replaces)) {
        return 0;
    }
    rc = store_commit(w->deps->store, rows, COMMIT_LAZY, e);
    if (replaces) {
        repos_changed(w->deps->repos, slice_str(w->repo->name));
    }
    return rc;
}

static int make_index_page(void *arg, struct buf *out, struct rendering *about, struct err *e)
{
    struct rewriting *w = arg;
    const struct answer *a = w->doc->answer;
    struct rewrite_out page = {.body = *out};
    struct buf doc = BUF_INIT(w->doc_max);
    int rc = document_read(w->doc, &doc, e);

    if (rc == 0) {
        rc = w->repo->ops->rewrite(w->repo, w->plan, buf_slice(&doc), a->content_type, a->url,
                                   &page, e);
    }
    buf_free(&doc);
    rc = rc != 0 ? rc : keep_rows(w, &page.rows, e);
    batch_free(&page.rows);
    *out = page.body;
    about->content_type = page.content_type;
    return rc != 0 ? err_prefix(e, "the origin's index page cannot be used") : 0;
}

static void work_free(void *arg)
{
    struct rewriting *w = arg;

    document_free(&w->doc);
    free(w);
}

static void on_made(struct request *c, struct rendering *r, int rc, const struct err *why)
{
    struct cached_response *h;

    if (rc != 0) {
        log_warn("serve.rewrite_failed", "repo=%s why=\"%s\"", c->repo->name, why->text);
        reply_trouble(c, rc, why);
        return;
    }
    h = response_of_rendering(c, c->plan.lookup.key, r);
    h->stored_unix_s = c->index.stored_unix_s;
    h->fresh_until_unix_s = c->index.fresh_until_unix_s;
    request_send(c, h, !cache_state_is_stale(c->request_log->state));
}

static void on_whole_index(struct request *c, struct document *d)
{
    static const struct rendering_work work = {make_index_page, work_free};
    const struct answer *a = d->answer;
    struct rewriting *w = NEW(struct rewriting);
    struct slice key =
        arena_fmt(&c->arena, "page " SLICE_FMT " " SLICE_FMT " %zu " SLICE_FMT " " SLICE_FMT,
                  SLICE_ARG(c->plan.variant), SLICE_ARG(a->etag), d->size_bytes,
                  SLICE_ARG(c->plan.lookup.principal), SLICE_ARG(c->plan.lookup.key));

    c->index.stored_unix_s = a->stored_unix_s;
    c->index.fresh_until_unix_s = a->fresh_until_unix_s;
    w->deps = c->serve_loop->deps;
    w->repo = c->repo;
    w->plan = &c->plan;
    w->doc = d;
    w->doc_max = (size_t)c->set->conf->cache.document_bytes;
    rendering_ask(c, key, 2 * w->doc_max, &work, w, on_made);
}

void index_send(struct request *c, struct answer *a)
{
    request_document(c, a, on_whole_index);
}
