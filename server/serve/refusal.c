#include "server/serve/refusal.h"

#include <inttypes.h>
#include <stdarg.h>

#include "server/serve/reply.h"

void refuse(struct exchange *x, int status, const char *fmt, ...)
{
    struct buf text = BUF_INIT(4096);
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(&text, fmt, ap);
    va_end(ap);
    reply_text(x, status, buf_slice(&text));
    buf_free(&text);
}

void refuse_busy(struct exchange *x, const char *why)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = 503;
    reply_add(r, SLICE("retry-after"), SLICE("1"));
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    reply_add(r, SLICE("content-type"), SLICE("text/plain; charset=utf-8"));
    exchange_reply(x, r, body_of_bytes(arena_copy(exchange_arena(x), slice_str(why))));
}

void refuse_memory(struct exchange *x)
{
    refuse_busy(
        x,
        "requests hold all the memory that they may, and yours hold most of it: send fewer at once, "
        "and this one again\n");
}

void refuse_method(struct exchange *x, struct slice allow, struct slice text)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = 405;
    reply_add(r, SLICE("allow"), allow);
    reply_add(r, SLICE("content-type"), SLICE("text/plain; charset=utf-8"));
    exchange_reply(x, r, body_of_bytes(text));
}

void refusal_challenge(struct http_reply *r)
{
    reply_add(r, SLICE("www-authenticate"), SLICE("Basic realm=\"mirrord\""));
    reply_add(r, SLICE("www-authenticate"), SLICE("Bearer"));
}

void refuse_cross_site(struct exchange *x)
{
    const struct http_req *req = exchange_req(x);
    struct slice from = http_req_field(req, "origin");

    refuse(
        x, 403,
        SLICE_FMT
        " refused: a web page of another site (" SLICE_FMT
        ") sent it with the login that your browser keeps for this server, and only pages of this "
        "server may do that; programs send `Authorization: Bearer`\n",
        SLICE_ARG(req->method_text),
        SLICE_ARG(from.n != 0 ? from : SLICE("it does not say which")));
}

void refuse_login(struct exchange *x)
{
    static const char text[] =
        "You are logged out: your browser has dropped the token that it kept for this server.\n"
        "If it asks for a name and a password, cancel. To log in again, open a page that needs a token.\n";
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = 401;
    reply_add(r, SLICE("www-authenticate"), SLICE("Basic realm=\"mirrord\""));
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    reply_add(r, SLICE("content-type"), SLICE("text/plain; charset=utf-8"));
    exchange_reply(x, r, body_of_bytes(slice_str(text)));
}

void refuse_token(struct exchange *x, const char *why)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = 401;
    refusal_challenge(r);
    reply_add(r, SLICE("content-type"), SLICE("text/plain; charset=utf-8"));
    exchange_reply(x, r, body_of_bytes(arena_fmt(exchange_arena(x), "%s\n", why)));
}

void refuse_haste(struct exchange *x, const struct gate_verdict *g)
{
    struct arena *a = exchange_arena(x);
    struct http_reply *r = ARENA_NEW(a, struct http_reply);

    r->status = 429;
    reply_addf(r, a, "retry-after", "%" PRIu32, g->retry_after_s);
    reply_addf(r, a, "ratelimit", "limit=%" PRIu64 ", remaining=%" PRIu64 ", reset=%" PRIu64,
               g->limit, g->remaining, g->reset_s);
    reply_add(r, SLICE("content-type"), SLICE("text/plain; charset=utf-8"));
    exchange_reply(x, r,
                   body_of_bytes(arena_fmt(a,
                                           "too many requests: %" PRIu64
                                           " at once are the limit; try again in %" PRIu32 " s\n",
                                           g->limit, g->retry_after_s)));
}
