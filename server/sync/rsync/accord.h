/* accord.h - what both ends of a visit agree on before their frames begin: version, module, abilities, checksum, seed.
 *
 * A client's end. Bytes go in by accord_feed(); it takes none of what follows the seed. Each end says its names without
 * waiting for the other's, so ours leave as soon as the peer has said that it takes some.
 *
 * owns     its buffers; accord_fini()
 * threads  one at a time
 * errors   those of greeting.h; E_PROTOCOL, E_UNSUPPORTED: no checksum in common
 * source   research/sync 1.1 (1-4)
 */
#ifndef SERVER_SYNC_RSYNC_ACCORD_H
#define SERVER_SYNC_RSYNC_ACCORD_H

#include "server/sync/rsync/checksum.h"
#include "server/sync/rsync/greeting.h"

enum compat {
    COMPAT_INC_RECURSE = 1,
    COMPAT_SAFE_LIST = 8,
    COMPAT_SEED_FIRST = 0x20,
    COMPAT_VARINT = 0x80,
};

struct accord_terms {    /* what we come with */
    struct slice module; /* borrowed for good, as the two below */
    struct slice user;
    struct slice password;
    struct slice path; /* below the module; copied */
    bool hard_links;
    unsigned offer; /* 31; 30 for tests */
    bool plain;     /* do not offer varint flags */
};

struct accord {
    struct greeting greeting;
    struct accord_terms terms;
    struct buf path;
    struct buf carry; /* of the peer's abilities, not whole yet */
    bool greeted;     /* the module is open, abilities follow */
    bool done;
    /* as agreed */
    uint32_t compat;
    enum checksum_kind kind;
    int32_t seed;
};

void accord_init(struct accord *a, const struct accord_terms *t);
void accord_fini(struct accord *a);
/* Adds to `out` what is to be sent. 0: see done; `greeted` turns true in one call, and motd stands in greeting then. */
MUST_USE int accord_feed(struct accord *a, struct slice *in, struct buf *out, struct err *e);

#endif
