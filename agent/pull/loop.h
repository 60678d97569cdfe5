/* loop.h - what all downloads of one run share: the event loop, connections, buffers, worker
 * threads.
 *
 * There are a few slots for each connection; when one is free, more() may add a pull, so that a
 * folder of a million files costs no more files and memory than one of a hundred. Pulls are fed in
 * the order in which they were added; one large file takes all connections, many small files one
 * each (batch.h).
 *
 * owns     a pull belongs to the loop and is gone after its on_done
 * threads  all on the thread that calls pull_loop_run(), which is where events run
 */
#ifndef AGENT_PULL_LOOP_H
#define AGENT_PULL_LOOP_H

#include "agent/agent.h"
#include "agent/pull/peer_ops.h"
#include "common/base/list.h"
#include "common/hash/digest.h"
#include "common/os/pool.h"
#include "common/xfer/xfer.h"

struct batch;
struct transfer;
struct pull_loop;

struct pull_block { /* one part's bytes on their way to the disk */
    struct list node;
    struct job job;
    struct transfer *of;
    struct remote_peer *from; /* NULL: the mirror */
    char *p;                  /* PART_BYTES of room, and XFER_SLICE_MAX for what runs over */
    size_t index;
    size_t n;
    bool check; /* against its chunk digest, before it is written */
    bool whole; /* it is all of the file: then `digest` is the file's */
    struct digest digest;
    int rc;
    struct err why;
};

struct sealing { /* a small file on its way into the cache, with others */
    struct list node;
    struct local_cache_sealing one; /* rc and why tell how it went */
    /* Never inside pull_loop_seal(); until then the struct is its caller's. */
    void (*done)(struct sealing *s);
};

struct pull_tally {       /* of one file, over all its tries */
    uint64_t done_bytes;  /* what it has contributed to the loop's progress */
    uint64_t known_bytes; /* and to its total */
    uint64_t fetched_bytes;
    uint64_t peer_bytes; /* of them, from other nodes */
};

enum { CONNECTIONS_MAX = 64, SLOTS_EACH = 4, PULLS_MAX = CONNECTIONS_MAX * SLOTS_EACH };

enum pull_more {
    MORE_ADDED,
    MORE_LATER, /* none now; something that was asked for will bring some */
    MORE_NONE,
};

/* The two kinds of downloads, in the order in which they are fed: small files, many in an answer
 * (batch.h); one file by itself (pull.h). Each says what it is when the first of it is added. */
enum { KIND_BATCH, KIND_SINGLE, PULL_KINDS };
struct pull_kind {
    void (*feed)(struct pull_loop *l); /* something became free */
    void (*tick)(struct pull_loop *l, uint64_t now_ms);
    void (*stop)(struct pull_loop *l); /* cancel all; what they have is kept for the next run */
    bool (*reap)(struct pull_loop *l); /* end what is done; true: there was some */
    bool (*is_idle)(const struct pull_loop *l);
    bool (*has_room)(const struct pull_loop *l);
    void (*close)(struct pull_loop *l);
};

struct pull_loop_params {
    const struct peer_ops *peer_ops;               /* NULL: from the mirror alone */
    void (*begin)(void *arg, struct pull_loop *l); /* once, before anything else */
    enum pull_more (*more)(void *arg); /* there is a slot: adds one pull, if there is one */
    void (*on_tick)(void *arg);        /* now and then */
    void (*end)(void *arg);            /* once; the loop is gone after it */
    void *arg;
};

struct pull_loop { /* the first half is for all to use, and changed by loop.c alone */
    const struct agent *agent;
    struct event_base *base;
    struct xfer_loop *xfers;
    struct message_queue *mail;
    struct pool *workers;                     /* hash and write parts, sync, seal */
    struct pool *followers;                   /* hash whole files */
    const struct pull_kind *kind[PULL_KINDS]; /* NULL: there has been none */
    struct batch *batch;                      /* batch.h's */
    const struct peer_ops *peer_ops;
    struct peers *peers; /* NULL: none */
    bool stopping;       /* a signal came, or a pull failed */
    bool no_more;        /* files will be added */
    uint64_t done_bytes; /* for the progress bar: of all pulls */
    uint64_t known_bytes;
    struct list pulls; /* pull.h's */
    unsigned slots;    /* free ones */

    struct pull_loop_params want;
    struct event *tick;
    struct event *stop[2]; /* SIGINT, SIGTERM */
    struct list to_seal;   /* gathered for the next batch */
    size_t nto_seal;
    struct list sealing; /* the batch under way, with its job */
    struct local_cache_sealing **sealing_one;
    size_t nsealing;
    struct job seal_job;
    struct list free_blocks;
    unsigned blocks_left; /* that may still be made */
    unsigned conns_left;
    uint64_t dice; /* of pull_loop_pause_ms(): never 0 */
};

/* Runs until no pull is left and more() has none. A SIGINT or SIGTERM saves what is there and ends
 * it: E_CANCELLED. */
MUST_USE int pull_loop_run(const struct agent *a, const struct pull_loop_params *w, struct err *e);

void pull_loop_feed(struct pull_loop *l); /* something became free: who can use it? */
void pull_loop_stop(struct pull_loop *l); /* cancels all; what they have is kept for the next run */
/* How long to wait before the network is asked again: so many tries have failed, and the mirror has
 * said Retry-After (0: it has not). Up to as much more by chance: what turned a thousand nodes away
 * at once would else have them all back at once. */
uint64_t pull_loop_pause_ms(struct pull_loop *l, unsigned tries, uint64_t retry_after_s);
MUST_USE bool pull_loop_take_conn(struct pull_loop *l);
void pull_loop_give_conn(struct pull_loop *l);
struct pull_block *pull_loop_take_block(struct pull_loop *l); /* NULL: none is free */
void pull_loop_give_block(struct pull_loop *l, struct pull_block *b);
/* A small file into the cache. One batch with one sync at a time: the next one gathers meanwhile,
 * and is the larger the slower the disk is. Those that are added in one turn of the loop go
 * together. */
void pull_loop_seal(struct pull_loop *l, struct sealing *x);
/* So much of a file is here, of so much. */
void pull_loop_show(struct pull_loop *l, struct pull_tally *t, uint64_t done, uint64_t known);

#endif
