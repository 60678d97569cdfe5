#include "server/http/h1_write.h"

enum { FIXED_BYTES = 512 };

static char *put_h1_text(char *to, struct slice s)
{
    if (s.n != 0) {
        memcpy(to, s.p, s.n);
    }
    return to + s.n;
}

static char *put_field(char *to, struct slice name, struct slice value)
{
    to = put_h1_text(to, name);
    to = put_h1_text(to, SLICE(": "));
    to = put_h1_text(to, value);
    return put_h1_text(to, SLICE("\r\n"));
}

static char *put_u64(char *to, uint64_t v)
{
    char room[U64_DIGITS];

    return put_h1_text(to, slice_of_u64(room, v));
}

static char *put_status(char *to, int status)
{
    to = put_h1_text(to, SLICE("HTTP/1.1 "));
    to = put_u64(to, (uint64_t)status);
    *to++ = ' ';
    to = put_h1_text(to, slice_str(http_reason(status)));
    return put_h1_text(to, SLICE("\r\n"));
}

static char *put_length(char *to, uint64_t n)
{
    to = put_h1_text(to, SLICE("content-length: "));
    to = put_u64(to, n);
    return put_h1_text(to, SLICE("\r\n"));
}

size_t h1_answer_bound(const struct http_reply *r)
{
    size_t n = FIXED_BYTES + r->policy.n;

    for (size_t i = 0; i < r->nfields; i++) {
        n += r->fields[i].name.n + r->fields[i].value.n + 4;
    }
    return n;
}

static char *put_framing(char *to, const struct h1_answer *a)
{
    if (a->framing == H1_CHUNKED) {
        to = put_h1_text(to, SLICE("transfer-encoding: chunked\r\n"));
    } else if (a->framing == H1_LENGTH) {
        to = put_length(to, a->length);
    }
    if (a->close) {
        to = put_h1_text(to, SLICE("connection: close\r\n"));
    } else if (a->keep_alive) {
        to = put_h1_text(to, SLICE("connection: keep-alive\r\n"));
    }
    return to;
}

size_t h1_answer_write(char *start, const struct h1_answer *a)
{
    const struct http_reply *r = a->reply;
    char *to = put_status(start, r->status);

    to = put_field(to, SLICE("date"), r->date.p != NULL ? r->date : a->now);
    to = put_h1_text(to, SLICE("server: mirrord\r\nx-content-type-options: nosniff\r\n"));
    to = put_field(to, SLICE("content-security-policy"), reply_policy(r));
    to = put_h1_text(to, SLICE("x-request-id: "));
    to = put_h1_text(to, a->id);
    to = put_h1_text(to, SLICE("\r\n"));
    for (size_t i = 0; i < r->nfields; i++) {
        to = put_field(to, r->fields[i].name, r->fields[i].value);
    }
    to = put_framing(to, a);
    to = put_h1_text(to, SLICE("\r\n"));
    return (size_t)(to - start);
}
