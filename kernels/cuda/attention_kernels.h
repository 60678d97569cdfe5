/* attention_kernels.h - our own attention, in two forms; cudnn_attention.h has the third.
 *
 * tiles    bf16 and f16, head_dim a multiple of 8 up to 128: blocks of queries and keys in shared
 *          memory, tensor cores
 * rows     every other type and size: a warp a row, plain
 *
 * Both are causal, share key heads (GQA) and sum in a fixed order: each output has one owner.
 *
 * scratch  backward keeps one number a query there: attention_delta_bytes()
 */
#ifndef KERNELS_CUDA_ATTENTION_KERNELS_H
#define KERNELS_CUDA_ATTENTION_KERNELS_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline bool attention_has_tiles(enum dtype dt, const struct attention_shape *s)
{
    return (dt == DT_BF16 || dt == DT_F16) && s->head_dim % 8 == 0 && s->head_dim <= 128;
}

static inline size_t attention_delta_bytes(enum dtype dt, const struct attention_shape *s)
{
    return (size_t)(s->batch * s->heads * s->seq) * (dt == DT_F64 ? sizeof(double) : sizeof(float));
}

int attention_tiles_forward(struct kstream *ks, enum dtype dt, void *out, void *lse,
                            const void *qkv, const struct attention_shape *s);
int attention_tiles_backward(struct kstream *ks, enum dtype dt, void *dqkv, const void *dout,
                             const void *qkv, const void *out, const void *lse,
                             const struct attention_shape *s, void *delta);
int attention_rows_forward(struct kstream *ks, enum dtype dt, void *out, void *lse, const void *qkv,
                           const struct attention_shape *s);
int attention_rows_backward(struct kstream *ks, enum dtype dt, void *dqkv, const void *dout,
                            const void *qkv, const void *out, const void *lse,
                            const struct attention_shape *s, void *delta);

#ifdef __cplusplus
}
#endif

#endif
