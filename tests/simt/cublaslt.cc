#include <cublasLt.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "kernels/float16.h"
#include "tests/simt/simt.h"

static const uint64_t MARK = 0x73696d74;

struct simt_lt {
    int unused;
};

struct simt_product {
    cublasComputeType_t compute;
    int32_t transa, transb, epilogue, bias_type;
    const void *bias;
    void *aux;
    int64_t aux_ld;
};

struct simt_layout {
    cudaDataType_t type;
    int64_t rows, cols, ld;
};

struct simt_preference {
    uint32_t aligned_bytes;
};

static int runs[SIMT_PROPOSALS];
static int takes_back;
static float clock_ms;

float simt_clock_ms(void)
{
    return clock_ms;
}

void simt_clock_advance(float ms)
{
    clock_ms += ms;
}

/* --- values by type --------------------------------------------------------------------------- */

static double get(cudaDataType_t type, const void *from, int64_t i)
{
    switch (type) {
    case CUDA_R_32F:
        return static_cast<const float *>(from)[i];
    case CUDA_R_64F:
        return static_cast<const double *>(from)[i];
    case CUDA_R_16BF:
        return bf16_widen(static_cast<const uint16_t *>(from)[i]);
    case CUDA_R_16F:
        return f16_widen(static_cast<const uint16_t *>(from)[i]);
    }
    abort();
}

static void put(cudaDataType_t type, void *to, int64_t i, double x)
{
    switch (type) {
    case CUDA_R_32F:
        static_cast<float *>(to)[i] = static_cast<float>(x);
        return;
    case CUDA_R_64F:
        static_cast<double *>(to)[i] = x;
        return;
    case CUDA_R_16BF:
        static_cast<uint16_t *>(to)[i] = bf16_round(static_cast<float>(x));
        return;
    case CUDA_R_16F:
        static_cast<uint16_t *>(to)[i] = f16_round(static_cast<float>(x));
        return;
    }
    abort();
}

/* --- descriptions ----------------------------------------------------------------------------- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    *out = new simt_lt();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t lt)
{
    delete lt;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusName(cublasStatus_t)
{
    return "CUBLAS_STATUS_NOT_SUPPORTED";
}

size_t cublasLtGetVersion(void)
{
    return 1;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    *out = new simt_product();
    (*out)->compute = compute;
    (*out)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return (compute == CUBLAS_COMPUTE_64F) == (scale == CUDA_R_64F) ? CUBLAS_STATUS_SUCCESS
                                                                    : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t op)
{
    delete op;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t op,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t size_bytes)
{
    struct {
        void *at;
        size_t size_bytes;
    } field = {nullptr, 0};

    switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        field = {&op->transa, sizeof op->transa};
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        field = {&op->transb, sizeof op->transb};
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        field = {&op->epilogue, sizeof op->epilogue};
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        field = {&op->bias, sizeof op->bias};
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        field = {&op->bias_type, sizeof op->bias_type};
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        field = {&op->aux, sizeof op->aux};
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        field = {&op->aux_ld, sizeof op->aux_ld};
        break;
    }
    if (field.size_bytes != size_bytes) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(field.at, value, size_bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    *out = new simt_layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), ld};
    return ld >= static_cast<int64_t>(rows) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = new simt_preference{256};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t want)
{
    delete want;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t want,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void *value, size_t)
{
    if (which >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) {
        memcpy(&want->aligned_bytes, value, sizeof want->aligned_bytes);
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* --- algorithms ------------------------------------------------------------------------------- */

/* op(a) [m, k], op(b) [k, n], c and d [m, n]: in columns. */
static bool agree(cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                  cublasLtMatrixLayout_t d)
{
    int64_t am = op->transa ? a->cols : a->rows, ak = op->transa ? a->rows : a->cols;
    int64_t bk = op->transb ? b->cols : b->rows, bn = op->transb ? b->rows : b->cols;

    return am == d->rows && bn == d->cols && ak == bk && a->type == b->type;
}

