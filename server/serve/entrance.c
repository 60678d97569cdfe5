#include "server/serve/entrance.h"

#include "server/serve/own.h"
#include "server/serve/path_token.h"
#include "server/serve/refusal.h"

static struct route route(struct desk *d, struct exchange *x)
{
    return path_token_take(x, d->set->repo, d->set->count,
                           listener_root(exchange_req(x)->listener));
}

static void answer(struct desk *d, struct exchange *x, struct visit *v, const struct route *to)
{
    (void)to;
    own_answer(d, x, v);
}

/* Health is not: who looks after a busy server must see that it lives. */
static bool counted(const struct http_req *req)
{
    return !slice_eqs(req->path, "/healthz") && !slice_eqs(req->path, "/readyz");
}

static void refuse_stranger(struct desk *d, struct exchange *x, const char *why)
{
    (void)d;
    refuse_token(x, why);
}

static void challenge(const struct http_req *req, const struct conf *conf, bool publish,
                      struct arena *a, struct http_reply *r)
{
    (void)req, (void)conf, (void)publish, (void)a;
    refusal_challenge(r);
}

static struct slice words(const struct http_req *req, struct slice why, struct arena *a,
                          struct http_reply *r)
{
    return refusal_words(req, arena_fmt(a, SLICE_FMT "\n", SLICE_ARG(why)), a, r);
}

const struct entrance *entrance_of(const struct entrance *const *doors, const struct http_req *req)
{
    static const struct entrance front = {
        .route = route,
        .answer = answer,
        .counted = counted,
        .refuse_token = refuse_stranger,
        .refuse_haste = refuse_haste,
        .challenge = challenge,
        .words = words,
    };

    for (; *doors != NULL; doors++) {
        if ((*doors)->asked(req)) {
            return *doors;
        }
    }
    return &front;
}
