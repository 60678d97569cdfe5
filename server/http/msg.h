/* msg.h - a request as it came and a reply as it will go, whatever the version of HTTP.
 *
 * Both are plain data in the exchange's arena and live as long as the exchange.
 */
#ifndef SERVER_HTTP_MSG_H
#define SERVER_HTTP_MSG_H

#include <sys/socket.h>

#include "common/base/arena.h"
#include "common/base/slice.h"

enum method {
    METHOD_GET,
    METHOD_HEAD,
    METHOD_PUT,
    METHOD_POST,
    METHOD_DELETE,
    METHOD_PATCH,
    METHOD_OPTIONS,
    METHOD_OTHER
};
enum http_version { HTTP_10, HTTP_11, HTTP_2 };

#define LENGTH_UNKNOWN UINT64_MAX

struct http_field {
    struct slice name;  /* lower case */
    struct slice value; /* trimmed; bytes as they came */
};

struct http_req {
    enum method method;
    enum http_version version;
    bool tls;
    struct slice method_text;
    struct slice target; /* raw, origin-form: begins with '/' (absolute-form is reduced to it) */
    struct slice path;   /* target before '?', raw */
    struct slice query;  /* after '?', raw; n == 0 without; p == NULL when there was no '?' */
    struct slice host;   /* Host or :authority, raw */
    const struct http_field *fields; /* without Host, Connection and framing fields */
    size_t nfields;
    uint64_t content_length; /* LENGTH_UNKNOWN for chunked; 0 without a body */
    bool has_body;
    const struct sockaddr_storage *peer;
    const struct listener *listener;
    struct arena *arena;
    uint64_t unix_s; /* when its head was complete */
    char id[20];     /* X-Request-Id: 16 hex digits, NUL */
};

enum method method_of(struct slice text);

enum { ADDRESS_BYTES = 16 };
/* Of a peer, IPv4 as ::ffff:a.b.c.d; all zero for a family that is neither. */
void address_of(const struct sockaddr_storage *peer, uint8_t out[ADDRESS_BYTES]);

/* An address as the unit of fair shares: of IPv6 its /64, since a host has all of one. Never 0. */
uint64_t client_of(const struct sockaddr_storage *peer);

/* First field of that name (lower case), or a slice with p == NULL. */
struct slice http_req_field(const struct http_req *r, const char *name);
struct slice http_host_name(struct slice host); /* of Host, "[::1]:80" too: without the port */
/* All fields of that name joined by ", " in the arena (RFC 9110 5.3). */
struct slice http_req_list(const struct http_req *r, const char *name);

/* Weights of content negotiation (RFC 9110 12.4.2), in thousandths. A malformed weight counts as
 * 1. */
enum { WEIGHT_ONE = 1000, WEIGHT_NONE = -1 };
int http_weight(struct slice params); /* what follows an element's first ';' */
/* The weight that an Accept list gives to this type by name; wildcards do not count. WEIGHT_NONE:
 * it is not named. */
int http_weight_of(struct slice list, struct slice type);

/* Content-Security-Policy of every answer that names no other: a browser shows the page, runs none
 * of its scripts, and gives it a web origin of its own, so that what an origin or an upload wrote
 * cannot act for the reader. Links to files still work. */
#define REPLY_SANDBOX "sandbox allow-downloads"

/* Room for a reply's fields; the names must be lower case literals or arena text, as the values.
 * Date, Server, X-Request-Id, X-Content-Type-Options, Content-Security-Policy, Content-Length,
 * Transfer-Encoding and Connection are the connection's business: do not add them. */
enum { REPLY_FIELDS = 40 };
struct http_reply {
    int status;
    size_t nfields;
    struct slice date;   /* when the origin made it; p == NULL: now */
    struct slice policy; /* Content-Security-Policy, of a page of ours; p == NULL: REPLY_SANDBOX */
    /* Not 0: on its loop every reply of this number begins with the same so many fields, so they
     * need no second look. */
    uint64_t number;
    size_t numbered;
    struct http_field fields[REPLY_FIELDS];
};

/* *r may be uninitialized. The fields are borrowed. */
void reply_copy(struct http_reply *r, const struct http_reply *from);
void reply_add(struct http_reply *r, struct slice name, struct slice value); /* CHECKs the room */
struct slice reply_policy(const struct http_reply *r);
void reply_addf(struct http_reply *r, struct arena *a, const char *name, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
const char *http_reason(int status);

#endif
