/* claim.h - lets one mirror of a cluster do what only one may do at a time: a run of a sync.
 *
 * A claim is a row of TABLE_CLAIM:
 *
 *   what -> node (16), number (8)
 *
 * The claimant chooses a number that no earlier claim of the same thing has had, such as that of
 * the run. Its batches require the row as it has written it. So when another mirror has taken the
 * claim over, or a person has revoked it, nothing that the former holder still tries is committed,
 * however long it was paused. Whether a holder has gone (member.h) only decides when another mirror
 * may try; it need not be right.
 *
 * owns     borrows the store and the members
 * threads  any; what reads rows blocks
 * errors   E_BUSY: another mirror has the claim; E_CORRUPT
 */
#ifndef SERVER_CLUSTER_CLAIM_H
#define SERVER_CLUSTER_CLAIM_H

#include "server/cluster/member.h"
#include "server/store/store.h"

enum { CLAIM_NODE_BYTES = 16, CLAIM_BYTES = CLAIM_NODE_BYTES + 8 };

struct claims;

/* node: of this mirror, in hex. name: how this mirror is shown to people. */
struct claims *claims_open(struct store *s, struct members *m, const char *node, const char *name);
void claims_close(struct claims **cp);           /* NULL is fine */
const char *claims_self(const struct claims *c); /* the name */

struct held_claim {
    bool held; /* false: never taken */
    uint8_t row[CLAIM_BYTES];
};

enum claim_state {
    CLAIM_FREE,
    CLAIM_OURS,      /* of this mirror, perhaps before its last start */
    CLAIM_THEIRS,    /* of another mirror */
    CLAIM_ABANDONED, /* of another mirror, which has gone */
};
struct claim_look {
    enum claim_state state;
    uint64_t number; /* of all but CLAIM_FREE */
    struct held_claim row;
};
MUST_USE int claim_look(struct claims *c, struct slice what, struct claim_look *out, struct err *e);

/* Adds to the batch what takes the claim. *out is ours if the batch is committed; E_CHANGED then
 * says that another mirror was first. E_BUSY: another mirror has it, and nothing was added. */
MUST_USE int claim_take(struct claims *c, struct slice what, uint64_t number, struct batch *b,
                        struct held_claim *out, struct err *e);
/* The batch fails with E_CHANGED unless the claim is in force. */
void claim_require(struct batch *b, struct slice what, const struct held_claim *held);
/* Adds to the batch what ends the claim, ours or, to revoke it, another mirror's. */
void claim_end(struct batch *b, struct slice what, const struct held_claim *held);

#endif
