/* swarm.h - one file, and those who fetch it at the same time: what the mirror is told and tells, who the neighbours are, what to take from whom.
 *
 * From swarm_join() on the mirror is told every few seconds what is here, and says which chunks this node should bring, and who else
 * there is. Trouble of any kind ends at the mirror: without a door for peers there (404) the swarm is off, and all is as if there
 * were none; without an answer in time the pull begins by itself.
 *
 * joined -> (finished: gives on, while the run lasts) -> left
 *
 * owns     peers.h's; a pull holds it between join and finish or leave, and its lanes have been closed before
 * threads  the puller's loop; what is given is on another (give.h)
 */
#ifndef AGENT_PEERS_SWARM_H
#define AGENT_PEERS_SWARM_H

#include "agent/peers/choose.h"
#include "agent/peers/gift.h"
#include "agent/peers/neighbour.h"
#include "common/base/arena.h"

struct ask;
struct peers;

enum { NEIGHBOURS_ACTIVE = 8, NEIGHBOURS_MAX = 32 };

struct swarm {
    struct list node;
    struct peers *peers;
    struct psk psk; /* identity: the digest */
    struct slice url;
    struct arena arena;
    size_t count;
    uint8_t id[SWARM_ID_BYTES];
    struct gift *gift;
    uint8_t *have;
    uint8_t *mine; /* to be brought from the mirror */
    size_t nhave;
    size_t nmine;
    struct list neighbours;
    size_t nneighbours;
    uint64_t members;
    uint64_t again_ms;
    uint64_t joined_ms;
    uint64_t ask_at_ms;
    uint64_t asked_ms;
    struct ask *ask;
    unsigned asked_take; /* with the question under way */
    unsigned failures;
    uint64_t chose_ms;   /* when it had a place for a chunk */
    bool could;          /* begin something, since it was asked last */
    uint64_t take_at_ms; /* not before is more asked for */
    bool keyed;          /* an answer has come */
    bool off;            /* there is no door */
    bool finished;
    bool leaving;
    bool hungry; /* the last choice was to wait */
    uint64_t
        moved_ms;     /* when a chunk came, or was begun from the mirror: a promise moves nothing */
    unsigned strikes; /* chunks brought unasked since others were last of use */
    uint64_t patience_ms;
};

/* NULL: this file is not for peers, or there is no disk for it. */
struct swarm *swarm_join(struct peers *ps, const struct digest *d, uint64_t size_bytes, int fd);
void swarm_have(struct swarm *s, size_t chunk, bool there);
/* What to begin now that there is a place for it; idle: nothing is under way; bringing: something is from the mirror;
 * mirror: it may be asked now. CHOOSE_GIVER: its
 * lane is counted, swarm_release() ends it. */
enum choice swarm_choose(struct swarm *s, const struct parts *p, bool idle, bool bringing,
                         bool mirror, uint64_t now_ms, size_t *chunk, struct neighbour **from);
/* How a lane from a neighbour ended: neighbour_judge()'s rc. */
void swarm_release(struct neighbour *n, size_t chunk, int rc);
/* A chunk of a neighbour's is verified and written. */
void swarm_was_given(struct swarm *s, const struct neighbour *by);
bool swarm_is_on(const struct swarm *s);
/* What it has goes on being given, from the same open file. */
void swarm_finish(struct swarm **sp);
/* Nothing of it is given any more. */
void swarm_leave(struct swarm **sp);

/* peers.h's business */
void swarm_tick(struct swarm *s, uint64_t now_ms);
void swarm_part(struct swarm *s); /* says that it goes */
void swarm_free(struct swarm *s);
void swarm_news(struct swarm *s);                             /* a neighbour has told what it has */
bool swarm_is_wanted(const struct swarm *s, uint64_t now_ms); /* does somebody miss what it has? */

#endif
