/* server.h - the HTTP server: listeners in, exchanges out.
 *
 * One acceptor thread hands each connection to the least busy loop; TLS or not, h1 or h2 (by ALPN,
 * or by the h2c preface) is found out there. The handler's callbacks run on the connection's loop.
 *
 * owns     http_server_close() frees it; close it before the loops and the pool
 * threads  any for stats; the rest one at a time, not from a loop's thread
 */
#ifndef SERVER_HTTP_SERVER_H
#define SERVER_HTTP_SERVER_H

#include "common/base/err.h"
#include "common/os/pool.h"
#include "server/http/body_memory.h"
#include "server/http/exchange.h"
#include "server/http/reader_rate.h"
#include "server/net/listener.h"
#include "server/net/loop.h"
#include "server/net/sock.h"

/* Ceilings against abuse (docs/security.md); all have defaults in settings.def. */
struct http_limits {
    uint32_t header_bytes;         /* 32 KiB, request line included */
    uint32_t header_fields;        /* 100 */
    uint32_t uri_bytes;            /* 8 KiB */
    uint32_t header_ms;            /* 10 s from the first byte to the end of the head */
    uint32_t handshake_ms;         /* 10 s */
    uint32_t idle_ms;              /* 75 s between requests */
    uint32_t stall_ms;             /* 60 s without progress of a body, either way */
    uint32_t min_rate_bytes_per_s; /* 16 KiB/s of an upload over 10 s windows; 0: off */
    struct reader_rate_limit
        reader;            /* 1 KiB/s of an answer over 60 s in which it waits for its reader */
    uint32_t streams;      /* 128 concurrent per h2 connection */
    uint32_t reset_burst;  /* 200 RST_STREAM, then GOAWAY ENHANCE_YOUR_CALM */
    uint32_t resets_per_s; /* 20 */
    uint32_t connections;  /* 16384 in all, then idle ones are ended; 16 more for health checks */
    /* of one address, where no limit says another number; 0: a quarter of all */
    uint32_t client_connections;
    uint64_t discard_bytes; /* 1 MiB of an unread request body */
    uint64_t body_bytes;    /* 256 MiB that bodies of requests hold in memory, in all; 0: any */
};

struct http_server;

/* `disk` reads file pages that are not in memory; NULL: the loop reads them itself (tests).
 * `memory` outlives the server; NULL: what requests hold is not counted. */
struct http_server *http_server_open(struct loops *ls, struct pool *disk,
                                     struct body_memory *memory, const struct http_limits *limits,
                                     struct exchange_handler handler);
struct http_listeners {
    struct listener **at; /* each held */
    size_t count;
};
/* Binds what is new; what stays keeps its socket and has its certificate read again. Until
 * http_server_listen() all that is in force stays as it is. The error names address and reason. */
MUST_USE int http_server_bind(struct http_server *s, const struct listener_settings *set,
                              size_t count, struct http_listeners *out, struct err *e);
/* Whether http_server_bind() would find every new address free; changes nothing. */
MUST_USE int http_server_try(struct http_server *s, const struct listener_settings *set,
                             size_t count, struct err *e);
/* These and no others from now on; takes them. Connections of what leaves, or has other settings
 * now, are drained. Accepts after http_server_start(). */
void http_server_listen(struct http_server *s, struct http_listeners *ls);
void http_listeners_drop(struct http_listeners *ls); /* those that are not to be */
/* In their order; NULL behind the last. */
const struct listener *http_server_listener(const struct http_server *s, size_t index);
void http_server_start(struct http_server *s);
/* Stops accepting; GOAWAY and "Connection: close"; connections end when idle, or after drain_ms in
 * any case. Calls drained(arg) on some loop when none is left. */
void http_server_drain(struct http_server *s, uint32_t drain_ms, void (*drained)(void *arg),
                       void *arg);
/* Ends every connection at once and waits for the loops to let go; not from a loop's thread. */
void http_server_close(struct http_server **sp);

struct http_stats { /* sums over the loops, read racily: gauges and counters for /metrics */
    struct body_memory_stats bodies;
    uint64_t accepted, open, open_h2, open_tls, bytes_in, bytes_out, protocol_errors, limited;
};
struct http_client { /* an address that is connected, or was a moment ago: over all loops */
    uint8_t address[ADDRESS_BYTES];
    uint64_t connections, bytes_out;
};
/* The most served first; *out is the caller's to free. Waits for every loop: not from one. */
size_t http_server_clients(struct http_server *s, struct http_client **out);
void http_server_stats(struct http_server *s, struct http_stats *out);
struct http_certificate { /* of a listener with TLS */
    char listen[SOCK_TEXT_BYTES];
    struct tls_validity valid;
    bool public; /* clients trust it by themselves (tls.h) */
};
/* In the listeners' order, at most `room`; returns how many. Any thread. */
size_t http_server_certificates(struct http_server *s, struct http_certificate *out, size_t room);

#endif
