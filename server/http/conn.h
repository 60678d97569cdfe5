/* conn.h - the inside of a connection, shared by conn.c, h1.c, h2.c and exchange.c; no file outside
 * server/http includes it.
 *
 * An event, a timer or a kick drives a connection: its protocol's drive() reads, answers and writes
 * as far as it can without waiting, and returns whether the connection continues. Calls of handlers
 * (exchange_reply() and the others) only note what is to be done and kick the connection, so
 * nothing is freed during a handler's call.
 *
 * owns     the HTTP loop (one for each loop) holds all connections of its loop, spare exchanges and
 *          the scratch buffers
 * threads  one loop
 */
#ifndef SERVER_HTTP_CONN_H
#define SERVER_HTTP_CONN_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <uthash.h>

#include "common/base/fair_queue.h"
#include "common/base/state.h"
#include "server/http/body_memory.h"
#include "server/http/h1_parse.h"
#include "server/http/server.h"
#include "server/net/acceptor.h"
#include "server/net/wire.h"

/* A client begins HTTP/2 with it (RFC 9113 3.4). */
#define H2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

enum { CONN_MAGIC = 0x636f6e6e, CONN_END = 1 };
/* A connection's turn is short. With 100 readers of one growing file they stay within the same
 * pages, which are still in the processor's cache (3.7 s of CPU for 25.6 GB instead of 4.8 s with
 * turns of 8 MB), and a new connection waits for 50 MB instead of 800. */
enum { DRIVE_BYTES = 512 * 1024, COPY_BYTES = 32 * 1024 };
/* A complete file needs no such care: fewer turns, and with bbr a sixth less CPU (4 MiB, 16
 * connections; none with cubic). */
enum { WHOLE_BYTES = 2 * 1024 * 1024, SENDFILE_BYTES = WHOLE_BYTES };
/* Above this size the two calls of a cork pay off. */
enum { CORK_BYTES = 256 * 1024 };

struct conn;

/* What a connection does at the moment.
 *
 *   HANDSHAKE --the first bytes, or the handshake--> HTTP1 or HTTP2 --a last answer--> LINGERING
 *
 * It also goes from HANDSHAKE to LINGERING, when the connection ends before the last bytes of its
 * handshake are sent. Each state ends in conn_close().
 */
enum conn_state {
    CONN_HANDSHAKE, /* the TLS handshake, or the bytes that distinguish HTTP/1 from HTTP/2 */
    CONN_HTTP1,     /* h1.c */
    CONN_HTTP2,     /* h2.c */
    CONN_LINGERING, /* the last answer is sent: what the peer still sends is read and dropped */
    CONN_STATES
};

/* How far the request's body is. A body that the handler does not need, or not any more, is
 * discarded.
 *
 *   UNREAD --exchange_read()--> READING <--exchange_pause()--> PAUSED
 *     |                          |    |                          |
 *     |                          |    +--the last byte--> READ   |
 *     +--------exchange_reply()--+------------------> DROPPED <--+
 *
 * A handler that needs the rest of the body after its answer calls exchange_read() again, which
 * goes from DROPPED to READING.
 */
enum request_state {
    REQUEST_UNREAD,  /* the handler has not asked for it */
    REQUEST_READING, /* it is passed to the handler as it arrives */
    REQUEST_PAUSED,  /* the handler stops the peer by back-pressure */
    REQUEST_READ,    /* the handler has all of it */
    REQUEST_DROPPED, /* it was answered before its end: the rest is not read */
    REQUEST_STATES
};

/* How far the answer is.
 *
 *   AWAITED --exchange_reply()--> READY --the head is written--> SENDING --the last byte--> SENT
 *                                                                 |    ^
 *                                                                 v    |
 *                                                                 STARVED (HTTP/2)
 */
enum answer_state {
    ANSWER_AWAITED, /* the handler has not replied yet */
    ANSWER_READY,   /* its head is to be written */
    ANSWER_SENDING, /* its body is being sent */
    ANSWER_STARVED, /* HTTP/2: its body has no bytes for now; wake() will come */
    ANSWER_SENT,
    ANSWER_STATES
};

enum { CLIENTS_GONE = 1024 };

struct client { /* exists while a connection holds it, or among those remembered */
    UT_hash_handle hh;
    struct list gone; /* among those without a connection, in the order in which they left */
    uint8_t address[ADDRESS_BYTES];
    uint64_t connections, bytes_out;
};

