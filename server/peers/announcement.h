/* announcement.h - the JSON of /-/peers/<sha256>: a node's announcement about one blob, and the
 * answer (docs/protocols/peers.md).
 *
 * owns     announcement_read() sets `have` to malloc()ed bytes; announcement_free() releases them,
 *          also after an error
 * threads  any
 * errors   E_INVALID, with a sentence for the author of the body
 */
#ifndef SERVER_PEERS_ANNOUNCEMENT_H
#define SERVER_PEERS_ANNOUNCEMENT_H

#include "common/base/buf.h"

enum {
    ANNOUNCEMENT_BYTES = 256 << 10, /* a body: a bitmap of 1.5 million chunks, 12 TB */
    ANNOUNCEMENT_TAKE_MAX = 64,
    ANNOUNCEMENT_ID = 16,
};

struct node_announcement {
    uint8_t id[ANNOUNCEMENT_ID];
    bool leave;    /* all fields below are void then */
    uint16_t port; /* 0: it takes chunks and gives none */
    unsigned take; /* how many more chunks it would fetch from the mirror now */
    uint8_t *have; /* bit 7 of byte 0 is chunk 0 */
    size_t have_bytes;
};

MUST_USE int announcement_read(struct slice body, struct node_announcement *out, struct err *e);
void announcement_free(struct node_announcement *a);

enum { SWARM_KEY = 32, SWARM_PEERS = 16, SWARM_ADDRESS = 16 };

struct swarm_peer {
    uint8_t address[SWARM_ADDRESS]; /* IPv4 as ::ffff:a.b.c.d */
    uint16_t port;
};

struct swarm_answer {
    uint8_t key[SWARM_KEY];
    uint32_t take[ANNOUNCEMENT_TAKE_MAX]; /* all chunks assigned to it, not only the new ones */
    size_t takes;
    struct swarm_peer peer[SWARM_PEERS];
    size_t peers;
    size_t members;
    uint32_t again_s;
};

void swarm_answer_write(const struct swarm_answer *a, struct buf *out);

#endif
