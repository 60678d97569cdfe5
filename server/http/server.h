/* server.h - the HTTP server: listeners in, exchanges out.
 *
 * One acceptor thread hands each connection to the least busy loop. There it is determined whether
 * it is TLS or not, HTTP/1 or HTTP/2 (by ALPN, or by the h2c preface). The handler's callbacks run
 * on the connection's loop.
 *
 * owns     http_server_close() frees it; close it before the loops and the pool
 * threads  any for statistics; all else one at a time, not from a loop's thread
 * errors   http_server_bind(): the error names address and reason
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

/* Limits against abuse (docs/security.md); all defaults are in settings.def. */
struct http_limits {
    uint32_t header_bytes;         /* 32 KiB, request line included */
    uint32_t header_fields;        /* 100 */
    uint32_t uri_bytes;            /* 8 KiB */
    uint32_t header_ms;            /* 10 s from the first byte to the end of the head */
    uint32_t handshake_ms;         /* 10 s */
    uint32_t idle_ms;              /* 75 s between requests */
    uint32_t stall_ms;             /* 60 s without progress of a body, in either direction */
    uint32_t min_rate_bytes_per_s; /* 16 KiB/s of an upload over 10 s windows; 0: off */
    struct reader_rate_limit
        reader;            /* 1 KiB/s of an answer over 60 s in which it waits for its reader */
    uint32_t streams;      /* 128 concurrent per h2 connection */
    uint32_t reset_burst;  /* 200 RST_STREAM, then GOAWAY ENHANCE_YOUR_CALM */
    uint32_t resets_per_s; /* 20 */
    /* 16384 in total, then idle ones are closed; 16 more for health checks */
    uint32_t connections;
    /* Of one address, unless a limit sets another number; 0: a quarter of all. */
    uint32_t client_connections;
    uint64_t discard_bytes; /* 1 MiB of a request body that is not read */
    /* 256 MiB that bodies of requests hold in memory, in total; 0: no limit */
    uint64_t body_bytes;
};

struct http_server;

/* `disk` reads file pages that are not in memory; NULL: the loop reads them itself (tests).
 * `memory` outlives the server; NULL: the memory of requests is not counted. */
struct http_server *http_server_open(struct loops *ls, struct pool *disk,
                                     struct body_memory *memory, const struct http_limits *limits,
                                     struct exchange_handler handler);
struct http_listeners {
    struct listener **at; /* each held */
    size_t count;
};
/* Binds new addresses; listeners that stay keep their socket and have their certificate read again.
 * Until http_server_listen() nothing in force changes. The error names address and reason. */
MUST_USE int http_server_bind(struct http_server *s, const struct listener_settings *set,
                              size_t count, struct http_listeners *out, struct err *e);
/* Checks whether http_server_bind() would find every new address free; changes nothing. */
MUST_USE int http_server_try(struct http_server *s, const struct listener_settings *set,
                             size_t count, struct err *e);
/* Puts these listeners, and no others, into force; takes them. Connections of a listener that is
 * removed, or whose settings have changed, are drained. Accepts after http_server_start(). */
void http_server_listen(struct http_server *s, struct http_listeners *ls);
/* Releases listeners that do not come into force, and forgets the certificates that were read again
 * for them. */
void http_listeners_drop(struct http_listeners *ls);
/* In their order; NULL after the last. */
const struct listener *http_server_listener(const struct http_server *s, size_t index);
void http_server_start(struct http_server *s);
/* Stops accepting; sends GOAWAY and "Connection: close". Connections end when idle, or after
 * drain_ms in any case. Calls drained(arg) on some loop when none is left. */
void http_server_drain(struct http_server *s, uint32_t drain_ms, void (*drained)(void *arg),
                       void *arg);
/* Ends every connection immediately and waits for the loops to release them; not from a loop's
 * thread. */
void http_server_close(struct http_server **sp);

struct http_stats { /* sums over the loops, read without a lock: gauges and counters for /metrics */
    struct body_memory_stats bodies;
    uint64_t accepted, open, open_h2, open_tls, bytes_in, bytes_out, protocol_errors, limited;
};
struct http_client { /* an address that is or recently was connected, over all loops */
    uint8_t address[ADDRESS_BYTES];
    uint64_t connections, bytes_out;
};
/* Those with the most bytes first; the caller frees *out. Waits for every loop, so do not call it
 * from one. */
size_t http_server_clients(struct http_server *s, struct http_client **out);
void http_server_stats(struct http_server *s, struct http_stats *out);
struct http_certificate { /* of a listener with TLS */
    char listen[SOCK_TEXT_BYTES];
    struct tls_validity valid;
    bool public; /* clients trust it without further steps (tls.h) */
};
/* In the listeners' order, at most `room`; returns their number. Any thread. */
size_t http_server_certificates(struct http_server *s, struct http_certificate *out, size_t room);

#endif