struct clients {        /* the clients of one HTTP loop, and the last CLIENTS_GONE that were */
    struct client *all; /* uthash */
    struct list gone;
    unsigned ngone;
};

struct http_loop_counters { /* only written by this HTTP loop's thread */
    _Atomic uint64_t accepted, h2, tls, bytes_in, bytes_out, protocol_errors, limited;
};

struct http_loop {
    struct http_server *server; /* NULL: an HTTP loop without a server, as the fuzzer uses it */
    const struct http_limits *limits;
    struct exchange_handler handler;
    struct pool *disk;
    struct body_memory *memory; /* NULL: unlimited */
    struct body_port port;      /* for the memory */
    struct loop *loop;
    struct wire_scratch scratch;
    struct list conns;
    struct clients clients;
    /* Connections to drive: clients take turns, and the cost of a turn is the bytes that it
     * moved. */
    struct fair_queue ready;
    struct event *run;
    uint64_t turns_cost; /* of all turns */
    struct list paced;   /* exchanges that wait for their rate */
    struct event *pace;
    struct http_field *fields; /* room for the fields of a head while it is parsed */
    struct list spare;         /* exchanges for reuse, linked by `spare` */
    unsigned nspare;
    uint64_t next_id;
    uint64_t clock_ns; /* as read a moment ago; 0: read it again */
    bool draining;
    struct timer drain;  /* its deadline */
    struct message reap; /* ends idle connections, at the ceiling */
    _Atomic bool reaping;
    struct http_loop_counters counters;
};

struct conn_ops {
    int (*drive)(struct conn *c);          /* 0: continue; CONN_END: finished; E_*: broken */
    uint64_t (*due)(const struct conn *c); /* when expire() must be called, UINT64_MAX: never */
    int (*expire)(struct conn *c);         /* as drive() */
    uint64_t (*idle_ms)(
        const struct conn *c);        /* since when no request has been under way, or UINT64_MAX */
    void (*drain)(struct conn *c);    /* finish what is under way, accept no new requests */
    void (*wake)(struct exchange *x); /* its answer can continue */
    void (*close)(struct conn *c);
};

struct conn_input { /* received bytes that are not consumed */
    char *p;
    size_t n;
    bool borrowed; /* they are in the scratch, not in `own` */
    struct buf own;
};

struct h1 {
    struct exchange *x; /* the request under way */
    struct h1_chunks chunks;
    enum h1_framing framing;
    uint64_t body_left; /* H1_LENGTH: still to come */
    uint64_t discarded;
    size_t scanned;
    uint64_t head_begun_ms; /* 0: no byte of a head yet */
    bool close;             /* after this answer */
    bool chunked;           /* this answer is */
    bool until_close;       /* this answer only ends with the connection */
    bool keep_alive;        /* the request asked for it */
};

struct h2;
struct h2_stream;
struct pages_job;

struct conn {
    uint32_t magic;
    enum conn_state state;
    struct http_loop *http_loop;
    const struct conn_ops *ops; /* the current state's */
    struct wire wire;
    struct event ev;
    struct timer timer;
    struct list node;
    struct fair_item ready;
    uint64_t client_id;        /* the client_of() of its peer */
    uint64_t turn_cost;        /* of its last turn */
    unsigned answered;         /* in this turn */
    struct listener *listener; /* held */
    struct sockaddr_storage peer;
    struct client *client;
    struct conn_input in;
    uint64_t out_ms;          /* when bytes were last sent */
    uint64_t answered_bytes;  /* of answers' bodies */
    struct reader_rate taken; /* the rate at which the peer takes them */
    uint64_t seen_in, seen_out;
    uint64_t since_ms; /* since when: handshake, idle, lingering */
    bool driving, again;
    bool asked; /* a request has begun */
    bool spare; /* it was accepted at the ceiling of connections, which still holds */
    struct h1 h1;
    struct h2 *h2;
};

struct exchange {
    struct http_req req;
    struct conn *conn;
    struct h2_stream *stream; /* in the arena; NULL over HTTP/1 */
    struct arena arena;
    struct list spare; /* in the HTTP loop */
    struct list paced; /* in the HTTP loop */
    const struct exchange_events *ev;
    void *ev_arg;
    void *user;
    bool dispatched;     /* the handler has it */
    uint64_t client;     /* whose share it uses; 0: its address's */
    struct body_use use; /* of memory */

