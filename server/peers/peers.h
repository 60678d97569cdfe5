/* peers.h - the nodes that download the same blob at the same time: which node has which chunk,
 * and which node was assigned which chunk to fetch from the mirror.
 *
 * A swarm is the nodes that download one blob. A chunk that no member has is assigned to one
 * member, until a member has it, that member leaves or falls silent, or the lease is over. So
 * each chunk is sent by the mirror once, in the order of numbers, since nodes hash from the
 * front. How many are in progress together follows from how long they take. The table trusts what
 * members say: a node verifies each chunk that it gets, and one that waits in vain fetches from
 * the mirror without an assignment.
 *
 * All swarms together have a limit. A client that is alone may use all of it. When it is reached,
 * the client that has begun most swarms loses them to others, one after the other.
 *
 * The state is in memory only: a restart loses it, and members return with their next
 * announcement. A swarm begins with its first member and has its own key until the last member is
 * gone. Nothing is kept without a `peers` section.
 *
 * owns     members, with a bitmap each; nothing outside
 * threads  any; short, waits only for its lock
 * cost     an announcement O(chunks / 64 + changes), whatever the number of members
 * errors   E_NOTFOUND: off; E_INVALID: the bitmap is not for this blob; E_BUSY: a limit is
 *          reached; try later
 */
#ifndef SERVER_PEERS_PEERS_H
#define SERVER_PEERS_PEERS_H

#include "common/hash/digest.h"
#include "server/peers/announcement.h"

struct peers_settings {
    uint32_t again_s; /* 0: off. A member that is silent for three times this long is gone */
    uint32_t lease_s;
    uint32_t members; /* of a swarm, at most */
};

struct peers;
struct peers *peers_open(const struct peers_settings *set);
void peers_close(struct peers **pp); /* NULL is fine */
/* Off drops all swarms. */
void peers_set(struct peers *p, const struct peers_settings *set);
bool peers_on(struct peers *p);

/* size_bytes: of the blob. client: the announcing one; a swarm that it begins counts as its own.
 * *began: it is the first of a swarm, which peers_name() may name. *out is empty for a node that
 * leaves. */
MUST_USE int peers_announce(struct peers *p, const struct digest *d, uint64_t size_bytes,
                            uint64_t client, const struct node_announcement *a,
                            const uint8_t from[SWARM_ADDRESS], uint64_t now_ms,
                            struct swarm_answer *out, bool *began, struct err *e);
/* A repository and a key or tree in it that refer to the blob, for people. A long name is cut. */
void peers_name(struct peers *p, const struct digest *d, struct slice repo, struct slice key);
/* Removes silent members and expired leases: call it now and then, whether or not announcements
 * come. */
void peers_tick(struct peers *p, uint64_t now_ms);

enum { PEERS_NAME = 256, SWARMS_MAX = 1024 };
struct swarm_count {
    size_t chunks;
    size_t had;   /* chunks that some member has */
    size_t asked; /* chunks that none has and that are assigned */
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
/* The oldest first; returns the number written. */
size_t peers_look(struct peers *p, uint64_t now_ms, struct swarm_view *out, size_t room);

struct peers_stats {
    uint64_t announcements, refused; /* refused: for lack of room */
    uint64_t handed;                 /* chunks that were assigned to members */
    size_t swarms, members;
};
void peers_stats(struct peers *p, struct peers_stats *out);

#endif
