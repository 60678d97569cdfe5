/* cudnn_attention.h - attention by cuDNN, in bf16 and f16; plans are made once per shape and
 * kept.
 *
 * The graphs are attention.h's definition, written out operation by operation; cuDNN recognises
 * them and runs one fused kernel. Its "stats" are our lse, and its tensors are our packed qkv
 * seen through strides: nothing is copied. A build without cuDNN's headers has cudnn_none.c
 * instead, which opens nothing.
 *
 * scratch  plan() adds up what the passes need; 256-byte aligned
 * order    shapes without any_order get a backward pass whose sums have a fixed order, at the
 *          price of much scratch
 * errors   E_UNSUPPORTED from planning: another kernel must run this shape, *e says why
 */
#ifndef KERNELS_CUDA_CUDNN_ATTENTION_H
#define KERNELS_CUDA_CUDNN_ATTENTION_H

#include <cuda_runtime.h>

#include "common/base/err.h"
#include "kernels/attention.h"

struct cudnn_attention; /* a stream's */
struct cudnn_lib;
struct graph_target;
struct graph_plan;

struct cudnn_calls {
    int (*open)(cudaStream_t stream, struct cudnn_attention **out, struct err *e);
    void (*close)(struct cudnn_attention **ap);         /* NULL is fine */
    size_t (*version)(const struct cudnn_attention *a); /* 91900 is 9.19.0 */
    /* Seconds, the first time a shape comes. sm: the device's compute capability, 90 for 9.0. */
    int (*plan)(struct cudnn_attention *a, int sm, enum dtype dt, const struct attention_shape *s,
                bool for_training, size_t *scratch_bytes, struct err *e);
    /* Was that pass of the shape planned? */
    bool (*knows)(struct cudnn_attention *a, enum dtype dt, const struct attention_shape *s,
                  bool backward);
    /* Only for shapes that it knows. */
    int (*forward)(struct cudnn_attention *a, enum dtype dt, void *out, void *lse, const void *qkv,
                   const struct attention_shape *s, void *scratch);
    int (*backward)(struct cudnn_attention *a, enum dtype dt, void *dqkv, const void *dout,
                    const void *qkv, const void *out, const void *lse,
                    const struct attention_shape *s, void *scratch);
};

extern const struct cudnn_calls cudnn_attention;

/* The plan of one pass for a device that need not exist: for tests. With `out` NULL: only whether
 * there would be one. */
MUST_USE int cudnn_attention_build(const struct cudnn_lib *lib, const struct graph_target *t,
                                   enum dtype dt, const struct attention_shape *s, bool backward,
                                   struct graph_plan *out, struct err *e);

#endif
