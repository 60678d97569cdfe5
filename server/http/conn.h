/* conn.h - a connection from within: what h1.c, h2.c and exchange.c share. Nobody outside
 * server/http includes it.
 *
 * An event, a timer or a kick drives a connection: its protocol's drive() reads, answers and writes
 * as far as it can without waiting, and says at the end whether it goes on. Handlers' calls
 * (exchange_reply and all) only note what is wanted and kick; so nothing is freed below a handler's
 * feet.
 *
 * owns     the HTTP loop (one a loop) holds all connections of its loop, spare exchanges and the
 *          scratch buffers
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

enum { CONN_MAGIC = 0x636f6e6e, CONN_END = 1 };
/* A connection's turn is short: with 100 readers of one growing file they stay within the same
 * pages, which the processor still has (3.7 s of CPU for 25.6 GB in place of 4.8 with turns of 8
 * MB), and who comes new waits for 50 MB, not 800. */
enum { DRIVE_BYTES = 512 * 1024, COPY_BYTES = 32 * 1024 };
/* A file that is whole needs no such care: fewer turns, and with bbr a sixth less CPU (4 MiB, 16
 * connections; none with cubic). */
enum { WHOLE_BYTES = 2 * 1024 * 1024, SENDFILE_BYTES = WHOLE_BYTES };
/* Above this the two calls of a cork pay. */
enum { CORK_BYTES = 256 * 1024 };

struct conn;

/* What a connection does at the moment.
 *
 *   GREETING --the first bytes, or the handshake--> HTTP1 or HTTP2 --a last answer--> LINGERING
 *
 * From GREETING to LINGERING, too, when the connection ends before the last bytes of its handshake
 * are out. Each of them ends in conn_close().
 */
enum conn_state {
    CONN_HANDSHAKE, /* the TLS handshake, or the bytes that tell HTTP/1 from HTTP/2 */
    CONN_HTTP1,     /* h1.c */
    CONN_HTTP2,     /* h2.c */
    CONN_LINGERING, /* everything is said: what the peer still sends is read and dropped */
    CONN_STATES
};

/* The handler and the body of the request. A body that is not wanted, or no longer, is discarded.
 *
 *   UNREAD --exchange_read()--> READING <--exchange_pause()--> PAUSED
 *     |                          |    |                          |
 *     |                          |    +--the last byte--> READ   |
 *     +--------exchange_reply()--+------------------> DROPPED <--+
 *
 * A handler that wants the rest of the body after its answer says exchange_read() again: from
 * DROPPED to READING.
 */
enum request_state {
    REQUEST_UNREAD,  /* the handler has not asked for it */
    REQUEST_READING, /* it goes to the handler as it comes */
    REQUEST_PAUSED,  /* the handler holds the peer by back-pressure */
    REQUEST_READ,    /* the handler has all of it */
    REQUEST_DROPPED, /* it was answered before its end: nobody reads on */
    REQUEST_STATES
};

/* The answer.
 *
 *   AWAITED --exchange_reply()--> READY --the head is written--> SENDING --the last byte--> SENT
 *                                                                 |    ^
 *                                                                 v    |
 *                                                                 STARVED (HTTP/2)
 */
enum answer_state {
    ANSWER_AWAITED, /* of the handler */
    ANSWER_READY,   /* its head is to be written */
    ANSWER_SENDING, /* its body is being sent */
    ANSWER_STARVED, /* HTTP/2: its body has no bytes for now; a wake will come */
    ANSWER_SENT,
    ANSWER_STATES
};

enum { CLIENTS_GONE = 1024 };

struct client { /* lives while a connection holds it, or among those remembered */
    UT_hash_handle hh;
    struct list gone; /* among those without a connection, in the order they left */
    uint8_t address[ADDRESS_BYTES];
    uint64_t connections, bytes_out;
};

struct clients {        /* who is connected to one HTTP loop, and the last CLIENTS_GONE that were */
    struct client *all; /* uthash */
    struct list gone;
    unsigned ngone;
};

