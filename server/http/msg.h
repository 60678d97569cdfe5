/* msg.h - a request as it was received and a reply as it will be sent, whatever the version of
 * HTTP.
 *
 * owns     nothing: both are plain data in the exchange's arena and live as long as the exchange
 * threads  the loop of the exchange
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
    struct slice value; /* trimmed; otherwise as received */
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
/* The address of a peer, IPv4 as ::ffff:a.b.c.d; all zero for any other family. */
void address_of(const struct sockaddr_storage *peer, uint8_t out[ADDRESS_BYTES]);

/* An address as the unit of fair shares. Of IPv6 it is the /64, because a host has all of one.
 * Never 0. */
uint64_t client_of(const struct sockaddr_storage *peer);

/* The first field of that name (lower case), or p == NULL. */
struct slice http_req_field(const struct http_req *r, const char *name);
struct slice http_host_name(struct slice host); /* from Host, also "[::1]:80": without the port */
/* All fields of that name joined by ", " in the arena (RFC 9110 5.3). */
struct slice http_req_list(const struct http_req *r, const char *name);

/* Weights of content negotiation (RFC 9110 12.4.2), in thousandths. A malformed weight counts as
 * 1. */
enum { WEIGHT_ONE = 1000, WEIGHT_NONE = -1 };
int http_weight(struct slice params); /* params: what follows an element's first ';' */
/* The weight that an Accept list gives to this type by name; wildcards do not count. WEIGHT_NONE:
 * the list does not name it. */
int http_weight_of(struct slice list, struct slice type);

/* The Content-Security-Policy of every answer without another one. A browser shows the page, runs
 * none of its scripts, and gives it a web origin of its own. So content of an origin or an upload
 * cannot act with the reader's rights. Links to files still work. */
#define REPLY_SANDBOX "sandbox allow-downloads"

/* The maximum of a reply's fields. Names must be lower-case literals or arena text, and so must
 * values. Date, Server, X-Request-Id, X-Content-Type-Options, Content-Security-Policy,
 * Content-Length, Transfer-Encoding and Connection are set by the connection: do not add them. */
enum { REPLY_FIELDS = 40 };
struct http_reply {
    int status;
    size_t nfields;
    struct slice date;   /* when the origin made it; p == NULL: now */
    struct slice policy; /* Content-Security-Policy of a page of ours; p == NULL: REPLY_SANDBOX */
    /* Not 0: on its loop every reply with this number begins with the same `numbered` fields, so
     * they need not be compared again. */
    uint64_t number;
    size_t numbered;
    struct http_field fields[REPLY_FIELDS];
};

/* *r may be uninitialized. The fields are borrowed. */
void reply_copy(struct http_reply *r, const struct http_reply *from);
/* CHECKs that there is room */
void reply_add(struct http_reply *r, struct slice name, struct slice value);
struct slice reply_policy(const struct http_reply *r);
void reply_addf(struct http_reply *r, struct arena *a, const char *name, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
const char *http_reason(int status);

#endif
