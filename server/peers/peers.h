/* peers.h - the nodes that bring the same blobs at the same time: who has which chunk, who was
 * asked to bring which from here.
 *
 * A swarm is the nodes that bring one blob. Each chunk nobody has is asked of one member: its own
 * until somebody has it, it leaves, falls silent, or the lease is over. So it leaves the mirror
 * once, in the order of numbers, since nodes hash from the front. How many are under way at once
 * follows from how long they take. What members say is believed: a node checks each chunk that it
 * gets, and one that waits in vain asks the mirror unasked.
 *
 * All swarms together are bounded. A client that is alone may have all of the room. When it is
 * full, the client that has begun most gives way to others, one swarm after the other.
 *
 * Soft state: a restart forgets it, members come back with their next announcement. A swarm begins
 * with its first member and has a key of its own until the last one has gone. Nothing is kept
 * without a `peers` section.
 *
 * owns     members, with a bitmap each; nothing outside
 * threads  any; short, blocks on nothing but its lock
 * cost     an announcement O(chunks / 64 + what changed), whatever the number of members
 * errors   E_NOTFOUND: off; E_INVALID: the bitmap is not of this blob; E_BUSY: as much as it takes
 *          is under way, later there may be room
 */
#ifndef SERVER_PEERS_PEERS_H
#define SERVER_PEERS_PEERS_H

#include "common/hash/digest.h"
#include "server/peers/announcement.h"

struct peers_settings {
    uint32_t again_s; /* 0: off. A member that has not come for three times that is gone */
    uint32_t lease_s;
    uint32_t members; /* of a swarm, at most */
};

struct peers;
struct peers *peers_open(const struct peers_settings *set);
void peers_close(struct peers **pp); /* NULL is fine */
/* Off forgets all that there is. */
void peers_set(struct peers *p, const struct peers_settings *set);
bool peers_on(struct peers *p);

/* size_bytes: of the blob. client: who announces; a swarm that it begins is on its account. *began:
 * it is the first of a swarm, whose name may be told by peers_name(). *out says nothing to a node
 * that leaves. */
MUST_USE int peers_announce(struct peers *p, const struct digest *d, uint64_t size_bytes,
                            uint64_t client, const struct node_announcement *a,
                            const uint8_t from[SWARM_ADDRESS], uint64_t now_ms,
                            struct swarm_answer *out, bool *began, struct err *e);
/* A repo and a key or tree in it that hold the blob, for people. Cut where it is long. */
void peers_name(struct peers *p, const struct digest *d, struct slice repo, struct slice key);
/* What has gone quiet goes, and leases that are over: now and then, whether somebody comes or
 * not. */
void peers_tick(struct peers *p, uint64_t now_ms);

enum { PEERS_NAME = 256, SWARMS_MAX = 1024 };
struct swarm_count {
    size_t chunks;
    size_t had;   /* chunks that some member has */
    size_t asked; /* nobody has, and somebody was asked to bring */
    size_t members;
    size_t givers; /* of them, those with a port */
};
struct swarm_view {
    struct digest digest;
    char repo[PEERS_NAME], key[PEERS_NAME]; /* "": not known */
    uint64_t size_bytes;
    uint64_t age_ms;
    struct swarm_count count;
};
/* The oldest first; says how many there are of those that fit. */
size_t peers_look(struct peers *p, uint64_t now_ms, struct swarm_view *out, size_t room);

struct peers_stats {
    uint64_t announcements, refused; /* refused: for want of room */
    uint64_t handed;                 /* chunks that members were asked to bring */
    size_t swarms, members;
};
void peers_stats(struct peers *p, struct peers_stats *out);

#endif