    enum request_state request;
    bool arrived; /* all of the request's body has arrived, and may wait for the handler */
    bool expect_continue;
    /* The handler would free what it has of the body, and answer (on_shed()): the rest is still
     * received. */
    bool handler_sheds;
    size_t kept;     /* bytes of the body that the handler has */
    struct buf held; /* HTTP/2: bytes that wait for the handler */
    uint64_t received;
    uint64_t window_ms, window_bytes; /* its minimum rate */

    enum answer_state answer;
    bool cut; /* its file could not be read */
    const struct http_reply *reply;
    struct body *body;
    struct pages_job *pages;
    uint64_t present_end; /* bytes before it were just read into memory */
    uint64_t probed_end;  /* bytes before it were found in memory a moment ago */
    uint64_t began_ns, first_ns, body_bytes, inflight;
    struct pace *pace; /* NULL: none */
    uint64_t moved_ms; /* when a byte of either body moved */
};

static inline void count(_Atomic uint64_t *counter,
                         uint64_t n) /* one writer, so no locked instruction is needed */
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* True: this is the last request of the connection. A connection to a listener that was removed is
 * served once; a spare one makes room for the next. */
static inline bool conn_drains(const struct conn *c)
{
    return c->http_loop->draining || (c->asked && (c->spare || listener_retired(c->listener)));
}

/* Reading the clock is a twentieth of the cost of a small answer, so one reading serves all that
 * happens at the same moment. */
static inline void http_loop_tick(struct http_loop *l)
{
    l->clock_ns = 0;
}
uint64_t http_loop_clock_ns(struct http_loop *l);

/* conn.c */
void http_loop_init(struct http_loop *l,
                    struct loop *loop); /* server, limits, handler, disk must be set */
void http_loop_fini(struct http_loop *l);
void conn_open(struct http_loop *l, const struct accepted *a);
void conn_close(struct conn *c);
void conn_reap(struct http_loop *l,
               /* ends idle ones: of the clients with the most, those idle longest */
               unsigned n);
void conn_kick(struct conn *c); /* drive() soon, after the present call */
int conn_more(struct conn *c);  /* reads: > 0, 0 at the end, E_AGAIN, E_TOOBIG, E_* */
void conn_consume(struct conn *c, size_t n);
void conn_yield(struct conn *c);   /* drive() again after the others have had their turn */
void conn_restart(struct conn *c); /* the time in its state counts from now */
extern const struct state_table conn_states, request_states, answer_states;
/* Changes the state and its operations; the connection is driven again immediately. */
void conn_become(struct conn *c, enum conn_state to, const struct conn_ops *ops);
/* After a last answer: reads on for a while, so that a reset does not destroy what the peer has not
 * read yet. */
void conn_linger(struct conn *c);
void server_conn_gone(struct http_server *s); /* server.c: counts down */
bool server_is_full(struct http_server *s);   /* more connections than the ceiling */

extern const struct conn_ops h1_ops;
void h1_start(struct conn *c);
bool h1_end_would_lie(const struct conn *c);
int h2_start(struct conn *c);
/* The stream is reset in the next turn, because the memory of its body is needed. */
void h2_shed(struct exchange *x);

/* exchange.c */
struct exchange *exchange_new(struct conn *c);
void exchange_answer_becomes(struct exchange *x, enum answer_state to);
void exchange_begin(struct exchange *x);              /* the head is complete: calls the handler */
void exchange_refuse(struct exchange *x, int status); /* answers without the handler */
void exchange_finish(struct exchange *x, bool complete);
void exchange_deliver(struct exchange *x, struct slice bytes, bool end);
bool exchange_sends_body(const struct exchange *x);
bool exchange_too_slow(struct exchange *x, uint64_t now_ms);
uint64_t exchange_slow_due(const struct exchange *x); /* when to call that; UINT64_MAX: never */
/* How much of the answer's body may be sent now, at most max: > 0; 0 at its end; E_AGAIN: wake()
 * will come; E_*: failed. */
ssize_t exchange_ready(struct exchange *x, size_t max);
ssize_t exchange_pull(struct exchange *x, char *to,
                      size_t n); /* the bytes themselves; may be fewer */
/* The same into several pieces, for a body that body_is_file(). */
ssize_t exchange_pull_pieces(struct exchange *x, const struct iovec *to, int count);
ssize_t exchange_present(struct exchange *x,
                         size_t n); /* how many bytes sendfile can send without waiting */
void exchange_sent(struct exchange *x, size_t n);
/* May these bytes of its body be held until the handler reads? */
bool exchange_holds(struct exchange *x, size_t n);
void exchange_end_use(struct body_use *u); /* its memory is needed */

#endif
