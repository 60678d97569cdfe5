/* listener.h - sockets we accept on; one acceptor thread hands each connection to the least busy loop.
 *
 * Handing over: TLS or not, h1 or h2 (by ALPN, or by the h2c preface) is found out on the loop.
 */
#ifndef SERVER_NET_LISTENER_H
#define SERVER_NET_LISTENER_H

#include "common/base/err.h"
#include "server/http/exchange.h"
#include "server/net/loop.h"

struct listener_settings {
    const char *address;         /* "0.0.0.0:8080", "[::]:8443", ":0" picks a port */
    const char *root;            /* repo that answers at '/', or NULL */
    const char *tls_certificate; /* PEM chain; NULL: cleartext */
    const char *tls_key;
    const char *tcp_congestion; /* "cubic"; NULL: the system's */
};

/* Ceilings against abuse, research/agent-and-ops 4.2; all have defaults in settings.def. */
struct http_limits {
    uint32_t header_bytes;         /* 32 KiB, request line included */
    uint32_t header_fields;        /* 100 */
    uint32_t uri_bytes;            /* 8 KiB */
    uint32_t header_ms;            /* 10 s from the first byte to the end of the head */
    uint32_t handshake_ms;         /* 10 s */
    uint32_t idle_ms;              /* 75 s between requests */
    uint32_t stall_ms;             /* 60 s without progress of a body, either way */
    uint32_t min_rate_bytes_per_s; /* 16 KiB/s of an upload over 10 s windows; 0: off */
    uint32_t streams;              /* 128 concurrent per h2 connection */
    uint32_t reset_burst;          /* 200 RST_STREAM, then GOAWAY ENHANCE_YOUR_CALM */
    uint32_t resets_per_s;         /* 20 */
    uint32_t connections;          /* 16384 in all */
    uint64_t discard_bytes;        /* 1 MiB of an unread request body */
};

struct listener;
struct http_server;

struct http_server *http_server_open(struct loops *ls, const struct http_limits *limits,
                                     struct exchange_handler handler);
/* Binds at once (the error names address and reason); accepts after http_server_start(). */
MUST_USE int http_server_listen(struct http_server *s, const struct listener_settings *set,
                                struct err *e);
/* Certificates are read again; on an error the old ones stay. */
MUST_USE int http_server_reload_tls(struct http_server *s, struct err *e);
void http_server_start(struct http_server *s);
/* Stops accepting; GOAWAY and "Connection: close"; connections end when idle, or after drain_ms in any case. Calls
 * drained(arg) on some loop when none is left. */
void http_server_drain(struct http_server *s, uint32_t drain_ms, void (*drained)(void *arg),
                       void *arg);
void http_server_close(struct http_server **sp);

const char *listener_root(const struct listener *l);    /* NULL without */
const char *listener_address(const struct listener *l); /* as bound: "127.0.0.1:40123" */
bool listener_tls(const struct listener *l);

struct http_stats { /* sums over the loops, read racily: gauges and counters for /metrics */
    uint64_t accepted, open, open_h2, open_tls, bytes_in, bytes_out, protocol_errors, limited;
};
void http_server_stats(struct http_server *s, struct http_stats *out);

#endif