/* gelu inside: 16 bits in and out alone, columns of the matrix aside in steps of 8. */
static bool has(cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t d)
{
    bool narrow = d->type == CUDA_R_16BF || d->type == CUDA_R_16F;
    bool wide_bias = a->type != d->type || (narrow && d->rows % 2 != 0);

    if ((op->epilogue & 4) != 0 && wide_bias) {
        return false;
    }
    return op->epilogue < 128 || (narrow && a->type == d->type && op->aux_ld % 8 == 0 &&
                                  op->aux_ld >= d->rows && op->aux != nullptr);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int room,
                                              cublasLtMatmulHeuristicResult_t *found, int *count)
{
    *count = 0;
    if (!agree(op, a, b, d)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!has(op, a, d)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (; *count < SIMT_PROPOSALS && *count < room; ++*count) {
        found[*count] = {{{static_cast<uint64_t>(*count), MARK}}, 0, CUBLAS_STATUS_SUCCESS};
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t op,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *about)
{
    about->workspaceSize = 0;
    return algo->data[1] == MARK && algo->data[0] < SIMT_PROPOSALS &&
                   algo->data[2] <= SIMT_PARTS_MAX && agree(op, a, b, d)
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_NOT_SUPPORTED;
}

static uint64_t *config_of(cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t which)
{
    return &algo->data[which == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? 2 : 3];
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t which,
                                                    const void *value, size_t size_bytes)
{
    uint32_t x;

    if (size_bytes != sizeof x) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(&x, value, sizeof x);
    *config_of(algo, which) = x;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t which,
                                                    void *value, size_t size_bytes, size_t *written)
{
    cublasLtMatmulAlgo_t copy = *algo;
    uint32_t x = static_cast<uint32_t>(*config_of(&copy, which));

    if (size_bytes != sizeof x) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(value, &x, sizeof x);
    *written = sizeof x;
    return CUBLAS_STATUS_SUCCESS;
}

void simt_take_back(int yes)
{
    takes_back = yes;
}

void simt_runs(int count[SIMT_PROPOSALS])
{
    memcpy(count, runs, sizeof runs);
    memset(runs, 0, sizeof runs);
}

/* --- multiplying ------------------------------------------------------------------------------ */

static double sigmoid_2u(double x)
{
    return 1 / (1 + exp(-2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static double slope(double x)
{
    double s = sigmoid_2u(x), du = 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);

    return s + x * s * (1 - s) * 2 * du;
}

/* One element behind its sum. */
static double finish(cublasLtMatmulDesc_t op, cudaDataType_t type, int64_t row, int64_t col,
                     double x)
{
    int64_t aside = row + col * op->aux_ld;

    if ((op->epilogue & 4) != 0) {
        x += get(static_cast<cudaDataType_t>(op->bias_type), op->bias, row);
    }
    if ((op->epilogue & 32) != 0) {
        put(type, op->aux, aside, x);
        x *= sigmoid_2u(x);
    }
    return (op->epilogue & 64) != 0 ? x * slope(get(type, op->aux, aside)) : x;
}

/* The operand as [outer, k], row by row: sums then run along memory. */
static std::vector<double> lines(const void *x, cublasLtMatrixLayout_t l, bool rows_are_k)
{
    int64_t outer = rows_are_k ? l->cols : l->rows, k = rows_are_k ? l->rows : l->cols;
    std::vector<double> out(static_cast<size_t>(outer * k));

    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < k; i++) {
            out[static_cast<size_t>(o * k + i)] =
                get(l->type, x, rows_are_k ? i + o * l->ld : o + i * l->ld);
        }
    }
    return out;
}

/* What a product was called with: it runs when its stream gets there, and descriptors may be gone
 * by then. */
struct simt_call {
    struct simt_product product;
    struct simt_layout la, lb, lc, ld;
    double one, add;
    const void *a, *b, *c;
    void *d;
    float ms;
};

static void multiply(const simt_call &x)
{
    cublasLtMatmulDesc_t op = const_cast<simt_product *>(&x.product);
    cublasLtMatrixLayout_t la = const_cast<simt_layout *>(&x.la), lb = const_cast<simt_layout *>(&x.lb);
    size_t k = static_cast<size_t>(op->transa ? la->rows : la->cols);
    std::vector<double> left = lines(x.a, la, op->transa != 0);
    std::vector<double> right = lines(x.b, lb, op->transb == 0);

    simt_clock_advance(x.ms);
    for (int64_t col = 0; col < x.ld.cols; col++) {
        for (int64_t row = 0; row < x.ld.rows; row++) {
            const double *u = &left[static_cast<size_t>(row) * k];
            const double *v = &right[static_cast<size_t>(col) * k];
            double sum = 0;

            for (size_t i = 0; i < k; i++) {
                sum += u[i] * v[i];
            }
            sum *= x.one;
            if (x.add != 0) {
                sum += x.add * get(x.lc.type, x.c, row + col * x.lc.ld);
            }
            put(x.ld.type, x.d, row + col * x.ld.ld, finish(op, x.ld.type, row, col, sum));
        }
    }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t op, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *, size_t, cudaStream_t stream)
{
    cudaDataType_t scale = op->compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F;
    simt_call x = {*op, *la, *lb, *lc, *ld, get(scale, alpha, 0), get(scale, beta, 0), a, b, c, d, 0};

    if (takes_back) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    runs[algo->data[0]]++;
    x.ms = algo->data[0] != SIMT_FASTEST ? 2.0f : algo->data[2] != SIMT_PARTS ? 1.0f : 0.5f;
    simt_enqueue_kernel(stream, [x] { multiply(x); });
    return CUBLAS_STATUS_SUCCESS;
}
