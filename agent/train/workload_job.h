/* workload_job.h - one operation being timed: shared by workload.c's tables of products and
 * workload_memory.c's tables. */
#ifndef AGENT_TRAIN_WORKLOAD_JOB_H
#define AGENT_TRAIN_WORKLOAD_JOB_H

#include "agent/train/trial.h"
#include "agent/train/workload.h"

struct workload_job {
    const struct workload *w;
    const struct model *m;
    const struct kops *k;
    struct kstream *ks;
    struct trial t;
    void *p[10]; /* operands */
    const int32_t *token;
    int64_t rows, cols;
    int64_t n, depth; /* of a product: its flags, epilogue and result type */
    unsigned flags;
    enum dtype out;
    struct matmul_tail tail;
    struct attention_shape heads;
};

struct workload_job job_of(const struct workload *w);
/* Random operands: of the model's type, and of its sums' type. */
void *job_noise(struct workload_job *j, int64_t n);
void *job_sums(struct workload_job *j, int64_t n);
/* Times the job, frees its memory, and adds the row. */
MUST_USE int job_finish(struct workload_job *j, int (*run)(void *arg), struct score *row,
                        struct err *e);

#endif
