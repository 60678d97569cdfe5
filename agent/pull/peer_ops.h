/* peer_ops.h - how a pull fetches from peers: other nodes that fetch the same files at the same
 * time.
 *
 * A pull calls peers back through these; it includes nothing of theirs. agent/peers/peers.h fills
 * them in.
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

struct peer_now {  /* what is under way when something is to be chosen */
    bool idle;     /* nothing */
    bool bringing; /* something from the mirror */
    bool mirror;   /* which may be asked now */
    uint64_t now_ms;
};

struct peer_ops {
    unsigned connections; /* that they need besides those to the mirror */
    /* NULL: peers are not asked for. changed() when something may be fetched that could not be
     * before. */
    struct peers *(*open)(const struct agent *a, struct xfer_loop *xfers,
                          void (*changed)(void *arg), void *arg);
    void (*close)(struct peers **pp); /* when all swarms have been left */
    void (*tick)(struct peers *ps, uint64_t now_ms);
    /* All pulls have ended: may the run end, too? hurry: what other nodes miss does not count. */
    bool (*may_end)(struct peers *ps, bool hurry, uint64_t now_ms);
    unsigned (*givers)(const struct peers *ps); /* how many nodes gave something */

    /* NULL: this file is not for peers. */
    struct swarm *(*join)(struct peers *ps, const struct digest *d, uint64_t size_bytes, int fd);
    void (*leave)(struct swarm **sp, bool whole); /* whole: what it has goes on being given */
    bool (*is_on)(const struct swarm *s);
    void (*have)(struct swarm *s, size_t chunk, bool there);
    enum peer_choice (*choose)(struct swarm *s, const struct parts *p, const struct peer_now *now,
                               size_t *chunk, struct remote_peer **from);
    /* The request for a chunk; its texts live in `room`. */
    struct xfer_params (*want)(const struct remote_peer *n, size_t chunk, char room[PEER_URL_ROOM]);
    /* How it went: 0, and written() follows; E_BUSY; E_NOTFOUND; E_CANCELLED; else it failed. */
    void (*ended)(struct remote_peer *n, size_t chunk, int rc);
    /* The chunk was checked and written: 0; E_CORRUPT, it was wrong; else the disk's trouble. */
    void (*written)(struct remote_peer *n, size_t chunk, int rc);
};

#endif
