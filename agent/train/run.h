/* run.h - a training run: everything it holds from its options, or from the checkpoint that it goes
 * on from.
 *
 * owns     all of it; run_close() takes a run that was opened half
 */
#ifndef AGENT_TRAIN_RUN_H
#define AGENT_TRAIN_RUN_H

#include "agent/train/loader.h"
#include "agent/train/metrics.h"
#include "agent/train/options.h"
#include "agent/train/ranks.h"
#include "agent/train/saver.h"
#include "agent/train/watchdog.h"

/* What ranks agree on after each step; summed over all. */
enum {
    SHARED_STOP,
    SHARED_PREEMPTED,
    SHARED_SAVE,
    SHARED_BUSY, /* saver_tell()'s */
    SHARED_FAILED,
    SHARED_MARK, /* powersgd_mark()'s, and its square */
    SHARED_MARK_SQUARE,
    SHARED_COUNT
};

struct run {
    struct options *o;
    const struct kops *k;
    struct ranks ranks;
    struct comm *comm;
    /* With --tp: those that cut a model with this rank, and those with the same part of it; NULL:
     * there are none. */
    struct comm *tp, *same_part;
    struct comm *dp; /* those that divide the samples: same_part, or all */
    /* those of dp that share out a model with this rank, and those with the same pieces; NULL:
     * all, none */
    struct comm *shards;
    struct comm *replicas;
    struct watchdog *watchdog;
    struct model_config config;
    int64_t seq;
    struct model *model;
    struct optim *optim;
    struct data *data;
    struct data *val;
    struct loader *loader;   /* of data's samples */
    struct metrics *metrics; /* NULL on all ranks but the first */
    struct saver *saver;
    struct companions companions;
    struct train_state state;
    char *resumed;        /* that checkpoint's folder; NULL: the run begins anew */
    int64_t resumed_step; /* its number, with --resume auto */
    struct recipe before; /* of the checkpoint that the run goes on from */
    struct buf products;  /* that checkpoint's, with --deterministic (products.h) */
    uint64_t attempt;     /* which no other attempt of the run has */
    int64_t saved_step;
    int64_t skips;       /* in a row */
    bool agreed_to_stop; /* by a signal or a notice, on all ranks */
    void *shared;        /* device memory for what the ranks agree on */
    int out_fd;          /* of --out, locked by the first rank; -1: not held */
};

/* Of a run with o, k, ranks, comm, watchdog, and out_fd of -1. */
MUST_USE int run_open(struct run *r, struct err *e);
void run_close(struct run *r);

#endif
