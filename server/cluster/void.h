/* void.h - declares a damaged entry of a cluster's log void, for an operator (log.h).
 *
 * What the entry had is lost, even if a client was answered that it succeeded. So it is done in two
 * steps: void_look() says what the bucket has, and void_declare() does it if the operator repeats
 * the SHA-256 of the damaged bytes. An entry that some mirror has applied must not be declared
 * void: its next checkpoint heals the others. Only the caller can know of mirrors.
 *
 * threads  any except a loop's; blocks
 * errors   E_NOTFOUND: there is no such entry; E_EXISTS: it is not damaged, a checkpoint covers it,
 *          or it is void already; E_UNSUPPORTED: it is of a later format; E_CORRUPT: the next entry
 *          is damaged, too; E_CHANGED: another digest; those of bucket.h
 */
#ifndef SERVER_CLUSTER_VOID_H
#define SERVER_CLUSTER_VOID_H

#include "server/cluster/bucket.h"

struct void_look {
    uint64_t seq;
    struct digest damaged; /* of the bytes in the bucket */
    uint64_t size_bytes;
    bool followed;        /* there is a next entry, so some mirror has applied this one */
    struct digest before; /* what the next entry has as `before`, or random */
};

MUST_USE int void_look(struct bucket *b, uint64_t seq, struct void_look *out, struct err *e);
/* digest: as the operator repeats it, hex. */
MUST_USE int void_declare(struct bucket *b, const struct void_look *look, struct slice digest,
                          struct err *e);

#endif
