#include "server/http/msg.h"

#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/base/endian.h"

void address_of(const struct sockaddr_storage *peer, uint8_t out[ADDRESS_BYTES])
{
    memset(out, 0, ADDRESS_BYTES);
    if (peer->ss_family == AF_INET) {
        out[10] = out[11] = 0xff;
        memcpy(out + 12, &((const struct sockaddr_in *)(const void *)peer)->sin_addr, 4);
    } else if (peer->ss_family == AF_INET6) {
        memcpy(out, &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr, ADDRESS_BYTES);
    }
}

uint64_t client_of(const struct sockaddr_storage *peer)
{
    static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};
    uint8_t address[ADDRESS_BYTES];
    uint64_t id;

    address_of(peer, address);
    id = memcmp(address, v4_prefix, sizeof v4_prefix) == 0
             ? (uint64_t)1 << 32 | be_get(address + 12, 4)
             : be_get(address, 8);
    return id != 0 ? id : UINT64_MAX;
}

struct slice http_host_name(struct slice host)
{
    ptrdiff_t end = slice_find(host, host.n > 0 && host.p[0] == '[' ? ']' : ':');

    return end < 0 ? host : slice_first(host, (size_t)end + (host.p[end] == ']'));
}

struct slice http_req_field(const struct http_req *r, const char *name)
{
    struct slice want = slice_str(name);

    for (size_t i = 0; i < r->nfields; i++) {
        if (slice_eq(r->fields[i].name, want)) {
            return r->fields[i].value;
        }
    }
    return SLICE_NONE;
}

struct slice http_req_list(const struct http_req *r, const char *name)
{
    struct slice want = slice_str(name), first = SLICE_NONE;
    size_t bytes = 0, count = 0;
    char *joined, *to;

    for (size_t i = 0; i < r->nfields; i++) {
        if (slice_eq(r->fields[i].name, want)) {
            first = count == 0 ? r->fields[i].value : first;
            bytes += r->fields[i].value.n + 2;
            count++;
        }
    }
    if (count < 2) {
        return first;
    }
    joined = to = arena_raw(r->arena, bytes);
    for (size_t i = 0; i < r->nfields; i++) {
        struct slice value = r->fields[i].value;
        if (slice_eq(r->fields[i].name, want)) {
            if (to != joined) {
                *to++ = ',';
                *to++ = ' ';
            }
            memcpy(to, value.p, value.n);
            to += value.n;
        }
    }
    return slice_of(joined, (size_t)(to - joined));
}

/* "0.25" in thousandths. */
static int parse_q(struct slice v)
{
    int q = 0;
    int scale = WEIGHT_ONE;

    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] >= '0' && v.p[i] <= '9' && i != 1) {
            q += (v.p[i] - '0') * scale;
            scale /= 10;
        } else if (i != 1 || v.p[i] != '.') {
            return WEIGHT_ONE;
        }
    }
    return v.n == 0 || q > WEIGHT_ONE ? WEIGHT_ONE : q;
}

int http_weight(struct slice params)
{
    while (params.n != 0) {
        struct slice value = slice_cut(&params, ';');
        struct slice name = slice_trim(slice_cut(&value, '='));
        if (slice_ieq(name, SLICE("q"))) {
            return parse_q(slice_trim(value));
        }
    }
    return WEIGHT_ONE;
}

int http_weight_of(struct slice list, struct slice type)
{
    int most = WEIGHT_NONE;

    while (list.n != 0) {
        struct slice params = slice_cut(&list, ',');
        if (slice_ieq(slice_trim(slice_cut(&params, ';')), type)) {
            int q = http_weight(params);
            most = q > most ? q : most;
        }
    }
    return most;
}

enum method method_of(struct slice text)
{
    static const struct {
        struct slice text;
        enum method method;
    } known[] = {
        {{"GET", 3}, METHOD_GET},         {{"HEAD", 4}, METHOD_HEAD},
        {{"PUT", 3}, METHOD_PUT},         {{"POST", 4}, METHOD_POST},
        {{"DELETE", 6}, METHOD_DELETE},   {{"PATCH", 5}, METHOD_PATCH},
        {{"OPTIONS", 7}, METHOD_OPTIONS},
    };

    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (slice_eq(known[i].text, text)) {
            return known[i].method;
        }
    }
    return METHOD_OTHER;
}

void reply_copy(struct http_reply *r, const struct http_reply *from)
{
    r->status = from->status;
    r->nfields = from->nfields;
    r->date = from->date;
    r->policy = from->policy;
    r->number = from->number;
    r->numbered = from->nfields;
    memcpy(r->fields, from->fields, from->nfields * sizeof *from->fields);
}

void reply_add(struct http_reply *r, struct slice name, struct slice value)
{
    CHECK(r->nfields < REPLY_FIELDS);
    r->fields[r->nfields++] = (struct http_field){name, value};
}

struct slice reply_policy(const struct http_reply *r)
{
    return r->policy.p != NULL ? r->policy : SLICE(REPLY_SANDBOX);
}

void reply_addf(struct http_reply *r, struct arena *a, const char *name, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    CHECK(n >= 0);
    if ((size_t)n < sizeof text) {
        reply_add(r, slice_str(name), arena_copy(a, slice_of(text, (size_t)n)));
    } else {
        char *room = arena_alloc(a, (size_t)n + 1);
        va_start(ap, fmt);
        vsnprintf(room, (size_t)n + 1, fmt, ap);
        va_end(ap);
        reply_add(r, slice_str(name), slice_of(room, (size_t)n));
    }
}

const char *http_reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } known[] = {
        {100, "Continue"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {425, "Too Early"},
        {428, "Precondition Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {451, "Unavailable For Legal Reasons"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
    };

    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (known[i].status == status) {
            return known[i].text;
        }
    }
    return "Status";
}
