/* exchange.h - one request and its answer, seen from the server's pipeline (request/serve.c).
 *
 * http calls handler->on_request() when a request's head is complete. The handler answers once, now
 * or later, with exchange_reply(); what fails after that fails in the body's poll(). When the
 * client goes first, on_gone() is called once and the exchange is dead after it returns; without an
 * on_gone the handler must answer before it returns to the loop. It may come after exchange_reply()
 * too, while the answer is on its way; on_end() follows it.
 *
 * Uploads: exchange_read() starts the flow of the request's body (and sends 100-continue when it is
 * awaited); bytes arrive by on_data, `end` true once with the last (possibly n == 0).
 * exchange_pause() holds the peer by back-pressure. A body that nobody reads is discarded up to a
 * bound, then the connection is closed; an answer before the body's end ends the reading.
 *
 * owns     http owns the exchange and all of struct http_req; after on_end()/on_gone() it is gone
 * threads  the loop of the connection
 */
#ifndef SERVER_HTTP_EXCHANGE_H
#define SERVER_HTTP_EXCHANGE_H

#include "server/http/body.h"
#include "server/http/body_memory.h"
#include "server/http/msg.h"
#include "server/http/pace.h"
#include "server/net/loop.h"

struct exchange;
struct exchange_end;

struct exchange_handler {
    /* Optional, both or none: may this client have another connection? Told again when that one is
     * gone. */
    bool (*on_connect)(void *arg, const struct sockaddr_storage *peer);
    void (*on_disconnect)(void *arg, const struct sockaddr_storage *peer);
    void (*on_request)(void *arg, struct exchange *x);
    /* After the last byte of the answer was handed to the kernel, or the exchange broke: for logs
     * and metrics. */
    void (*on_end)(void *arg, struct exchange *x, const struct exchange_end *end);
    void *arg;
};

struct exchange_end {
    int status;          /* 0: no answer was begun */
    uint64_t body_bytes; /* of the answer, sent */
    uint64_t took_ns;    /* since the request's head was complete */
    uint64_t first_ns;   /* till the answer's first byte */
    bool complete;       /* false: cut short, by either side */
};

struct exchange_events {
    void (*on_data)(void *arg, struct slice bytes, bool end);
    void (*on_gone)(void *arg); /* the client left, or the connection broke: answer no more */
    /* What was kept of the body as BODY_MAY_END is needed by others: free it, and answer 503. NULL:
     * the stream is reset. */
    void (*on_shed)(void *arg);
};

const struct http_req *exchange_req(const struct exchange *x);
struct loop *exchange_loop(const struct exchange *x);
struct arena *exchange_arena(struct exchange *x);
/* The request as if it had come for this target, with this credential ("Bearer ..."; "": its own):
 * a secret that stood in its path is out of it before anybody looks. */
void exchange_unlock(struct exchange *x, struct slice target, struct slice credential);
/* The request came through a proxy that the handler believes: from whom, and how it was asked.
 * host: in the arena. */
void exchange_forwarded(struct exchange *x, const struct sockaddr_storage *peer, bool tls,
                        struct slice host);
/* It came when all connections that there may be were open, and they still are: only what is kept
 * for that is answered. */
bool exchange_is_spare(const struct exchange *x);
/* Whatever the handler wants to keep with it (the access log's facts, for one). */
void exchange_set_user(struct exchange *x, void *user);
void *exchange_user(const struct exchange *x);

void exchange_on(struct exchange *x, const struct exchange_events *ev,
                 void *arg);            /* ev may be NULL: nothing more is told */
void exchange_read(struct exchange *x); /* let on_data flow */
void exchange_pause(struct exchange *x, bool paused);
/* Whose share of what all requests hold it takes: as long as nothing of its body has come. */
void exchange_set_client(struct exchange *x, uint64_t client);
/* The handler has so many bytes of the body now, in memory. BODY_MAY_END: on_shed() frees them.
 * False: no more than before; answer 503, or pause until they are fewer. */
bool exchange_keep(struct exchange *x, size_t bytes, enum body_kind kind);
/* Limits how fast this answer is sent, together with all others of that pace: borrowed until
 * on_end(). Before exchange_reply(). NULL: no limit. */
void exchange_pace(struct exchange *x, struct pace *p);

/* Takes body (NULL: none). HEAD sends its length and no bytes. The window [off, end) is what is
 * sent; status 206 and Content-Range are the caller's business. Copies nothing of r: it must live
 * in the arena or be static. */
void exchange_reply(struct exchange *x, const struct http_reply *r, struct body *body);

#endif
