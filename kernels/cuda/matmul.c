#include "kernels/matmul.h"

#include "common/base/err.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/twins.h"

static int multiply(struct kstream *ks, struct matmul_key *key, const struct matmul_operands *x)
{
    const struct matmul_plan *plan;

    key->aligned_bytes = matmul_alignment(x);
    plan = matmul_plan_find(&ks->matmul, ks->stream, key, x);
    return plan == NULL ? E_UNSUPPORTED : matmul_plan_run(&ks->matmul, ks->stream, plan, x);
}

/* gelu inside the multiplication: in 16 bits alone, for cuBLASLt's tanh is not f32's. */
static int with_gelu(struct kstream *ks, struct matmul_key key, struct matmul_operands x,
                     const struct matmul_tail *t)
{
    if (key.out != key.dt || (key.dt != DT_BF16 && key.dt != DT_F16) || t->residual != NULL ||
        (t->gelu_at != NULL && t->bias != NULL)) {
        return E_UNSUPPORTED;
    }
    key.epilogue = t->gelu_at != NULL ? EPILOGUE_DGELU
                   : t->bias != NULL  ? EPILOGUE_BIAS_GELU
                                      : EPILOGUE_GELU;
    x.bias = t->bias;
    x.aside = t->gelu_at != NULL ? t->gelu_at : t->pre_gelu;
    return multiply(ks, &key, &x);
}

/* gelu behind the multiplication; bias and residual are always part of it. */
static int before_gelu(struct kstream *ks, struct matmul_key key, struct matmul_operands x,
                       const struct matmul_tail *t)
{
    void *c = x.d;
    int rc;

    key.epilogue = t->bias != NULL ? EPILOGUE_BIAS : EPILOGUE_NONE;
    key.adds |= t->residual != NULL;
    x.bias = t->bias;
    x.d = t->pre_gelu != NULL ? t->pre_gelu : c;
    x.c = t->residual != NULL ? t->residual : x.d;
    rc = multiply(ks, &key, &x);
    if (rc == 0 && t->pre_gelu != NULL) {
        rc = gelu_forward_cuda(ks, key.out, c, t->pre_gelu, key.m * key.n);
    }
    if (rc == 0 && t->gelu_at != NULL) {
        rc = gelu_backward_cuda(ks, key.out, c, c, t->gelu_at, key.m * key.n);
    }
    return rc;
}

int matmul_cuda(struct kstream *ks, enum dtype dt, enum dtype out, void *c, const void *a,
                const void *b, int64_t m, int64_t n, int64_t k, unsigned flags,
                const struct matmul_tail *tail)
{
    const struct matmul_tail t = tail != NULL ? *tail : (struct matmul_tail){0};
    const struct matmul_operands x = {.d = c, .a = a, .b = b, .c = c};
    const struct matmul_key key = {.m = m,
                                   .n = n,
                                   .k = k,
                                   .dt = dt,
                                   .out = out,
                                   .flags = flags,
                                   .adds = (flags & MATMUL_ADD) != 0};
    int rc = E_UNSUPPORTED;

    if (out != dt && out != dtype_accum(dt)) {
        return E_UNSUPPORTED;
    }
    if (m == 0 || n == 0) {
        return 0;
    }
    if (t.pre_gelu != NULL || t.gelu_at != NULL) {
        rc = with_gelu(ks, key, x, &t);
    }
    return rc == E_UNSUPPORTED ? before_gelu(ks, key, x, &t) : rc;
}
