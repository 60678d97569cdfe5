/* attention_next.h - attention of one more token: its queries over the cached keys and values of
 * all tokens before it.
 *
 *     out = softmax(q k^T / sqrt(head_dim)) v, head by head, over the first `keys` rows of the
 *     cache, the token's own row among them
 *
 * It computes what attention_forward() computes for the last of `keys` tokens, at the cost of one
 * row instead of all.
 *
 *
 * shapes   qkv [batch, heads + 2 * kv_heads, head_dim], of which the queries are read; cache
 *          [batch, seq, 2 * kv_heads, head_dim], k then v as in attention.h's rows, 1 <= keys <=
 *          seq of them filled; out [batch, heads, head_dim]
 * alias    nothing may overlap
 * cost     one read of the filled part of the cache, once a group of heads at best
 */
#ifndef KERNELS_ATTENTION_NEXT_H
#define KERNELS_ATTENTION_NEXT_H

#include "kernels/attention.h"

int attention_next_cpu(struct kstream *ks, enum dtype dt, void *out, const void *qkv,
                       const void *cache, const struct attention_shape *s, int64_t keys);

#endif
