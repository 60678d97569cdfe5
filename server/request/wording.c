#include "server/request/wording.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "server/request/rendering.h"
#include "server/request/reply.h"
#include "server/request/response.h"

enum { TEXT_BYTES = 1 << 30 };

struct wording { /* what it points to is the call's */
    const struct repo *repo;
    const struct plan *plan;
};

static int make_refusal_wording(void *arg, struct buf *out, struct rendering *about, struct err *e)
{
    const struct wording *w = arg;
    int rc = w->plan->word(w->repo, w->plan, out, e);

    about->content_type = SLICE_NONE; /* the plan has it */
    if (rc == 0 && out->rc != 0) {
        rc = err_set(e, E_TOOBIG, "the listing is too large");
    }
    return rc;
}

static void on_worded(struct request *c, struct rendering *r, int rc, const struct err *why)
{
    if (rc != 0) {
        log_warn("serve.wording_failed", "repo=%s why=\"%s\"", c->repo->name, why->text);
        reply_trouble(c, rc, why);
        return;
    }
    request_send(c, response_of_text(c, r), c->plan.reuse == REUSE_KEPT);
}

void wording_send(struct request *c)
{
    static const struct rendering_work work = {make_refusal_wording, free};
    struct wording *w = NEW(struct wording);

    *w = (struct wording){c->repo, &c->plan};
    rendering_ask(c, arena_fmt(&c->arena, "text " SLICE_FMT, SLICE_ARG(c->plan.variant)),
                  TEXT_BYTES, &work, w, on_worded);
}
