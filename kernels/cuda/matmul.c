#include "kernels/matmul.h"

#include <stdio.h>

#include "common/base/err.h"
#include "kernels/cuda/fault.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/twins.h"

/* What lies aside must have rows of so many elements. */
enum { GELU_COLUMNS = 8 };

static int run_multiply(struct kstream *ks, struct matmul_key *key, const struct matmul_operands *x)
{
    struct matmul_plan *plan;

    key->aligned_bytes = matmul_alignment(x);
    plan = matmul_plan_find(&ks->matmul, ks->stream, key, x);
    return plan == NULL ? E_UNSUPPORTED : matmul_plan_run(&ks->matmul, ks->stream, plan, x);
}

/* gelu inside the multiplication: in 16 bits alone, for cuBLASLt's tanh is not f32's. */
static int with_gelu(struct kstream *ks, struct matmul_key key, struct matmul_operands x,
                     const struct matmul_tail *t)
{
    if (key.out != key.dt || (key.dt != DT_BF16 && key.dt != DT_F16) || t->residual != NULL ||
        (t->gelu_at != NULL && t->bias != NULL) || key.n % GELU_COLUMNS != 0) {
        return E_UNSUPPORTED;
    }
    key.epilogue = t->gelu_at != NULL ? EPILOGUE_DGELU
                   : t->bias != NULL  ? EPILOGUE_BIAS_GELU
                                      : EPILOGUE_GELU;
    x.bias = t->bias;
    x.aside = t->gelu_at != NULL ? t->gelu_at : t->pre_gelu;
    return run_multiply(ks, &key, &x);
}

/* Every row of c becomes the bias: the first one, and then what is there is copied behind
 * itself. */
static int spread_bias(struct kstream *ks, const struct matmul_key *key, char *c, const void *bias)
{
    size_t row = (size_t)key->n * dtype_bytes(key->out);
    int rc = convert_cuda(ks, key->out, c, key->dt, bias, key->n);

    for (int64_t done = 1, more; rc == 0 && done < key->m; done += more) {
        more = done < key->m - done ? done : key->m - done;
        rc = mem_copy_cuda(ks, c + (size_t)done * row, c, (size_t)more * row);
    }
    return rc;
}

/* The bias where cuBLASLt has none for this shape: what is added to begins with it. */
static int onto_bias(struct kstream *ks, struct matmul_key key, struct matmul_operands x,
                     const struct matmul_tail *t)
{
    int rc = spread_bias(ks, &key, x.d, t->bias);

    if (rc == 0 && t->residual != NULL) {
        rc = add_cuda(ks, key.out, x.d, x.d, t->residual, key.m * key.n);
    }
    key.epilogue = EPILOGUE_NONE;
    key.adds = true;
    x.bias = NULL;
    x.c = x.d;
    return rc != 0 ? rc : run_multiply(ks, &key, &x);
}

/* gelu behind the multiplication; bias and residual are part of it. */
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
    rc = run_multiply(ks, &key, &x);
    if (rc == E_UNSUPPORTED && t->bias != NULL) {
        rc = onto_bias(ks, key, x, t);
    }
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
                                   .adds = (flags & (MATMUL_ADD | MATMUL_SUB)) != 0};
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
    rc = rc == E_UNSUPPORTED ? before_gelu(ks, key, x, &t) : rc;
    if (rc == E_UNSUPPORTED) {
        char said[96];

        snprintf(said, sizeof said, "that it has no product of %lld x %lld x %lld", (long long)m,
                 (long long)n, (long long)k);
        (void)fault_said("cuBLASLt", said, __func__, __LINE__);
    }
    return rc;
}

int matmul_choices_cuda(struct kstream *ks, char *text, size_t room)
{
    matmul_plans_write(&ks->matmul, text, room);
    return 0;
}

int matmul_choose_cuda(struct kstream *ks, const char *text)
{
    matmul_plans_take(&ks->matmul, text);
    return 0;
}
