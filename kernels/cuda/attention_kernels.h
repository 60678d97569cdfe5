/* attention_kernels.h - our own attention; attention_plan.c says who runs what.
 *
 * rows     every type and size: a warp a row, plain
 *
 * Causal, with shared key heads (GQA), all sums in a fixed order: each output has one owner.
 *
 * scratch  backward keeps one number a query there: attention_delta_bytes()
 */
#ifndef KERNELS_CUDA_ATTENTION_KERNELS_H
#define KERNELS_CUDA_ATTENTION_KERNELS_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline size_t attention_delta_bytes(enum dtype dt, const struct attention_shape *s)
{
    return (size_t)(s->batch * s->heads * s->seq) * dtype_bytes(dtype_accum(dt));
}

int attention_rows_forward(struct kstream *ks, enum dtype dt, void *out, void *lse, const void *qkv,
                           const struct attention_shape *s);
int attention_rows_backward(struct kstream *ks, enum dtype dt, void *dqkv, const void *dout,
                            const void *qkv, const void *out, const void *lse,
                            const struct attention_shape *s, void *delta);

#ifdef __cplusplus
}
#endif

#endif