struct http_loop_counters { /* written by the HTTP loop's loop only */
    _Atomic uint64_t accepted, h2, tls, bytes_in, bytes_out, protocol_errors, limited;
};

struct http_loop {
    struct http_server *server; /* NULL: an HTTP loop alone, as the fuzzer drives it */
    const struct http_limits *limits;
    struct exchange_handler handler;
    struct pool *disk;
    struct body_memory *memory; /* NULL: any */
    struct body_port port;      /* of it */
    struct loop *loop;
    struct wire_scratch scratch;
    struct list conns;
    struct clients clients;
    /* connections to drive: clients take turns, the cost is what the last turn moved */
    struct fair_queue ready;
    struct event *run;
    uint64_t turns_cost; /* of all turns */
    struct list paced;   /* exchanges whose rate holds them */
    struct event *pace;
    struct http_field *fields; /* room for a head's, while it is parsed */
    struct list spare;         /* exchanges for reuse: their `spare` */
    unsigned nspare;
    uint64_t next_id;
    uint64_t clock_ns; /* as read a moment ago; 0: a new moment has begun */
    bool draining;
    struct timer drain;  /* its end */
    struct message reap; /* idle connections, at the ceiling */
    _Atomic bool reaping;
    struct http_loop_counters counters;
};

struct conn_ops {
    int (*drive)(struct conn *c);          /* 0: goes on; CONN_END: finished; E_*: broken */
    uint64_t (*due)(const struct conn *c); /* when expire() must be asked, UINT64_MAX: never */
    int (*expire)(struct conn *c);         /* as drive() */
    uint64_t (*idle_ms)(
        const struct conn *c);        /* since when no request is under way, or UINT64_MAX */
    void (*drain)(struct conn *c);    /* finish what is under way, begin nothing new */
    void (*wake)(struct exchange *x); /* its answer can go on */
    void (*close)(struct conn *c);
};

struct conn_input { /* bytes that came and are not consumed */
    char *p;
    size_t n;
    bool borrowed; /* they lie in the scratch, not in `own` */
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
    bool until_close;       /* this answer's only end is the connection's */
    bool keep_alive;        /* what the request asked */
};

struct h2;
struct h2_stream;
struct pages_job;

struct conn {
    uint32_t magic;
    enum conn_state state;
    struct http_loop *http_loop;
    const struct conn_ops *ops; /* the state's */
    struct wire wire;
    struct event ev;
    struct timer timer;
    struct list node;
    struct fair_item ready;
    uint64_t client_id;        /* client_of() its peer */
    uint64_t turn_cost;        /* of its last turn */
    unsigned answered;         /* in this turn */
    struct listener *listener; /* held */
    struct sockaddr_storage peer;
    struct client *client;
    struct conn_input in;
    uint64_t out_ms;          /* when bytes last left */
    uint64_t answered_bytes;  /* of answers' bodies */
    struct reader_rate taken; /* of those, by the peer */
    uint64_t seen_in, seen_out;
    uint64_t since_ms; /* of the state: handshake, idle, lingering */
    bool driving, again;
    bool asked; /* a request has begun */
    bool spare; /* it came at the ceiling of connections, which has not been left since */
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
    bool dispatched;     /* the handler knows of it */
    uint64_t client;     /* whose share it takes; 0: its address's */
    struct body_use use; /* of memory */

    enum request_state request;
    bool arrived; /* all of the request's body has come, and may wait for the handler */
    bool expect_continue;
    /* what the handler has of the body it would free, and answer (on_shed): the rest still comes */
    bool handler_sheds;
    size_t kept;     /* bytes of it that the handler has */
    struct buf held; /* HTTP/2: those that wait for the handler */
    uint64_t received;
    uint64_t window_ms, window_bytes; /* its minimum rate */

