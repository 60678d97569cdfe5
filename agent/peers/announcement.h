/* announcement.h - a node's announcement to the mirror about a file that it fetches, and the
 * mirror's answer (docs/protocols/peers.md). JSON, no I/O.
 *
 * The answer is checked: addresses are numeric, ports are valid, chunks are of the file. Other
 * members are ignored.
 *
 * threads  any
 * errors   E_PROTOCOL
 */
#ifndef AGENT_PEERS_ANNOUNCEMENT_H
#define AGENT_PEERS_ANNOUNCEMENT_H

#include "common/base/buf.h"
#include "common/xfer/psk.h"

enum {
    ANNOUNCEMENT_MAX = 256 << 10,
    ANNOUNCED_CHUNKS_MAX = 1 << 20, /* chunks of a bitmap that fits in one */
    SWARM_ID_BYTES = 16,
    TAKE_MAX = 64,
    REPORTED_PEERS_MAX = 16,
    ADDRESS_ROOM = 56, /* "[v6]:port" */
};

struct announcement {
    const uint8_t *id;   /* SWARM_ID_BYTES */
    uint16_t port;       /* 0: it takes chunks and gives none */
    const uint8_t *have; /* bits.h */
    size_t count;        /* chunks of the file */
    unsigned take;       /* how many it would fetch from the mirror now, at most TAKE_MAX */
};

struct reported {
    uint8_t key[PSK_KEY_BYTES];
    size_t take[TAKE_MAX];
    size_t ntake;
    char peer[REPORTED_PEERS_MAX][ADDRESS_ROOM];
    size_t npeers;
    uint64_t members;
    uint64_t again_ms;
};

void announcement_write(const struct announcement *a, struct buf *out);
void announcement_leave(const uint8_t id[SWARM_ID_BYTES], struct buf *out);
MUST_USE int reported_read(struct slice doc, size_t count, struct reported *out, struct err *e);

#endif
