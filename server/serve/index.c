#include "server/serve/index.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "server/serve/document.h"
#include "server/serve/opening.h"
#include "server/serve/reply.h"

struct rewriting {
    const struct repo *repo;
    struct plan plan;
    struct daemon *daemon;
    struct answer *answer; /* for its type, age and url */
    struct rewrite_out out;
    char etag[32 + 3]; /* half the digest is tag enough */
};

/* What the page tells of its files. It is rewritten again and again, and seldom says anything new; when it takes back what
 * it told, answers that were resolved by that are void. */
static int keep_rows(struct rewriting *w, struct err *e)
{
    bool replaces;
    int rc;

    if (w->out.rows == NULL || batch_prune(w->out.rows, w->daemon->store, &replaces)) {
        return 0;
    }
    rc = store_commit(w->daemon->store, &w->out.rows, COMMIT_LAZY, e);
    if (replaces) {
        daemon_repo_changed(w->daemon, slice_str(w->repo->name));
    }
    return rc;
}

static int rewrite_work(void *arg, struct slice bytes, struct err *e)
{
    struct rewriting *w = arg;
    char hex[DIGEST_HEX + 1];
    struct digest d;
    int rc = w->repo->ops->rewrite(w->repo, &w->plan, bytes, w->answer->content_type,
                                   w->answer->url, &w->out, e);

    if (rc == 0) {
        rc = keep_rows(w, e);
    }
    if (rc == 0) {
        digest_of(buf_slice(&w->out.body), &d);
        digest_format(&d, hex);
        snprintf(w->etag, sizeof w->etag, "\"%.32s\"", hex);
    }
    return rc == 0 ? 0 : err_prefix(e, "the origin's index page cannot be used");
}

static void rewrite_done(void *arg, struct call *c, int rc, const struct err *why)
{
    struct rewriting *w = arg;
    struct answer *a = w->answer;
    struct hot *h;

    if (rc != 0) {
        log_warn("serve.rewrite_failed", "repo=%s why=\"%s\"", c->repo->name, why->text);
        reply_trouble(c, rc, why);
        return;
    }
    h = reply_resolve(c, hot_name(&c->req, c->repo, c->path), c->plan.want.key, NULL, NULL);
    h->bytes = w->out.body;
    w->out.body = BUF_INIT(0);
    h->valid.etag = arena_copy(&h->arena, slice_str(w->etag));
    h->valid.total_bytes = h->bytes.n;
    h->stored_unix_s = a->stored_unix_s;
    h->fresh_until_unix_s = a->fresh_until_unix_s;
    reply_add(&h->reply, SLICE("etag"), h->valid.etag);
    reply_add(&h->reply, SLICE("content-type"), w->out.content_type);
    opening_send(c, h, a->state != CACHE_STALE);
}

static void rewrite_free(void *arg)
{
    struct rewriting *w = arg;

    answer_release(&w->answer);
    batch_free(&w->out.rows);
    buf_free(&w->out.body);
    free(w);
}

void index_send(struct call *c, struct answer *a)
{
    static const struct document_work work = {rewrite_work, rewrite_done, rewrite_free};
    struct rewriting *w = NEW(struct rewriting);

    w->repo = c->repo;
    w->plan = c->plan;
    w->daemon = c->desk->daemon;
    w->answer = answer_hold(a);
    w->out.body = BUF_INIT((size_t)c->set->conf->cache.document_bytes * 2);
    document_read(c, a, &work, w);
}
