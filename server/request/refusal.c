#include "server/request/refusal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "server/page/html.h"

enum { TEXT_BYTES = 4096, PAGE_BYTES = 64 << 10, POLICY_BYTES = 1024 };

/* Browsers give text/html the full weight. pip and uv name it, too, with less. */
static bool is_browser(const struct http_req *req)
{
    struct slice accept = http_req_list(req, "accept");

    return http_weight_of(accept, SLICE("text/html")) == WEIGHT_ONE &&
           http_weight_of(accept, SLICE("application/json")) < WEIGHT_ONE;
}

static void write_page(struct buf *out, const char *title, struct slice text)
{
    struct buf whole = BUF_INIT(TEXT_BYTES);

    buf_addf(&whole, "%s - mirrord", title);
    html_begin(out, buf_slice(&whole));
    buf_free(&whole);
    buf_str(out, "<header class=\"folder\">\n<h1>");
    html_nav_begin(out, SLICE("/"));
    buf_addf(out, "mirrord</a> / %s</h1>\n</header>\n<main>\n", title);
    while (text.n != 0) {
        buf_str(out, "<p class=\"words\">");
        html_words(out, slice_cut(&text, '\n'));
        buf_str(out, "</p>\n");
    }
    buf_str(out, "</main>\n");
    html_end(out, HTML_FOLDER);
}

static struct slice write_refusal_page(const struct http_req *req, const char *title,
                                       struct slice text, struct arena *a, struct http_reply *r)
{
    struct buf page = BUF_INIT(PAGE_BYTES), policy = BUF_INIT(POLICY_BYTES);

    reply_add(r, SLICE("vary"), SLICE("accept"));
    if (is_browser(req)) {
        write_page(&page, title, text);
        html_policy(&policy, HTML_FOLDER);
    }
    if (page.n != 0 && page.rc == 0) {
        reply_add(r, SLICE("content-type"), SLICE("text/html; charset=utf-8"));
        r->policy = arena_copy(a, buf_slice(&policy));
        text = arena_copy(a, buf_slice(&page));
    } else {
        reply_add(r, SLICE("content-type"), SLICE("text/plain; charset=utf-8"));
    }
    buf_free(&page);
    buf_free(&policy);
    return text;
}

struct slice refusal_words(const struct http_req *req, struct slice text, struct arena *a,
                           struct http_reply *r)
{
    char title[64];

    snprintf(title, sizeof title, "%d %s", r->status, http_reason(r->status));
    return write_refusal_page(req, title, text, a, r);
}

static void reply_words(struct exchange *x, struct http_reply *r, struct slice text)
{
    struct slice body = refusal_words(exchange_req(x), text, exchange_arena(x), r);

    exchange_reply(x, r, body_of_bytes(body));
}

void refuse(struct exchange *x, int status, const char *fmt, ...)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);
    struct buf text = BUF_INIT(TEXT_BYTES);
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(&text, fmt, ap);
    va_end(ap);
    r->status = status;
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    reply_words(x, r, buf_slice(&text));
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
    refuse_busy(x, "requests use all the memory they may, and yours use most of it; send fewer at "
                   "the same time, and repeat this one\n");
}

void refuse_method(struct exchange *x, struct slice allow, struct slice text)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = 405;
    reply_add(r, SLICE("allow"), allow);
    reply_words(x, r, text);
}

void refusal_challenge(struct http_reply *r)
{
    reply_add(r, SLICE("www-authenticate"), SLICE("Basic realm=\"mirrord\""));
    reply_add(r, SLICE("www-authenticate"), SLICE("Bearer"));
}

/* --- does a web page of somebody else write here with its reader's login? ---
 *
 * A browser sends the Basic credentials that it holds for this server with any request that any
 * page makes, so a page of another web origin could write as its reader (CSRF). Browsers say where
 * a request comes from: Sec-Fetch-Site, over TLS and to loopback, and Origin with every write.
 * Programs say neither, and Bearer tokens are not sent by themselves. The rules are those of Go's
 * net/http.CrossOriginProtection (W3C Fetch Metadata; RFC 6454).
 */

