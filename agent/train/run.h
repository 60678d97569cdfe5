/* run.h - a training run: everything it holds, from its options or from the checkpoint that it
 * resumes.
 *
 * owns     all of it; run_close() accepts a run that was opened in part
 */
#ifndef AGENT_TRAIN_RUN_H
#define AGENT_TRAIN_RUN_H

#include "agent/train/loader.h"
#include "agent/train/metrics.h"
#include "agent/train/options.h"
#include "agent/train/ranks.h"
#include "agent/train/saver.h"
#include "agent/train/watchdog.h"

/* What ranks agree on after each step; summed over all ranks. */
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
    /* With --tp: the ranks that divide a model with this one, and those that have the same part;
     * NULL: none. */
    struct comm *tp, *same_part;
    struct comm *dp; /* the ranks that divide the samples: same_part, or all */
    /* those of dp that divide a model with this rank, and those with the same pieces; NULL: all,
     * none */
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
    char *resumed;        /* the folder of that checkpoint; NULL: a new run */
    int64_t resumed_step; /* its number, with --resume auto */
    struct recipe before; /* of the checkpoint that the run resumes */
    struct buf products;  /* that checkpoint's, with --deterministic (products.h) */
    uint64_t attempt;     /* unique to this attempt of the run */
    int64_t saved_step;
    int64_t skips;       /* consecutive */
    bool agreed_to_stop; /* by a signal or a notice, on all ranks */
    void *shared;        /* device memory for the values that the ranks agree on */
    int out_fd;          /* of --out, locked by the first rank; -1: not held */
};

/* For a run with o, k, ranks, comm, watchdog, and out_fd of -1. */
MUST_USE int run_open(struct run *r, struct err *e);
void run_close(struct run *r);

#endif
