/* swarm.h - the nodes that bring one blob at the same time: who has which chunk, who was asked to bring which from here.
 *
 * Each chunk nobody has is asked of one member: its own until somebody has it, it leaves, falls silent, or the lease is over. So
 * it leaves the mirror once, in the order of numbers, since nodes hash from the front. How many are under way at once follows from how
 * long they take. What members say is believed: a node checks
 * each chunk that it gets, and one that waits in vain asks the mirror unasked.
 *
 * owns     members, with a bitmap each; nothing outside
 * threads  one at a time; no clock, no randomness but the seed: both are told
 * cost     an announcement O(chunks / 64 + what changed), whatever the number of members
 */
#ifndef SERVER_PEERS_SWARM_H
#define SERVER_PEERS_SWARM_H

#include "server/peers/announcement.h"

struct swarm_rules {
    uint32_t again_s; /* a member that has not come for three times that is gone */
    uint64_t lease_ms;
    size_t members; /* at most */
};

struct swarm;
struct swarm *swarm_new(size_t chunks, const uint8_t key[SWARM_KEY], uint64_t seed);
void swarm_free(struct swarm **sp);

/* from: the announcer's address. E_INVALID: the bitmap is not of this blob; E_BUSY: it is full. */
MUST_USE int swarm_announce(struct swarm *s, const struct node_announcement *a,
                            const uint8_t from[SWARM_ADDRESS], const struct swarm_rules *r,
                            uint64_t now_ms, struct swarm_answer *out, struct err *e);
void swarm_leave(struct swarm *s, const uint8_t id[ANNOUNCEMENT_ID]); /* unknown is fine */
/* Members that fell silent, leases that are over: before each announcement, and now and then. */
void swarm_expire(struct swarm *s, const struct swarm_rules *r, uint64_t now_ms);

struct swarm_count {
    size_t chunks;
    size_t had;   /* chunks that some member has */
    size_t asked; /* nobody has, and somebody was asked to bring */
    size_t members;
    size_t givers; /* of them, those with a port */
};
void swarm_count(const struct swarm *s, struct swarm_count *out);
bool swarm_knows(const struct swarm *s, const uint8_t id[ANNOUNCEMENT_ID]);
size_t swarm_members(const struct swarm *s);
uint64_t swarm_handed(const struct swarm *s);
/* Memory of a swarm without members, and of each member: for who bounds it. */
size_t swarm_cost(size_t chunks);
size_t swarm_member_cost(size_t chunks);

#endif
