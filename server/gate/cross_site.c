#include "server/gate/cross_site.h"

static bool is_basic(struct slice credentials)
{
    struct slice rest = slice_trim(credentials);

    return slice_ieq(slice_cut(&rest, ' '), SLICE("basic"));
}

/* "https://host:port/path" -> "host:port"; p == NULL: no URL, as "null" is of a sandboxed page. */
static struct slice host_of(struct slice url)
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

static bool is_ours(struct slice origin, struct slice host, const char *public_url)
{
    struct slice from = host_of(origin);

    return from.n != 0 && (slice_ieq(from, host) ||
                           (public_url != NULL && slice_ieq(from, host_of(slice_str(public_url)))));
}

bool cross_site_write(const struct http_req *r, const char *public_url)
{
    struct slice site = http_req_field(r, "sec-fetch-site");
    struct slice origin = http_req_field(r, "origin");

    if (r->method == METHOD_GET || r->method == METHOD_HEAD || r->method == METHOD_OPTIONS ||
        !is_basic(http_req_field(r, "authorization"))) {
        return false;
    }
    if (site.p != NULL) { /* "none": somebody typed it */
        return !slice_eqs(site, "same-origin") && !slice_eqs(site, "none");
    }
    return origin.p != NULL && !is_ours(origin, r->host, public_url);
}
