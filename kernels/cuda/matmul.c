#include "kernels/matmul.h"

#include <string.h>

#include "common/base/err.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/twins.h"

/* cuBLASLt counts in columns. A row-major [r, c] matrix is a column-major [c, r] one, so c = op(a) op(b) is asked for as
 * its transpose: op(b)^T op(a)^T, the operands swapped and each read as it lies. */

static cudaDataType_t type_of(enum dtype dt)
{
    switch (dt) {
    case DT_F32:
        return CUDA_R_32F;
    case DT_F64:
        return CUDA_R_64F;
    case DT_BF16:
        return CUDA_R_16BF;
    case DT_F16:
        return CUDA_R_16F;
    }
    return CUDA_R_32F;
}

/* A stored row-major [rows, cols] matrix. */
static cublasStatus_t layout(cublasLtMatrixLayout_t *out, enum dtype dt, int64_t rows, int64_t cols)
{
    return cublasLtMatrixLayoutCreate(out, type_of(dt), (uint64_t)cols, (uint64_t)rows, cols);
}

static cublasStatus_t set(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t which,
                          int32_t value)
{
    return cublasLtMatmulDescSetAttribute(op, which, &value, sizeof value);
}

static cublasStatus_t describe(struct plan *p)
{
    int ta = (p->flags & MATMUL_TA) != 0, tb = (p->flags & MATMUL_TB) != 0;
    cublasStatus_t rc =
        cublasLtMatmulDescCreate(&p->op, p->dt == DT_F64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 type_of(dtype_accum(p->dt)));

    rc = rc != 0 ? rc : set(p->op, CUBLASLT_MATMUL_DESC_TRANSA, tb ? CUBLAS_OP_T : CUBLAS_OP_N);
    rc = rc != 0 ? rc : set(p->op, CUBLASLT_MATMUL_DESC_TRANSB, ta ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (rc == 0 && p->with_bias) {
        rc = set(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
        rc = rc != 0 ? rc : set(p->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p->dt));
    }
    rc = rc != 0 ? rc : layout(&p->b, p->dt, tb ? p->n : p->k, tb ? p->k : p->n);
    rc = rc != 0 ? rc : layout(&p->a, p->dt, ta ? p->k : p->m, ta ? p->m : p->k);
    rc = rc != 0 ? rc : layout(&p->c, p->out, p->m, p->n);
    return rc;
}

/* The first heuristic's algorithm; split-K only with a reduction in a fixed order. */
static cublasStatus_t choose(struct kstream *ks, struct plan *p)
{
    const size_t room = WORKSPACE_BYTES;
    const uint32_t ordered =
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    cublasLtMatmulPreference_t want = NULL;
    cublasLtMatmulHeuristicResult_t found;
    cublasStatus_t rc = cublasLtMatmulPreferenceCreate(&want);
    int n = 0;

    rc = rc != 0 ? rc
                 : cublasLtMatmulPreferenceSetAttribute(
                       want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room);
    rc = rc != 0 ? rc
                 : cublasLtMatmulPreferenceSetAttribute(
                       want, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &ordered, sizeof ordered);
    rc = rc != 0 ? rc
                 : cublasLtMatmulAlgoGetHeuristic(ks->lt, p->op, p->b, p->a, p->c, p->c, want, 1,
                                                  &found, &n);
    if (want != NULL) {
        cublasLtMatmulPreferenceDestroy(want);
    }
    if (rc == 0 && n == 0) {
        rc = CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (rc == 0) {
        p->algo = found.algo;
    }
    return rc;
}

static void forget(struct plan *p)
{
    if (p->op != NULL) {
        cublasLtMatmulDescDestroy(p->op);
    }
    if (p->a != NULL) {
        cublasLtMatrixLayoutDestroy(p->a);
    }
    if (p->b != NULL) {
        cublasLtMatrixLayoutDestroy(p->b);
    }
    if (p->c != NULL) {
        cublasLtMatrixLayoutDestroy(p->c);
    }
}

static struct plan *find_plan(struct kstream *ks, const struct plan *key)
{
    struct plan *p;

    for (int i = 0; i < ks->plans; i++) {
        p = &ks->plan[i];
        if (p->m == key->m && p->n == key->n && p->k == key->k && p->flags == key->flags &&
            p->with_bias == key->with_bias && p->dt == key->dt && p->out == key->out) {
            return p;
        }
    }
    /* Full: no model has so many shapes, but evaluation and tests may; the last place is used again. */
    if (ks->plans == PLANS_MAX) {
        forget(&ks->plan[--ks->plans]);
    }
    p = &ks->plan[ks->plans];
    *p = *key;
    if (describe(p) != CUBLAS_STATUS_SUCCESS || choose(ks, p) != CUBLAS_STATUS_SUCCESS) {
        forget(p);
        return NULL;
    }
    ks->plans++;
    return p;
}

/* d = op(a) op(b) + bias + beta * c */
static int multiply(struct kstream *ks, const struct plan *key, void *d, const void *a,
                    const void *b, const void *bias, const void *c, int beta)
{
    const float one_f = 1, beta_f = (float)beta;
    const double one_d = 1, beta_d = beta;
    const bool f64 = key->dt == DT_F64;
    struct plan *p = find_plan(ks, key);

    if (p == NULL) {
        return E_UNSUPPORTED;
    }
    if (bias != NULL &&
        cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                       sizeof bias) != CUBLAS_STATUS_SUCCESS) {
        return E_CUDA;
    }
    return cublasLtMatmul(ks->lt, p->op, f64 ? (const void *)&one_d : &one_f, b, p->b, a, p->a,
                          f64 ? (const void *)&beta_d : &beta_f, c, p->c, d, p->c, &p->algo,
                          ks->workspace, WORKSPACE_BYTES, ks->stream) == CUBLAS_STATUS_SUCCESS
               ? 0
               : E_CUDA;
}

/* Bias and residual are part of the multiplication; gelu runs behind it. */
int matmul_cuda(struct kstream *ks, enum dtype dt, enum dtype out, void *c, const void *a,
                const void *b, int64_t m, int64_t n, int64_t k, unsigned flags,
                const struct matmul_tail *tail)
{
    const struct matmul_tail t = tail != NULL ? *tail : (struct matmul_tail){0};
    const struct plan key = {
        .dt = dt, .out = out, .m = m, .n = n, .k = k, .flags = flags, .with_bias = t.bias != NULL};
    void *sums = t.pre_gelu != NULL ? t.pre_gelu : c;
    int rc;

    if (out != dt && out != dtype_accum(dt)) {
        return E_UNSUPPORTED;
    }
    if (m == 0 || n == 0) {
        return 0;
    }
    rc = multiply(ks, &key, sums, a, b, t.bias, t.residual != NULL ? t.residual : sums,
                  t.residual != NULL || (flags & MATMUL_ADD) != 0);
    if (rc == 0 && t.pre_gelu != NULL) {
        rc = gelu_forward_cuda(ks, out, c, sums, m * n);
    }
    if (rc == 0 && t.gelu_at != NULL) {
        rc = gelu_backward_cuda(ks, out, c, c, t.gelu_at, m * n);
    }
    return rc;
}
