/* h2_rules.c - what a request's head may hold (RFC 9113 8.2, 8.3), field by field. Targets and hosts are judged in h2_request.c, as
 * over HTTP/1. */
#include "server/http/h2.h"

enum { /* exchange.pseudo */
       SEEN_METHOD = 1,
       SEEN_SCHEME = 2,
       SEEN_PATH = 4,
       SEEN_AUTHORITY = 8,
       SEEN_HOST = 16,
       SEEN_LENGTH = 32,
       SEEN_FIELD = 64,
       SEEN_CONNECT = 128,
};

static bool first_of(struct h2_stream *st, unsigned bit, struct slice value)
{
    bool first = (st->pseudo & bit) == 0 && value.n > 0;

    st->pseudo |= (uint8_t)bit;
    return first;
}

static bool pseudo_allowed(struct h2_stream *st, struct slice name, struct slice value)
{
    if ((st->pseudo & SEEN_FIELD) != 0) {
        return false;
    }
    if (slice_eq(name, SLICE(":path"))) {
        return first_of(st, SEEN_PATH, value);
    }
    if (slice_eq(name, SLICE(":method"))) {
        st->pseudo |= slice_eq(value, SLICE("CONNECT")) ? SEEN_CONNECT : 0;
        return first_of(st, SEEN_METHOD, value) &&
               nghttp2_check_method((const uint8_t *)value.p, value.n) != 0;
    }
    if (slice_eq(name, SLICE(":scheme"))) {
        return first_of(st, SEEN_SCHEME, value);
    }
    return slice_eq(name, SLICE(":authority")) && first_of(st, SEEN_AUTHORITY, value);
}

/* 8.2.2: fields that are about the connection have no place here. */
static bool about_connection(struct slice name, struct slice value)
{
    switch (name.n) {
    case 2:
        return slice_eq(name, SLICE("te")) && !slice_ieq(value, SLICE("trailers"));
    case 7:
        return slice_eq(name, SLICE("upgrade"));
    case 10:
        return slice_eq(name, SLICE("connection")) || slice_eq(name, SLICE("keep-alive"));
    case 16:
        return slice_eq(name, SLICE("proxy-connection"));
    case 17:
        return slice_eq(name, SLICE("transfer-encoding"));
    default:
        return false;
    }
}

bool h2_field_allowed(struct h2_stream *st, struct slice name, struct slice value, bool trailer)
{
    bool pseudo = name.n > 0 && name.p[0] == ':';

    if (pseudo) { /* their values are judged as those of HTTP/1's first line are */
        return !trailer && pseudo_allowed(st, name, value);
    }
    st->pseudo |= SEEN_FIELD;
    if (nghttp2_check_header_name((const uint8_t *)name.p, name.n) == 0 ||
        nghttp2_check_header_value((const uint8_t *)value.p, value.n) == 0 ||
        about_connection(name, value)) {
        return false;
    }
    if (slice_eq(name, SLICE("host"))) {
        return first_of(st, SEEN_HOST, value);
    }
    if (slice_eq(name, SLICE("content-length"))) {
        return trailer || (first_of(st, SEEN_LENGTH, value) && slice_u64(value, &st->announced) &&
                           st->announced != LENGTH_UNKNOWN);
    }
    return true;
}

bool h2_head_allowed(const struct h2_stream *st)
{
    const unsigned all = SEEN_METHOD | SEEN_SCHEME | SEEN_PATH;

    if ((st->pseudo & SEEN_CONNECT) != 0) {
        return (st->pseudo & (SEEN_SCHEME | SEEN_PATH)) == 0 && (st->pseudo & SEEN_AUTHORITY) != 0;
    }
    return (st->pseudo & all) == all && (st->pseudo & (SEEN_AUTHORITY | SEEN_HOST)) != 0;
}
