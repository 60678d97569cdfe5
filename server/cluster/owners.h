/* owners.h - which mirror of the cluster fetches an object from its origin (cache/neighbor.h).
 *
 * The owner of a key is the mirror with the highest score (rendezvous.h), of those that are alive
 * and can be reached. All mirrors find the same owner if they have the same list of members. If the
 * lists differ for a moment, an object may be fetched twice, and no request waits for another one
 * in a ring.
 *
 *   this mirror is the owner     it asks the next NEIGHBORS_MAX in rank for what they have: the
 *                                first was the owner before this mirror came, and any of them may
 *                                have got it from an owner that has left
 *   it is not                    it asks the owner, then the next in rank if that is not itself
 *
 * owns     an origin for each mirror that it has asked; borrows members and secret
 * threads  any
 */
#ifndef SERVER_CLUSTER_OWNERS_H
#define SERVER_CLUSTER_OWNERS_H

#include "server/cache/neighbor.h"
#include "server/cluster/member.h"

/* A mirror that is restarted is back soon, and refuses connections without delay until then. One
 * that is silent costs the time of an attempt to connect. */
enum { OWNER_BROKE_REST_MS = 1000, OWNER_SILENT_REST_MS = 10000 };

struct owners;

/* weight: as it is announced; 0: others cannot ask this mirror. */
struct owners *owners_open(struct members *m, const char *node, uint32_t weight,
                           const char *secret); /* which is copied */
void owners_close(struct owners **op);          /* NULL is fine */

extern const struct neighbor_ops owners_ops; /* arg: the owners */

/* That node is there again, and is asked at once. */
void owners_heard(struct owners *o, const char *node);
/* Requests of this mirror to others, and the bytes that they have sent. */
void owners_stats(const struct owners *o, struct origin_request_stats *out);

/* Whether a mirror of this cluster has signed the text of a lookup. */
MUST_USE bool owners_signed(const struct owners *o, struct slice text, struct slice signature);

#endif
