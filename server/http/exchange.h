/* exchange.h - one request and its answer, as the server's pipeline sees them (request/serve.c).
 *
 * http calls handler->on_request() when a request's head is complete. The handler answers once, now
 * or later, with exchange_reply(); a later failure is reported by the body's poll(). If the client
 * disconnects first, on_gone() is called once, and the exchange is invalid after it returns.
 * Without an on_gone() the handler must answer before it returns to the loop. on_gone() may also
 * come after exchange_reply(), while the answer is being sent; on_end() follows it.
 *
 * Uploads: exchange_read() starts the flow of the request's body (and sends 100-continue if the
 * client waits for it). Bytes arrive by on_data(), with `end` true once, with the last bytes
 * (possibly n == 0). exchange_pause() stops the peer by back-pressure. A body that is not read is
 * discarded up to a bound, then the connection is closed. An answer before the body's end ends the
 * reading.
 *
 * owns     http owns the exchange and all of struct http_req; both are gone after on_end() or
 *          on_gone()
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
    /* Optional, both or none: may this client have another connection? on_disconnect() reports the
     * end of an accepted one. */
    bool (*on_connect)(void *arg, const struct sockaddr_storage *peer);
    void (*on_disconnect)(void *arg, const struct sockaddr_storage *peer);
    void (*on_request)(void *arg, struct exchange *x);
    /* Called after the last byte of the answer was handed to the kernel, or the exchange was cut
     * off: for logs and metrics. */
    void (*on_end)(void *arg, struct exchange *x, const struct exchange_end *end);
    void *arg;
};

struct exchange_end {
    int status;          /* 0: no answer was begun */
    uint64_t body_bytes; /* of the answer, sent */
    uint64_t took_ns;    /* since the request's head was complete */
    uint64_t first_ns;   /* until the answer's first byte */
    bool complete;       /* false: cut short by either side */
};

struct exchange_events {
    void (*on_data)(void *arg, struct slice bytes, bool end);
    /* the client disconnected, or the connection broke: do not answer any more */
    void (*on_gone)(void *arg);
    /* The memory kept for the body as BODY_MAY_END is needed by others: free it and answer 503.
     * NULL: the stream is reset. */
    void (*on_shed)(void *arg);
};

const struct http_req *exchange_req(const struct exchange *x);
struct loop *exchange_loop(const struct exchange *x);
struct arena *exchange_arena(struct exchange *x);
/* Replaces the request's target and credential ("Bearer ..."; "": keep its own), so that a secret
 * in its path is removed before other code looks at it. */
void exchange_unlock(struct exchange *x, struct slice target, struct slice credential);
/* The request came through a trusted proxy: sets the original peer, scheme and host. host: in the
 * arena. */
void exchange_forwarded(struct exchange *x, const struct sockaddr_storage *peer, bool tls,
                        struct slice host);
/* True: the connection was accepted when the maximum was open, and it still is: only reserved
 * requests, such as health checks, are answered. */
bool exchange_is_spare(const struct exchange *x);
/* A pointer that the handler keeps with the exchange, for example for the access log. */
void exchange_set_user(struct exchange *x, void *user);
void *exchange_user(const struct exchange *x);

void exchange_on(struct exchange *x, const struct exchange_events *ev,
                 void *arg);            /* ev may be NULL: no more events are delivered */
void exchange_read(struct exchange *x); /* starts on_data() */
void exchange_pause(struct exchange *x, bool paused);
/* The client whose share of all requests' memory it uses. To be set before any of its body has
 * arrived. */
void exchange_set_client(struct exchange *x, uint64_t client);
/* Sets how many bytes of the body the handler has in memory. BODY_MAY_END: on_shed() frees them.
 * False: no more than before; answer 503, or pause until there are fewer. */
bool exchange_keep(struct exchange *x, size_t bytes, enum body_kind kind);
/* Limits the rate of this answer, together with all others of that pace. p is borrowed until
 * on_end(). To be called before exchange_reply(). NULL: no limit. */
void exchange_pace(struct exchange *x, struct pace *p);

/* Takes body (NULL: none). The answer to a HEAD has its length and no bytes. The window [off, end)
 * is sent; status 206 and Content-Range are set by the caller. r is not copied: it must live in the
 * arena or be static. */
void exchange_reply(struct exchange *x, const struct http_reply *r, struct body *body);

#endif