    enum answer_state answer;
    bool cut; /* its file could not be read */
    const struct http_reply *reply;
    struct body *body;
    struct pages_job *pages;
    uint64_t present_end; /* bytes before it were just brought into memory */
    uint64_t probed_end;  /* bytes before it were seen in memory a moment ago */
    uint64_t began_ns, first_ns, body_bytes, inflight;
    struct pace *pace; /* NULL: none */
    uint64_t moved_ms; /* when a byte of either body moved */
};

static inline void count(_Atomic uint64_t *counter,
                         uint64_t n) /* one writer: no locked instruction */
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* No request after this one. A connection to a listener that then left is served once; a spare one
 * makes room for the next. */
static inline bool conn_drains(const struct conn *c)
{
    return c->http_loop->draining || (c->asked && (c->spare || listener_retired(c->listener)));
}

/* Reading the clock is a twentieth of a small answer: what happens at one stroke happens at one
 * time. */
static inline void http_loop_tick(struct http_loop *l)
{
    l->clock_ns = 0;
}
uint64_t http_loop_clock_ns(struct http_loop *l);

/* conn.c */
void http_loop_init(struct http_loop *l,
                    struct loop *loop); /* server, limits, handler, disk are set */
void http_loop_fini(struct http_loop *l);
void conn_open(struct http_loop *l, const struct accepted *a);
void conn_close(struct conn *c);
void conn_reap(struct http_loop *l,
               unsigned n);     /* ends idle ones: of clients that have most, those idle longest */
void conn_kick(struct conn *c); /* drive() soon: after what runs now */
int conn_more(struct conn *c);  /* reads: > 0, 0 at the end, E_AGAIN, E_TOOBIG, E_* */
void conn_consume(struct conn *c, size_t n);
void conn_yield(struct conn *c);   /* drive() again after the others had their turn */
void conn_restart(struct conn *c); /* its state's time counts from now */
extern const struct state_table conn_states, request_states, answer_states;
/* The state's operations from now on; it is driven again at once. */
void conn_become(struct conn *c, enum conn_state to, const struct conn_ops *ops);
/* After a last answer: reads on a little, so that a reset does not destroy what the peer has not
 * read yet. */
void conn_linger(struct conn *c);
void server_conn_gone(struct http_server *s); /* server.c: counts down */
bool server_is_full(struct http_server *s);   /* more connections than the ceiling */

extern const struct conn_ops h1_ops;
void h1_start(struct conn *c);
bool h1_end_would_lie(const struct conn *c);
int h2_start(struct conn *c);
/* The stream is reset in the next turn: the memory of its body is needed. */
void h2_shed(struct exchange *x);

/* exchange.c */
struct exchange *exchange_new(struct conn *c);
void exchange_answer_becomes(struct exchange *x, enum answer_state to);
void exchange_begin(struct exchange *x); /* the head is complete: asks the handler */
void exchange_refuse(struct exchange *x,
                     int status); /* ... or answers itself, the handler hears nothing */
void exchange_finish(struct exchange *x, bool complete);
void exchange_deliver(struct exchange *x, struct slice bytes, bool end);
bool exchange_sends_body(const struct exchange *x);
bool exchange_too_slow(struct exchange *x, uint64_t now_ms);
uint64_t exchange_slow_due(const struct exchange *x); /* when to ask that; UINT64_MAX: never */
/* What of the answer's body may go now, at most max: > 0; 0 at its end; E_AGAIN: a wake will come;
 * E_*: failed. */
ssize_t exchange_ready(struct exchange *x, size_t max);
ssize_t exchange_pull(struct exchange *x, char *to,
                      size_t n); /* the bytes themselves; may be fewer */
/* Likewise into several pieces, of a body that body_is_file(). */
ssize_t exchange_pull_pieces(struct exchange *x, const struct iovec *to, int count);
ssize_t exchange_present(struct exchange *x,
                         size_t n); /* how many can leave by sendfile without waiting */
void exchange_sent(struct exchange *x, size_t n);
/* May these bytes of its body be held until the handler reads? */
bool exchange_holds(struct exchange *x, size_t n);
void exchange_end_use(struct body_use *u); /* its memory is needed */

#endif
