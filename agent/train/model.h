/* model.h - a model in a backend's memory: its parameters and gradients, one pass forward, one
 * backward.
 *
 * Everything goes through struct kops, so the same code runs on CPU and CUDA, and one set of
 * switches (config.h) makes every family. model_plan() counts all memory and model_reserve()
 * allocates it; a training step allocates nothing.
 *
 * Activations and the parameters that the passes read are of the type `dt`; gradients, statistics
 * and the trained parameters are of `accum` (kernels/dev.h). A pass adds to the gradients:
 * several make one larger batch.
 *
 * With recompute = K > 0 only the input of every K-th block is kept for the backward pass, which
 * runs K blocks forward again before it goes through them; the same operations on the same inputs
 * give the same bits.
 *
 * A caching model keeps the keys and values of one sequence, and each further token costs one
 * position instead of all.
 *
 * owns     struct model frees what it holds; the operations are borrowed
 * threads  one at a time
 * errors   the operations' first error is kept and returned by the call that waits for the device
 */
#ifndef AGENT_TRAIN_MODEL_H
#define AGENT_TRAIN_MODEL_H

#include "agent/train/layout.h"
#include "kernels/comm.h"
#include "kernels/ops.h"

/* Gradients as products of thin matrices (powersgd.h). */
struct compression {
    int64_t rank;  /* columns of the factors; 0: no compression */
    int64_t start; /* the first so many steps are not compressed */
    double gain;   /* a matrix is compressed if it has so many times the elements of its factors */
};

struct model_options {
    enum dtype dt;
    int world; /* ranks that divide each group */
    int rank;
    /* between them, borrowed; NULL: gradients stay each rank's own, and `zero` is 0 */
    struct comm *comm;
    /* those of other groups with the same pieces, borrowed; NULL: none */
    struct comm *replicas;
    int groups;       /* groups of ranks that hold a model each, also for a plan; 0: one */
    struct comm *all; /* with replicas or tp: all ranks */
    int tp;           /* ranks that divide the model (tensor_parallel.h); 0 or 1: it is whole */
    int tp_rank;
    struct comm *tp_comm;        /* between them, borrowed; NULL: for a plan */
    int zero;                    /* ZeRO's stage (zero.h) */
    bool ordered;                /* all stages give the same bits */
    bool narrow_sums;            /* gradients are exchanged in bf16 */
    struct compression compress; /* for stages 0 and 1, without replicas and tp */
    int64_t passes;              /* forward and back in each step; 0: 1 */
    bool training;
    bool caching;      /* model_extend(); then batch is 1, and there is no training */
    bool any_order;    /* attention.h */
    int64_t recompute; /* K; 0: everything is kept */
};

/* One block's activations. All are [rows, ...]; in a divided model the residual stream, norms and
 * their statistics have the rank's own rows. */
struct block_acts {
    void *norm1, *mean1, *rstd1;
    void *qkv, *att, *lse;
    void *mid; /* the residual stream after attention */
    void *norm2, *mean2, *rstd2;
    void *fc, *act;
    void *out; /* the residual stream after the block */
};

/* A model's device memory, including its optimiser (optim.h). */
struct model_memory {
    size_t weights_bytes;
    size_t gradients_bytes;
    size_t optimizer_bytes; /* masters and moments */
    size_t activations_bytes;
};

struct model {
    const struct kops *k;
    struct kstream *ks;
    enum dtype dt;
    enum dtype accum;
    struct model_config config;
    struct model_config part; /* the same with this rank's share of heads and of the MLP */
    struct model_options o;
    struct layout layout;
    struct partition own;        /* the rank's part of what is divided */
    struct partition param_held; /* its part of the parameters, */
    struct partition state_held; /* of moments, and of masters that are not the parameters */
    struct partition master_held;
    char *param;
    char *master;       /* the trained parameters: param itself unless that is narrower */
    char *grad;         /* all, or zero.h's buffers; NULL when not for training */
    bool fresh;         /* products overwrite gradients instead of adding: there are none yet */
    int64_t pass;       /* of the step, from 0 */
    char **group_param; /* each group's address, for block.h; NULL: not whole on this rank */
    char **group_grad;
    char *gathered, *sums, *scratch, *narrow; /* zero.h's; NULL if not needed */
    struct zero_traffic *traffic;             /* NULL: a single rank */
    struct powersgd *powersgd;                /* NULL: gradients are not compressed */
    double sent_bytes;     /* of gradients since model_begin(), by this rank (zero.h) */
    double *loss;          /* in device memory: the sum of the losses since model_begin() */
    int rc;                /* the first error of an operation */
    struct flight *flight; /* its heartbeat is every operation; NULL: none */

