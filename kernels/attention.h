/* attention.h - causal attention: out = softmax(q k^T / sqrt(head_dim), keys up to the query) v,
 * head by head.
 *
 * With fewer key heads than query heads, each group of heads / kv_heads queries shares one (GQA).
 * The matrix of scores is never stored: forward keeps lse = log(sum(exp(score))) for each row,
 * and backward computes the scores again.
 *
 * shapes   qkv, dqkv [batch, seq, heads + 2 * kv_heads, head_dim] (q, then k, then v); out, dout
 *          [batch, seq, heads, head_dim]; lse [batch, heads, seq]; head_dim <=
 *          ATTENTION_MAX_HEAD_DIM
 * memory   attention_prepare() says how much scratch the passes need; it is free again when they
 *          have run. On CUDA it also plans the shape, which may take seconds. The scratch of the
 *          latest call serves all shapes that were prepared on the stream and, by a plainer
 *          kernel, any other of the same heads with at most as many tokens; forward alone of a
 *          shape that was not prepared needs none
 * alias    nothing may overlap
 * source   Dao 2023, arXiv:2307.08691
 */
#ifndef KERNELS_ATTENTION_H
#define KERNELS_ATTENTION_H

#include <stdbool.h>

#include "kernels/dev.h"

enum { ATTENTION_MAX_HEAD_DIM = 256 };

struct attention_shape {
    int64_t batch;
    int64_t seq;
    int64_t heads;
    int64_t kv_heads; /* divides heads */
    int64_t head_dim;
    /* backward may sum in any order: faster on CUDA, and different bits in each run */
    bool any_order;
};

struct attention_ready {
    size_t scratch_bytes;
    char by[280]; /* for people: which kernel runs it and, if it is not the fastest, why */
};

/* For both passes, or only forward when there is no training. */
int attention_prepare_cpu(struct kstream *ks, enum dtype dt, const struct attention_shape *s,
                          bool for_training, struct attention_ready *out);

int attention_forward_cpu(struct kstream *ks, enum dtype dt, void *out, void *lse, const void *qkv,
                          const struct attention_shape *s, void *scratch);
int attention_backward_cpu(struct kstream *ks, enum dtype dt, void *dqkv, const void *dout,
                           const void *qkv, const void *out, const void *lse,
                           const struct attention_shape *s, void *scratch);

#endif