static bool is_basic(struct slice credentials)
{
    struct slice rest = slice_trim(credentials);

    return slice_ieq(slice_cut(&rest, ' '), SLICE("basic"));
}

/* "https://host:port/path" -> "host:port"; p == NULL: no URL, as "null" is of a sandboxed page. */
static struct slice host_of_public_url(struct slice url)
{
    static const char mark[] = "://";
    const char *at = memmem(url.p, url.n, mark, strlen(mark));
    struct slice rest;

    if (at == NULL) {
        return SLICE_NONE;
    }
    rest = slice_from(url, (size_t)(at - url.p) + strlen(mark));
    return slice_cut(&rest, '/');
}

static bool is_same_site(struct slice origin, struct slice host, const char *public_url)
{
    struct slice from = host_of_public_url(origin);

    return from.n != 0 &&
           (slice_ieq(from, host) ||
            (public_url != NULL && slice_ieq(from, host_of_public_url(slice_str(public_url)))));
}

static bool is_cross_site(const struct http_req *r, const char *public_url)
{
    struct slice site, origin;

    if (r->method == METHOD_GET || r->method == METHOD_HEAD || r->method == METHOD_OPTIONS ||
        !is_basic(http_req_field(r, "authorization"))) {
        return false;
    }
    site = http_req_field(r, "sec-fetch-site");
    if (site.p != NULL) { /* "none": somebody typed it */
        return !slice_eqs(site, "same-origin") && !slice_eqs(site, "none");
    }
    origin = http_req_field(r, "origin");
    return origin.p != NULL && !is_same_site(origin, r->host, public_url);
}

bool refuse_cross_site(struct exchange *x, const struct http_req *req, const char *public_url)
{
    struct slice from;

    if (!is_cross_site(req, public_url)) {
        return false;
    }
    from = http_req_field(req, "origin");
    refuse(x, 403,
           SLICE_FMT
           " refused: a web page of another site (" SLICE_FMT
           ") sent it with the login that your browser stores for this server, and only pages of "
           "this server may do that; programs must send `Authorization: Bearer`\n",
           SLICE_ARG(req->method_text), SLICE_ARG(from.n != 0 ? from : SLICE("unknown site")));
    return true;
}

/* --- no token, or too many requests --- */

void refuse_login(struct exchange *x)
{
    static const char text[] = "You are logged out: your browser has dropped the token that it "
                               "stored for this server.\nIf it asks for a name and a password, "
                               "cancel. To log in again, open a page that requires a token.\n";
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = 401;
    reply_add(r, SLICE("www-authenticate"), SLICE("Basic realm=\"mirrord\""));
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    exchange_reply(x, r,
                   body_of_bytes(write_refusal_page(exchange_req(x), "logged out", slice_str(text),
                                                    exchange_arena(x), r)));
}

void refuse_token(struct exchange *x, const char *why)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = 401;
    refusal_challenge(r);
    reply_words(x, r, arena_fmt(exchange_arena(x), "%s\n", why));
}

void refuse_rate_limited(struct exchange *x, const struct gate_decision *g)
{
    struct arena *a = exchange_arena(x);
    struct http_reply *r = ARENA_NEW(a, struct http_reply);

    r->status = 429;
    reply_addf(r, a, "retry-after", "%" PRIu32, g->retry_after_s);
    reply_addf(r, a, "ratelimit", "limit=%" PRIu64 ", remaining=%" PRIu64 ", reset=%" PRIu64,
               g->limit, g->remaining, g->reset_s);
    reply_words(x, r,
                arena_fmt(a,
                          "too many requests: the limit is %" PRIu64
                          " at the same time; try again in %" PRIu32 " s\n",
                          g->limit, g->retry_after_s));
}