    int64_t batch; /* what is reserved */
    int64_t seq;
    struct model_memory taken;
    char *memory;
    int32_t *token, *target;
    void *cos, *sin; /* RoPE's angles */
    int64_t slots;   /* blocks whose activations are kept at a time */
    struct block_acts *slot;
    void **kept; /* the input of every slots-th block */
    void *normf, *meanf, *rstdf;
    void *logits, *loss_row;
    int64_t head_rows; /* rows of logits held at a time */
    void *dstream, *dbranch, *datt, *dqkv;
    void *wide, *tallies,
        *copies; /* tensor_parallel.h's, as own_token, in host memory; NULL if the model is whole */
    int32_t *own_token;
    void *attention_scratch;
    char *cache;   /* a block after another: keys and values of [seq, 2 * kv_heads, head_dim] */
    int64_t known; /* tokens in it; 0 while nothing is cached */
    struct attention_ready attention;
};

/* Takes no memory yet. */
MUST_USE int model_open(const struct model_config *c, const struct kops *k,
                        const struct model_options *o, struct model **out, struct err *e);
void model_close(struct model **mp); /* NULL is fine */
/* The memory for passes of up to batch x seq tokens; before model_reserve(). */
MUST_USE int model_plan(struct model *m, int64_t batch, int64_t seq, struct model_memory *out,
                        struct err *e);
size_t model_memory_total(const struct model_memory *p);
/* The largest size of the activations of another batch; after model_plan() for a larger one. */
size_t model_activations_bytes(struct model *m, int64_t batch, int64_t seq);
/* Rows of the embedding that this rank has, with padding. */
int64_t model_vocab_rows(const struct model *m);
/* Rows whose logits are computed at a time, in a pass of so many rows. */
int64_t model_head_rows(const struct model *m, int64_t rows);
/* Allocates memory for such passes; parameters and gradients are allocated by the first call, as
 * zeros. */
MUST_USE int model_reserve(struct model *m, int64_t batch, int64_t seq, struct err *e);
/* Fills the parameters by GPT-2's rules, from the seed alone. */
MUST_USE int model_init(struct model *m, uint64_t seed, struct err *e);

/* Begins a new step: resets the losses, and the next backward pass overwrites the gradients. */
void model_begin(struct model *m);
/* Forward and backward over batch x seq tokens (host memory): gradients of scale * sum of losses
 * are added, and the losses themselves to the sum. The last of a step's passes also sums the
 * gradients over the ranks. */
void model_forward_backward(struct model *m, const int32_t *token, const int32_t *target,
                            int64_t batch, int64_t seq, double scale);
/* Forward alone; adds to the sum of losses. */
void model_measure(struct model *m, const int32_t *token, const int32_t *target, int64_t batch,
                   int64_t seq);
/* Waits for the device. */
MUST_USE int model_loss(struct model *m, double *sum, struct err *e);
/* The logits after the last of n tokens, `vocab` of them, in the model's accum type. */
MUST_USE int model_next(struct model *m, const int32_t *token, int64_t n, void *logits,
                        struct err *e);

/* The same for a caching model's sequence, now n tokens longer: at most m->seq together with
 * those before. If none are cached the tokens begin the sequence, and are read in one pass. */
MUST_USE int model_extend(struct model *m, const int32_t *token, int64_t n, void *logits,
                          struct err *e);
/* The next token begins another sequence. */
void model_forget(struct model *m);

/* Rounds the masters into the parameters: to the nearest, or with `noise` (its `first` is not
 * read) at random. For those of all ranks. */
void model_refresh(struct model *m, const struct noise *noise);

/* How elements from index `offset` on are numbered for random rounding: returns how many of the n
 * have consecutive numbers. */
int64_t model_noise(const struct model *m, int64_t offset, int64_t n, struct noise *noise);

/* Allocates device memory, zeroed; E_NOSPACE says what helps. */
MUST_USE int model_take(struct model *m, char **out, size_t size_bytes, struct err *e);
/* Writes n elements of a set of tensors (type dt), from index `offset` of the whole: those that
 * are in `held`. */
MUST_USE int model_put_run(struct model *m, char *set, struct partition held, enum dtype dt,
                           int64_t offset, int64_t n, const void *from, struct err *e);

/* Bytes of so many elements of dt, of accum. */
size_t model_bytes(const struct model *m, int64_t elements);
size_t model_accum_bytes(const struct model *m, int64_t elements);
/* Keeps the first error of an operation. */
void model_do(struct model *m, int rc);
/* Between host and device; a get waits. */
MUST_USE int model_put(struct model *m, void *to, const void *from, size_t size_bytes,
                       struct err *e);
MUST_USE int model_get(struct model *m, void *to, const void *from, size_t size_bytes,
                       struct err *e);

#endif
