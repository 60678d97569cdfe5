#include "kernels/attention.h"

#include <stdio.h>

#include "common/base/err.h"
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/twins.h"

static bool nothing(const struct attention_shape *s)
{
    return s->batch == 0 || s->seq == 0;
}

int attention_prepare_cuda(struct kstream *ks, enum dtype dt, const struct attention_shape *s,
                           bool learn, struct attention_ready *out)
{
    (void)ks;
    *out = (struct attention_ready){.scratch_bytes = learn ? attention_delta_bytes(dt, s) : 0};
    snprintf(out->by, sizeof out->by, "a warp a row");
    return s->head_dim > ATTENTION_MAX_HEAD_DIM ? E_UNSUPPORTED : 0;
}

int attention_forward_cuda(struct kstream *ks, enum dtype dt, void *out, void *lse, const void *qkv,
                           const struct attention_shape *s, void *scratch)
{
    (void)scratch;
    if (s->head_dim > ATTENTION_MAX_HEAD_DIM) {
        return E_UNSUPPORTED;
    }
    return nothing(s) ? 0 : attention_rows_forward(ks, dt, out, lse, qkv, s);
}

int attention_backward_cuda(struct kstream *ks, enum dtype dt, void *dqkv, const void *dout,
                            const void *qkv, const void *out, const void *lse,
                            const struct attention_shape *s, void *scratch)
{
    if (s->head_dim > ATTENTION_MAX_HEAD_DIM) {
        return E_UNSUPPORTED;
    }
    return nothing(s) ? 0 : attention_rows_backward(ks, dt, dqkv, dout, qkv, out, lse, s, scratch);
}
