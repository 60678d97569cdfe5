/* Does cuDNN compute what we compute? Asked once for each kind of shape, when it is prepared. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/twins.h"
#include "kernels/float16.h"

enum { BATCH = 2, SEQ = 256, KV_HEADS = 2 };

/* Two roundings to 16 bits apart, and the sums' orders. */
static double bound_of(enum dtype dt)
{
    return dt == DT_BF16 ? 2e-2 : 3e-3;
}

/* Everything both kernels read and write, in one piece of device memory. */
struct trial {
    struct attention_shape s;
    size_t qkv_bytes, out_bytes, lse_bytes, scratch_bytes;
    char *memory, *qkv, *dout, *out[2], *lse[2], *dqkv[2], *scratch; /* [0] is cuDNN's */
};

static size_t layout(struct trial *t)
{
    size_t used = 0;
    char **piece[] = {&t->qkv,    &t->dout,    &t->out[0],  &t->out[1], &t->lse[0],
                      &t->lse[1], &t->dqkv[0], &t->dqkv[1], &t->scratch};
    const size_t size[] = {t->qkv_bytes, t->out_bytes, t->out_bytes, t->out_bytes,    t->lse_bytes,
                           t->lse_bytes, t->qkv_bytes, t->qkv_bytes, t->scratch_bytes};

    for (size_t i = 0; i < ARRAY_LEN(piece); i++) {
        *piece[i] = t->memory == NULL ? NULL : t->memory + used;
        used += (size[i] + 255) / 256 * 256;
    }
    return used;
}

static uint16_t narrow_value(enum dtype dt, float x)
{
    return dt == DT_BF16 ? bf16_round(x) : f16_round(x);
}

static double widen_value(enum dtype dt, uint16_t x)
{
    return (double)(dt == DT_BF16 ? bf16_widen(x) : f16_widen(x));
}

/* In (-size, size), the same numbers in every run. */
static int put_random(struct kstream *ks, enum dtype dt, char *to, size_t size_bytes, float size)
{
    size_t n = size_bytes / sizeof(uint16_t);
    uint16_t *host = malloc(size_bytes);
    uint64_t seed = n;
    int rc = E_NOSPACE;

    for (size_t i = 0; host != NULL && i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        host[i] = narrow_value(dt, size * ((float)(seed >> 40) / (float)(1 << 23) - 1));
    }
    if (host != NULL) {
        rc = mem_put_cuda(ks, to, host, size_bytes);
    }
    free(host);
    return rc;
}

/* |a - b| / |b| over a tensor of 16-bit values, or of f32. */
static int distance(struct kstream *ks, enum dtype dt, char *const pair[2], size_t size_bytes,
                    double *out)
{
    size_t n = size_bytes / dtype_bytes(dt);
    char *a = malloc(size_bytes), *b = malloc(size_bytes);
    int rc = a == NULL || b == NULL ? E_NOSPACE : 0;
    double diff = 0, ref = 0;

    rc = rc != 0 ? rc : mem_get_cuda(ks, a, pair[0], size_bytes);
    rc = rc != 0 ? rc : mem_get_cuda(ks, b, pair[1], size_bytes);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        double x, y;

        if (dt == DT_F32) {
            x = (double)((float *)(void *)a)[i];
            y = (double)((float *)(void *)b)[i];
        } else {
            x = widen_value(dt, ((uint16_t *)(void *)a)[i]);
            y = widen_value(dt, ((uint16_t *)(void *)b)[i]);
        }
        diff += (x - y) * (x - y);
        ref += y * y;
    }
    *out = sqrt(diff / ref);
    free(a);
    free(b);
    return rc;
}

static int run_attention_trial(struct kstream *ks, enum dtype dt, const struct trial *t,
                               bool for_training)
{
    struct cudnn_attention *a = ks->attention.cudnn;
    int rc = put_random(ks, dt, t->qkv, t->qkv_bytes, 2);

    rc = rc != 0 ? rc : put_random(ks, dt, t->dout, t->out_bytes, 1);
    rc = rc != 0 ? rc
                 : cudnn_attention.forward(a, dt, t->out[0], t->lse[0], t->qkv, &t->s, t->scratch);
    rc = rc != 0 ? rc : attention_tiles_forward(ks, dt, t->out[1], t->lse[1], t->qkv, &t->s);
    if (rc == 0 && for_training) {
        rc = cudnn_attention.backward(a, dt, t->dqkv[0], t->dout, t->qkv, t->out[1], t->lse[1],
                                      &t->s, t->scratch);
        rc = rc != 0 ? rc
                     : attention_tiles_backward(ks, dt, t->dqkv[1], t->dout, t->qkv, t->out[1],
                                                t->lse[1], &t->s, t->scratch);
    }
    return rc;
}

static int compare_attention_runs(struct kstream *ks, enum dtype dt, const struct trial *t,
                                  bool for_training, struct err *e)
{
    double out = 0, lse = 0, dqkv = 0, bound = bound_of(dt);
    int rc = distance(ks, dt, t->out, t->out_bytes, &out);

    rc = rc != 0 ? rc : distance(ks, DT_F32, t->lse, t->lse_bytes, &lse);
    if (rc == 0 && for_training) {
        rc = distance(ks, dt, t->dqkv, t->qkv_bytes, &dqkv);
    }
    if (rc != 0) {
        return err_set(e, rc, "cuDNN's attention failed");
    }
    if (!(out <= bound && lse <= bound && dqkv <= bound)) { /* a NaN is no agreement */
        return err_set(e, E_CORRUPT,
                       "cuDNN's attention differs from the reference: output by %.1e, lse by %.1e, "
                       "gradients by %.1e",
                       out, lse, dqkv);
    }
    return 0;
}

int attention_check(struct kstream *ks, enum dtype dt, const struct attention_shape *s,
                    bool for_training, struct err *e)
{
    int64_t heads = KV_HEADS * (s->heads / s->kv_heads), d = s->head_dim;
    struct trial t = {
        .s = {BATCH, SEQ, heads, KV_HEADS, d, s->any_order},
        .qkv_bytes = (size_t)(BATCH * SEQ * (heads + 2 * KV_HEADS) * d) * sizeof(uint16_t),
        .out_bytes = (size_t)(BATCH * SEQ * heads * d) * sizeof(uint16_t),
        .lse_bytes = (size_t)(BATCH * SEQ * heads) * sizeof(float),
    };
    void *memory = NULL;
    int rc = cudnn_attention.plan(ks->attention.cudnn, ks->sm, dt, &t.s, for_training,
                                  &t.scratch_bytes, e);

    if (rc != 0) {
        return rc;
    }
    if (t.scratch_bytes < attention_delta_bytes(dt, &t.s)) {
        t.scratch_bytes = attention_delta_bytes(dt, &t.s);
    }
    rc = mem_alloc_cuda(&memory, layout(&t));
    if (rc != 0) {
        return err_set(e, rc, "not enough memory to verify cuDNN's attention");
    }
    t.memory = memory;
    layout(&t);
    rc = run_attention_trial(ks, dt, &t, for_training);
    rc = rc != 0 ? err_set(e, rc, "cuDNN's attention failed")
                 : compare_attention_runs(ks, dt, &t, for_training, e);
    mem_free_cuda(memory);
    return rc;
}
