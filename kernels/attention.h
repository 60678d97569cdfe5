/* attention.h - causal attention: out = softmax(q k^T / sqrt(head_dim), keys up to the query) v, head by head.
 *
 * With fewer key heads than query heads, each group of heads / kv_heads queries shares one (GQA). The matrix of scores is
 * never stored: forward keeps lse = log(sum(exp(score))) a row, and backward computes the scores again.
 *
 * shapes   qkv, dqkv [batch, seq, heads + 2 * kv_heads, head_dim] (q, then k, then v); out, dout [batch, seq, heads,
 *          head_dim]; lse [batch, heads, seq]; head_dim <= ATTENTION_MAX_HEAD_DIM
 * alias    nothing may overlap
 * source   Dao 2023, arXiv:2307.08691
 */
#ifndef KERNELS_ATTENTION_H
#define KERNELS_ATTENTION_H

#include "kernels/dev.h"

enum { ATTENTION_MAX_HEAD_DIM = 256 };

struct attention_shape {
    int64_t batch;
    int64_t seq;
    int64_t heads;
    int64_t kv_heads; /* divides heads */
    int64_t head_dim;
};

int attention_forward_cpu(struct kstream *ks, enum dtype dt, void *out, void *lse, const void *qkv,
                          const struct attention_shape *s);
int attention_backward_cpu(struct kstream *ks, enum dtype dt, void *dqkv, const void *dout,
                           const void *qkv, const void *out, const void *lse,
                           const struct attention_shape *s);

#endif
