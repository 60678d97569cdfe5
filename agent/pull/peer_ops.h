/* peer_ops.h - the functions by which a pull fetches from peers: other nodes that download the
 * same files at the same time.
 *
 * A pull calls peers back through this table and includes none of their headers.
 * agent/peers/peers.h provides it.
 *
 * threads  all on the pull's loop
 */
#ifndef AGENT_PULL_PEER_OPS_H
#define AGENT_PULL_PEER_OPS_H

#include "agent/agent.h"
#include "agent/pull/parts.h"
#include "common/xfer/xfer.h"

struct peers;       /* of one run */
struct swarm;       /* of one file; a pull holds it from join() to leave() */
struct remote_peer; /* a node that has some of the file */

enum { PEER_URL_ROOM = 320 };
enum peer_choice {
    CHOOSE_MIRROR,
    CHOOSE_GIVER, /* a request to that peer is counted until ended() */
    CHOOSE_NONE,  /* wait */
};

struct peer_now {  /* what is in progress when a choice is made */
    bool idle;     /* nothing */
    bool bringing; /* a request to the mirror */
    bool mirror;   /* may be asked now */
    uint64_t now_ms;
};

struct peer_ops {
    unsigned connections; /* needed in addition to those to the mirror */
    /* NULL: peers are not used. changed() when more may be fetched than before. */
    struct peers *(*open)(const struct agent *a, struct xfer_loop *xfers,
                          void (*changed)(void *arg), void *arg);
    void (*close)(struct peers **pp); /* when all swarms have been left */
    void (*tick)(struct peers *ps, uint64_t now_ms);
    /* All pulls have ended: may the run end, too? hurry: do not wait for what other nodes miss. */
    bool (*may_end)(struct peers *ps, bool hurry, uint64_t now_ms);
    unsigned (*givers)(const struct peers *ps); /* how many nodes gave chunks */

    /* NULL: this file is not shared with peers. */
    struct swarm *(*join)(struct peers *ps, const struct digest *d, uint64_t size_bytes, int fd);
    void (*leave)(struct swarm **sp, bool whole); /* whole: it is still given to others */
    bool (*is_on)(const struct swarm *s);
    void (*have)(struct swarm *s, size_t chunk, bool there);
    enum peer_choice (*choose)(struct swarm *s, const struct parts *p, const struct peer_now *now,
                               size_t *chunk, struct remote_peer **from);
    /* The request for a chunk; its texts live in `room`. */
    struct xfer_params (*want)(const struct remote_peer *n, size_t chunk, char room[PEER_URL_ROOM]);
    /* The result: 0, and written() follows; E_BUSY; E_NOTFOUND; E_CANCELLED; anything else is a
     * failure. */
    void (*ended)(struct remote_peer *n, size_t chunk, int rc);
    /* The result of checking and writing the chunk: 0; E_CORRUPT, it was wrong; anything else is
     * the disk's failure. */
    void (*written)(struct remote_peer *n, size_t chunk, int rc);
};

#endif
