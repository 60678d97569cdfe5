#include "kernels/cuda/attention_plan.h"

#include <stdio.h>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/twins.h"

void attention_choice_fini(struct attention_choice *c)
{
    if (c->cudnn != NULL) {
        cudnn_attention.close(&c->cudnn);
    }
}

/* --- cuDNN: opened once, looked at once for each kind of shape -------------------------------- */

static bool seen_before(const struct attention_choice *c, const struct attention_kind *k)
{
    for (int i = 0; i < c->kinds; i++) {
        const struct attention_kind *x = &c->seen[i];

        if (x->dt == k->dt && x->head_dim == k->head_dim && x->group == k->group &&
            x->any_order == k->any_order && (x->for_training || !k->for_training)) {
            return true;
        }
    }
    return false;
}

/* 0 when cuDNN may run shapes like this one. When it computes something else it is not used again
 * at all. */
static int trusted(struct kstream *ks, enum dtype dt, const struct attention_shape *s,
                   bool for_training, struct err *e)
{
    struct attention_choice *c = &ks->attention;
    const struct attention_kind kind = {dt, s->head_dim, s->heads / s->kv_heads, s->any_order,
                                        for_training};
    int rc;

    if (seen_before(c, &kind)) {
        return 0;
    }
    rc = attention_check(ks, dt, s, for_training, e);
    if (rc != 0 && rc != E_UNSUPPORTED) {
        c->why_not = *e;
        cudnn_attention.close(&c->cudnn);
    }
    if (rc == 0 && c->kinds < ATTENTION_KINDS_MAX) {
        c->seen[c->kinds++] = kind;
    }
    return rc;
}

static int by_cudnn(struct kstream *ks, enum dtype dt, const struct attention_shape *s,
                    bool for_training, struct attention_ready *out, struct err *e)
{
    struct attention_choice *c = &ks->attention;
    size_t room = 0;
    int rc;

    if (c->cudnn == NULL && c->why_not.code == 0) {
        (void)cudnn_attention.open(ks->stream, &c->cudnn, &c->why_not);
    }
    if (c->cudnn == NULL) {
        *e = c->why_not;
        return E_UNSUPPORTED;
    }
    rc = trusted(ks, dt, s, for_training, e);
    if (c->cudnn != NULL && rc == 0) {
        rc = cudnn_attention.plan(c->cudnn, ks->sm, dt, s, for_training, &room, e);
    }
    out->scratch_bytes = room > out->scratch_bytes ? room : out->scratch_bytes;
    return rc;
}

static void name_cudnn(const struct cudnn_attention *a, struct attention_ready *out)
{
    size_t v = cudnn_attention.version(a);

    snprintf(out->by, sizeof out->by, "cuDNN %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

/* --- the operations --------------------------------------------------------------------------- */

static bool planned(struct kstream *ks, enum dtype dt, const struct attention_shape *s,
                    bool backward)
{
    return ks->attention.cudnn != NULL &&
           cudnn_attention.knows(ks->attention.cudnn, dt, s, backward);
}

int attention_prepare_cuda(struct kstream *ks, enum dtype dt, const struct attention_shape *s,
                           bool for_training, struct attention_ready *out)
{
    struct err why = {0};

    *out =
        (struct attention_ready){.scratch_bytes = for_training ? attention_delta_bytes(dt, s) : 0};
    if (s->head_dim > ATTENTION_MAX_HEAD_DIM) {
        return E_UNSUPPORTED;
    }
    if (!attention_has_tiles(dt, s)) {
        snprintf(
            out->by, sizeof out->by,
            "one warp per row: tensor cores need bf16 or f16 and heads of a multiple of 8 up to "
            "128");
    } else if (by_cudnn(ks, dt, s, for_training, out, &why) == 0) {
        name_cudnn(ks->attention.cudnn, out);
    } else {
        snprintf(out->by, sizeof out->by, "own tiled kernels%s: %s",
                 planned(ks, dt, s, false) ? ", backward" : "", why.text);
    }
    return 0;
}

static bool is_empty_attention(const struct attention_shape *s)
{
    return s->batch == 0 || s->seq == 0;
}

int attention_forward_cuda(struct kstream *ks, enum dtype dt, void *out, void *lse, const void *qkv,
                           const struct attention_shape *s, void *scratch)
{
    if (s->head_dim > ATTENTION_MAX_HEAD_DIM) {
        return E_UNSUPPORTED;
    }
    if (is_empty_attention(s)) {
        return 0;
    }
    if (planned(ks, dt, s, false)) {
        return cudnn_attention.forward(ks->attention.cudnn, dt, out, lse, qkv, s, scratch);
    }
    return attention_has_tiles(dt, s) ? attention_tiles_forward(ks, dt, out, lse, qkv, s)
                                      : attention_rows_forward(ks, dt, out, lse, qkv, s);
}

int attention_backward_cuda(struct kstream *ks, enum dtype dt, void *dqkv, const void *dout,
                            const void *qkv, const void *out, const void *lse,
                            const struct attention_shape *s, void *scratch)
{
    if (s->head_dim > ATTENTION_MAX_HEAD_DIM) {
        return E_UNSUPPORTED;
    }
    if (is_empty_attention(s)) {
        return 0;
    }
    if (planned(ks, dt, s, true)) {
        return cudnn_attention.backward(ks->attention.cudnn, dt, dqkv, dout, qkv, out, lse, s,
                                        scratch);
    }
    return attention_has_tiles(dt, s)
               ? attention_tiles_backward(ks, dt, dqkv, dout, qkv, out, lse, s, scratch)
               : attention_rows_backward(ks, dt, dqkv, dout, qkv, out, lse, s, scratch);
}
