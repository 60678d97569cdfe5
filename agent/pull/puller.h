/* puller.h - all downloads of one run: the loop, the connections, the buffers and the worker threads they share.
 *
 * There are a few seats for each connection; when one is free, more() may add a pull, so that a folder of a million files
 * costs no more files and memory than one of a hundred. Pulls are fed in the order in which they were added; one large file
 * takes all connections, many small files one each.
 *
 * owns     puller_close() after puller_run(); a pull belongs to the puller and is gone after its on_done
 * threads  all on the thread that calls puller_run(), which is where events run
 */
#ifndef AGENT_PULL_PULLER_H
#define AGENT_PULL_PULLER_H

#include "agent/agent.h"
#include "common/base/list.h"
#include "common/hash/digest.h"
#include "common/os/pool.h"
#include "common/xfer/xfer.h"

struct block { /* one part's bytes on their way to the disk */
    struct list node;
    struct job job;
    struct pull *pull;
    struct neighbour *from; /* NULL: the mirror */
    char *p;                /* PART_BYTES of room, and XFER_SLICE_MAX for what runs over */
    size_t index;
    size_t n;
    bool check; /* against its chunk digest, before it is written */
    bool whole; /* it is all of the file: then `digest` is the file's */
    struct digest digest;
    int rc;
    struct err why;
};

enum { CONNECTIONS_MAX = 64, SEATS_EACH = 4, PULLS_MAX = CONNECTIONS_MAX * SEATS_EACH };

enum puller_more {
    MORE_ADDED,
    MORE_LATER, /* none now; something that was asked for will bring some */
    MORE_NONE,
};

struct neighbour;
struct peers;
struct sealer;
struct sheaves;
struct puller {
    const struct agent *agent;
    struct event_base *base;
    struct xfer_loop *xfers;
    struct mailbox *mail;
    struct pool *workers;   /* hash and write parts, sync, seal */
    struct pool *followers; /* hash whole files */
    struct event *tick;
    struct event *stop[2]; /* SIGINT, SIGTERM */
    struct list pulls;     /* under way */
    unsigned seats;        /* free ones */
    struct sealer *sealer;
    struct sheaves *sheaves;
    struct peers *peers; /* NULL: none */
    struct list free_blocks;
    unsigned blocks_left; /* that may still be made */
    unsigned conns_left;
    uint64_t done_bytes; /* for the progress bar: of all pulls */
    uint64_t known_bytes;
    uint64_t fetched_bytes;              /* over the wire */
    uint64_t dice;                       /* of puller_pause_ms(): never 0 */
    bool stopping;                       /* a signal came, or a pull failed */
    enum puller_more (*more)(void *arg); /* there is a seat: adds one pull, if there is one */
    void *more_arg;
    void (*on_tick)(void *arg, const struct puller *pl, bool last);
    void *tick_arg;
};

MUST_USE int puller_open(const struct agent *a, struct puller **out, struct err *e);
/* Runs until no pull is left and more() has none. A SIGINT or SIGTERM saves what is there and ends it: E_CANCELLED. */
MUST_USE int puller_run(struct puller *pl, struct err *e);
void puller_close(struct puller **pp);

void puller_feed(struct puller *pl); /* something became free: who can use it? */
void puller_stop(
    struct puller *pl); /* cancels all pulls; what they have is kept for the next run */
/* How long to wait before the network is asked again: so many tries have failed, and the mirror has said Retry-After (0: it has not). Up to
 * as much more by chance: what turned a thousand nodes away at once would else have them all back at once. */
uint64_t puller_pause_ms(struct puller *pl, unsigned tries, uint64_t retry_after_s);
MUST_USE bool puller_take_conn(struct puller *pl);
void puller_give_conn(struct puller *pl);
struct block *puller_take_block(struct puller *pl); /* NULL: none is free */
void puller_give_block(struct puller *pl, struct block *b);

#endif
