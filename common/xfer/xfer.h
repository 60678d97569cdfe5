/* xfer.h - one HTTP transfer on a libevent loop, over libcurl's multi interface; callers see
 * nothing of libcurl.
 *
 * It is one request and one response. Redirects are not followed, error statuses are not judged,
 * nothing is retried: the caller sees the header section and decides. HTTP/1.1, or h2 over TLS if
 * requested (cleartext h2 hangs in 7.88). Certificates are always checked. The environment's
 * proxies, cookies, .netrc and content decoding are not used.
 *
 * events   run on the loop, never inside a call of this page. on_head once, or never when it fails
 *          early; on_body any number of times; on_done exactly once and last: the xfer is gone when
 *          it returns
 * owns     the loop borrows `base`; xfer_start() copies its parameters (but not the bytes of a
 *          body in memory)
 * threads  all on the loop's thread
 * errors   E_NETWORK, E_TIMEOUT, E_PROTOCOL, E_DENIED (admit), E_TOOBIG (header section),
 *          E_INVALID (parameters); the sentence names host and reason, never path or query, which
 *          may be signed
 */
#ifndef COMMON_XFER_XFER_H
#define COMMON_XFER_XFER_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct event_base;
struct psk;
struct sockaddr;
struct xfer;
struct xfer_loop;

#define XFER_UNKNOWN UINT64_MAX /* of lengths */

struct xfer_limits {           /* a zero means the default in the comment */
    unsigned connections;      /* simultaneous, 64 */
    unsigned host_connections; /* to one host and port, 16 */
    unsigned head_fields;      /* 200 */
    size_t head_bytes;         /* 64 KiB */
    const char *user_agent;    /* "mirrord/<version>" */
};

enum xfer_method { XFER_GET, XFER_HEAD, XFER_PUT, XFER_POST, XFER_DELETE, XFER_PATCH };

/* What body_read() returns when it has no bytes yet: it is called again after xfer_feed(). */
#define XFER_NOT_YET PTRDIFF_MIN

struct xfer_params {
    enum xfer_method method;
    struct slice url;
    /* lines "Name: value"; Range and Accept-Encoding: identity are ours */
    const struct slice *fields;
    size_t nfields;
    bool ranged; /* bytes=first-last, both ends inclusive */
    uint64_t range_first;
    uint64_t range_last;
    /* The body of PUT, POST and PATCH: `body`, or body_bytes from body_read(arg, offset, ...),
     * which gives 1 to n bytes, XFER_NOT_YET, or a negative E_* to fail. It may be called for an
     * offset again when a kept connection turns out to be dead. body_bytes XFER_UNKNOWN: the body
     * is sent chunked, and 0 is its end. */
    struct slice body;
    uint64_t body_bytes;
    ptrdiff_t (*body_read)(void *arg, uint64_t offset, void *p, size_t n);
    /* on a connection of its own, so body_read() is never called for an offset again */
    bool own_connection;
    /* a peer that acknowledges nothing for so long has broken the connection; 0: the kernel's 15
     * minutes */
    unsigned unacknowledged_ms;
    uint64_t connect_timeout_ms; /* name, connection and TLS; 10 s */
    /* this long below idle_bytes_per_s fails it; a pause does not count; 60 s */
    unsigned idle_timeout_s;
    uint64_t idle_bytes_per_s; /* 1 */
    bool http2;
    const char *ca_file; /* instead of the system's */
    /* is added to the reason when no trusted CA has signed the host's certificate; static, or
     * NULL */
    const char *no_issuer;
    const char *proxy;    /* "http://host:port" */
    const char *no_proxy; /* as curl's: "host,.domain,10.0.0.0/8" */
    /* "address:port" to connect to, whatever host the URL names. Kept connections are
     * distinguished by that name: one is used again only for the same name and address. */
    const char *connect_to;
    /* instead of certificates (psk.h); each identity needs its own host name */
    const struct psk *psk;
    /* May this address be contacted? Called before connecting and again before a request is sent
     * on a kept connection. Not called for a proxy, unless proxy_resolve is set. */
    bool (*admit)(void *arg, const struct sockaddr *sa);
    /* With a proxy: the URL's host is looked up here, and the proxy gets a CONNECT for an address
     * that `admit` accepted. So it looks up no name, and the checked address is the one that is
     * reached. Not with no_proxy or connect_to. */
    bool proxy_resolve;
};

struct xfer_field {
    struct slice name; /* lower case */
    struct slice value;
};

struct xfer_head { /* lives during on_head only */
    int status;    /* final: 1xx responses are skipped */
    /* the end of the body is marked; without that a truncated body looks complete */
    bool framed;
    uint64_t content_length; /* as announced (also for HEAD), or XFER_UNKNOWN */
    const struct xfer_field *fields;
    size_t nfields;
};

/* The first field of that name (lower case), or p == NULL. */
struct slice xfer_head_field(const struct xfer_head *h, const char *name);

enum { XFER_PAUSE = 1, XFER_SLICE_MAX = 16 << 10 /* the most bytes in one on_body */ };

struct xfer_events {
    int (*on_head)(void *arg,
                   const struct xfer_head *h); /* 0, or an E_* that ends the transfer as its rc */
    /* 0, an E_*, or XFER_PAUSE: these bytes are taken; neither more bytes nor the end come until
     * xfer_resume(), but a failure does. */
    int (*on_body)(void *arg, struct slice bytes);
    /* rc 0: the response is complete, whatever its status. body_bytes: how many on_body was
     * given. */
    void (*on_done)(void *arg, int rc, const struct err *why, uint64_t body_bytes);
};

struct xfer_loop *xfer_loop_open(struct event_base *base, const struct xfer_limits *limits);
void xfer_loop_close(struct xfer_loop **lp); /* not from an event; cancels running transfers */

struct xfer *xfer_start(struct xfer_loop *l, const struct xfer_params *w,
                        const struct xfer_events *ev, void *arg);
void xfer_resume(struct xfer *x);
void xfer_feed(struct xfer *x); /* body_read() has bytes, or the end, after XFER_NOT_YET */
bool xfer_has_sent(const struct xfer *x); /* anything of its request; in on_done, too */
void xfer_cancel(struct xfer **xp);       /* no event after it returns; NULL is fine */

#endif
