/* announcement.h - what a node tells the mirror of a file that it fetches, and what it is told
 * (docs/protocols/peers.md). JSON, no I/O.
 *
 * What is told is judged: addresses are numbers, ports are some, chunks are of the file. What it
 * says beyond that is passed over.
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
    ANNOUNCED_CHUNKS_MAX = 1 << 20, /* whose bitmap has room in one */
    SWARM_ID_BYTES = 16,
    TAKE_MAX = 64,
    REPORTED_PEERS_MAX = 16,
    ADDRESS_ROOM = 56, /* "[v6]:port" */
};

struct announcement {
    const uint8_t *id;   /* SWARM_ID_BYTES */
    uint16_t port;       /* 0: takes and does not give */
    const uint8_t *have; /* bits.h */
    size_t count;        /* chunks of the file */
    unsigned take;       /* that it would bring from the mirror now, at most TAKE_MAX */
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
