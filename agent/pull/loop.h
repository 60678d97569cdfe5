/* loop.h - what all downloads of one run share: the event loop, connections, buffers, worker
 * threads.
 *
 * There are a few slots for each connection. When one is free, more() may add a pull, so that a
 * folder of a million files needs no more open files and memory than one of a hundred. Pulls get
 * connections in the order in which they were added: one large file uses all connections, many
 * small files one each (batch.h).
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
    uint64_t mirrors;         /* a bit for each mirror that some of the bytes are from */
    char *p;                  /* room for PART_BYTES, and XFER_SLICE_MAX for an overrun */
    size_t index;
    size_t n;
    bool check; /* against its chunk digest, before it is written */
    bool whole; /* it is the whole file: then `digest` is the file's */
    struct digest digest;
    int rc;
    struct err why;
};

struct sealing { /* a small file that is sealed together with others */
    struct list node;
    struct local_cache_sealing one; /* rc and why have the result */
    /* Never inside pull_loop_seal(); until then the struct is its caller's. */
    void (*done)(struct sealing *s);
};

struct pull_tally {       /* of one file, over all its tries */
    uint64_t done_bytes;  /* its share of the loop's progress */
    uint64_t known_bytes; /* and of its total */
    uint64_t fetched_bytes;
    uint64_t peer_bytes; /* of them, from other nodes */
};

enum { CONNECTIONS_MAX = 64, SLOTS_EACH = 4, PULLS_MAX = CONNECTIONS_MAX * SLOTS_EACH };

enum pull_more {
    MORE_ADDED,
    MORE_LATER, /* none now; a running request will bring some */
    MORE_NONE,
};

/* The two kinds of downloads, in the order in which they get connections: small files, many in a
 * response (batch.h); one file by itself (pull.h). Each registers itself when the first of it is
 * added. */
enum { KIND_BATCH, KIND_SINGLE, PULL_KINDS };
struct pull_kind {
    void (*feed)(struct pull_loop *l); /* something became free */
    void (*tick)(struct pull_loop *l, uint64_t now_ms);
    void (*stop)(struct pull_loop *l); /* cancel all; their progress is kept for the next run */
    bool (*reap)(struct pull_loop *l); /* end the finished ones; true: there was one */
    bool (*is_idle)(const struct pull_loop *l);
    bool (*has_room)(const struct pull_loop *l);
    void (*close)(struct pull_loop *l);
};

struct pull_loop_params {
    const struct peer_ops *peer_ops;               /* NULL: only from the mirror */
    void (*begin)(void *arg, struct pull_loop *l); /* once, first */
    enum pull_more (*more)(void *arg); /* a slot is free: adds one pull, if there is one */
    void (*on_tick)(void *arg);        /* now and then */
    void (*end)(void *arg);            /* once; the loop is gone after it */
    void *arg;
};

struct pull_loop { /* the first half is for all to use, and changed only by loop.c */
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
    bool no_more;        /* more files will be added */
    uint64_t done_bytes; /* for the progress bar: of all pulls */
    uint64_t known_bytes;
    struct list pulls; /* pull.h's */
    unsigned slots;    /* the number of free ones */

    struct pull_loop_params want;
    struct event *tick;
    struct event *stop[2]; /* SIGINT, SIGTERM */
    struct list to_seal;   /* collected for the next batch */
    size_t nto_seal;
    struct list sealing; /* the batch being sealed, with its job */
    struct local_cache_sealing **sealing_one;
    size_t nsealing;
    struct job seal_job;
    struct list free_blocks;
    unsigned blocks_left; /* how many may still be made */
    unsigned conns_left;
    uint64_t dice; /* of pull_loop_pause_ms(): never 0 */
};

/* Runs until no pull is left and more() has none. A SIGINT or SIGTERM saves the progress and ends
 * it: E_CANCELLED. */
MUST_USE int pull_loop_run(const struct agent *a, const struct pull_loop_params *w, struct err *e);

void pull_loop_feed(struct pull_loop *l); /* something became free: starts what can use it */
void pull_loop_stop(struct pull_loop *l); /* cancels all; their progress is kept for the next run */
/* The pause before the next request, after so many failed tries and the mirror's Retry-After (0:
 * none). Up to as much again is added at random: otherwise a thousand nodes that were refused
 * together would all return together. */
uint64_t pull_loop_pause_ms(struct pull_loop *l, unsigned tries, uint64_t retry_after_s);
MUST_USE bool pull_loop_take_conn(struct pull_loop *l);
void pull_loop_give_conn(struct pull_loop *l);
struct pull_block *pull_loop_take_block(struct pull_loop *l); /* NULL: none is free */
void pull_loop_give_block(struct pull_loop *l, struct pull_block *b);
/* Seals a small file into the cache. One batch with one sync is in progress at a time: the next
 * one is collected in the meantime, and is the larger the slower the disk is. Files that are
 * added in one turn of the loop are sealed together. */
void pull_loop_seal(struct pull_loop *l, struct sealing *x);
/* Shows the progress of a file: bytes here, and in total. */
void pull_loop_show(struct pull_loop *l, struct pull_tally *t, uint64_t done, uint64_t known);

#endif
