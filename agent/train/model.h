/* model.h - a model in a backend's memory: its parameters and gradients, one pass forward, one backward.
 *
 * Everything goes through struct kops, so the same code runs on CPU and CUDA, in f32 and (for tests) f64. All memory is
 * taken by model_open() and model_reserve(); a training step allocates nothing.
 *
 * owns     struct model frees what it holds; the operations are borrowed
 * threads  one at a time
 * errors   the operations' first error is kept and comes back from the call that waits for the device
 */
#ifndef AGENT_TRAIN_MODEL_H
#define AGENT_TRAIN_MODEL_H

#include "agent/train/layout.h"
#include "kernels/ops.h"

/* One block's activations, kept from the forward for the backward pass. All are [rows, ...]. */
struct block_acts {
    void *norm1, *mean1, *rstd1;
    void *qkv, *att, *lse;
    void *mid; /* the residual stream after attention */
    void *norm2, *mean2, *rstd2;
    void *fc, *act;
    void *out; /* the residual stream after the block */
};

struct model {
    const struct kops *k;
    struct kstream *ks;
    enum dtype dt;
    struct model_config config;
    struct layout layout;
    char *param;
    char *grad;   /* NULL when not for training */
    double *loss; /* in device memory: the sum of the losses since model_begin() */
    int rc;       /* the first error of an operation */

    int64_t batch; /* what is reserved */
    int64_t seq;
    bool training;
    char *memory;
    size_t memory_bytes;
    int32_t *token, *target;
    void *embedded;
    struct block_acts *block;
    void *normf, *meanf, *rstdf;
    void *logits, *loss_row;
    int64_t head_rows; /* rows of logits held at a time */
    void *dstream, *dbranch, *dwide, *dqkv;
    void *attention_scratch;
    struct attention_ready attention;
};

MUST_USE int model_open(const struct model_config *c, const struct kops *k, enum dtype dt,
                        int world, bool training, struct model **out, struct err *e);
void model_close(struct model **mp); /* NULL is fine */
/* Fills the parameters by GPT-2's rules, from the seed alone. */
MUST_USE int model_init(struct model *m, uint64_t seed, struct err *e);
/* Takes memory for passes of up to batch x seq tokens. */
MUST_USE int model_reserve(struct model *m, int64_t batch, int64_t seq, struct err *e);

/* Forgets gradients and losses: a new step begins. */
void model_begin(struct model *m);
/* Forward and backward over batch x seq tokens (host memory): gradients of scale * sum of losses are added, and the
 * losses themselves to the sum. */
void model_learn(struct model *m, const int32_t *token, const int32_t *target, int64_t batch,
                 int64_t seq, double scale);
/* Forward alone; adds to the sum of losses. */
void model_measure(struct model *m, const int32_t *token, const int32_t *target, int64_t batch,
                   int64_t seq);
/* Waits for the device. */
MUST_USE int model_loss(struct model *m, double *sum, struct err *e);
/* The logits behind the last of n tokens, `vocab` of them. */
MUST_USE int model_next(struct model *m, const int32_t *token, int64_t n, float *logits,
                        struct err *e);

size_t model_bytes(const struct model *m, int64_t elements);
/* Keeps the first error of an operation. */
void model_do(struct model *m, int rc);
/* Between host and device; waits. */
MUST_USE int model_put(struct model *m, void *to, const void *from, size_t size_bytes,
                       struct err *e);
MUST_USE int model_get(struct model *m, void *to, const void *from, size_t size_bytes,
                       struct err *e);

#endif
