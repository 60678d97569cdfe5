/* guest.h - one connection of another node that takes from us: HTTP/1.1 over TLS with the key of what it asks for (psk.h).
 *
 *   GET /<sha256>/have      200, the bitmap
 *   GET /<sha256>/<chunk>   200, Content-Length and the chunk; 404: it is not here; 503: all places are taken
 *   anything else           400 and the end
 *
 * Its key names the one file that it may ask for. One request at a time; what comes behind it waits. A head is at most
 * GUEST_HEAD_MAX bytes, the handshake and each request must be over in GUEST_HASTE_MS, a kept connection asks again in
 * GUEST_IDLE_MS, and who reads less than GUEST_SPEED_BYTES in GUEST_HASTE_MS is let go.
 *
 * owns     the socket; guest_close() frees
 * threads  the giving thread's
 */
#ifndef AGENT_PEERS_GUEST_H
#define AGENT_PEERS_GUEST_H

#include "agent/peers/gift.h"
#include "common/base/list.h"

struct event_base;
struct ssl_ctx_st;

enum {
    GUEST_HEAD_MAX = 1024,
    GUEST_HASTE_MS = 10000,
    GUEST_IDLE_MS = 30000,
    GUEST_SPEED_BYTES = 64 << 10,
    GUEST_SCRATCH = 128 << 10,
};

struct hall { /* what all guests share */
    struct event_base *base;
    struct ssl_ctx_st *tls;
    struct gifts *gifts;
    struct list guests;
    unsigned nguests;
    unsigned uploads;   /* chunks that may be under way */
    unsigned uploading; /* chunks that are */
    char *scratch;      /* GUEST_SCRATCH */
    uint64_t given_bytes;
};

struct guest;
void guest_open(struct hall *h, int fd, uint64_t now_ms);
void guest_close(struct guest *g);
/* Is it late with what it should do? */
bool guest_is_late(struct guest *g, uint64_t now_ms);
struct guest *guest_of(struct list *node);
/* psk.h's find(), with a hall. */
bool guest_knock(void *hall, struct ssl_st *ssl, struct slice identity, uint8_t key[PSK_KEY_BYTES]);

/* A request's head without its last empty line: what is asked for. False: it is none of ours. */
struct guest_request {
    struct slice digest_hex;
    bool have; /* the bitmap, and no chunk */
    uint64_t chunk;
    bool closes;
};
bool guest_read(struct slice head, struct guest_request *out);

#endif
