#include "kernels/cuda/matmul_plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "kernels/cuda/fault.h"

enum { PROPOSALS = 16, TIMED_RUNS = 4, ALIGNMENT_MAX = 256 };

/* Of a result that is small beside its sums, other splits of these are tried beside what is
 * proposed. */
enum {
    SPLIT_PROPOSALS = 3,
    SPLITS = 8,
    SPLIT_DEPTH = 4096,
    CANDIDATES = PROPOSALS + SPLIT_PROPOSALS * SPLITS
};
#define SPLIT_ELEMENTS ((int64_t)8 << 20) /* 256 tiles of 128 x 256: two for each multiprocessor */

int matmul_plans_init(struct matmul_plans *p)
{
    cublasStatus_t rc = cublasLtCreate(&p->lt);

    p->worth_measuring = 2e9; /* some microseconds: what is smaller is bound by other things */
    if (rc != CUBLAS_STATUS_SUCCESS) {
        return fault_said("cuBLASLt", cublasLtGetStatusName(rc), __func__, __LINE__);
    }
    return TRY_CUDA(cudaMalloc(&p->workspace, MATMUL_WORKSPACE_BYTES));
}

static void forget_matmul_plan(struct matmul_plan *plan)
{
    if (plan->op != NULL) {
        cublasLtMatmulDescDestroy(plan->op);
    }
    if (plan->a != NULL) {
        cublasLtMatrixLayoutDestroy(plan->a);
    }
    if (plan->b != NULL) {
        cublasLtMatrixLayoutDestroy(plan->b);
    }
    if (plan->c != NULL) {
        cublasLtMatrixLayoutDestroy(plan->c);
    }
    plan->op = NULL;
    plan->a = plan->b = plan->c = NULL;
}

void matmul_plans_fini(struct matmul_plans *p)
{
    while (p->count > 0) {
        forget_matmul_plan(&p->plan[--p->count]);
    }
    cudaFree(p->workspace);
    p->workspace = NULL;
    if (p->lt != NULL) {
        cublasLtDestroy(p->lt);
        p->lt = NULL;
    }
}

uint32_t matmul_alignment(const struct matmul_operands *x)
{
    uintptr_t all = (uintptr_t)x->a | (uintptr_t)x->b | (uintptr_t)x->c | (uintptr_t)x->d |
                    (uintptr_t)x->bias | (uintptr_t)x->aside | ALIGNMENT_MAX;

    return (uint32_t)(all & -all);
}

/* --- describing ------------------------------------------------------------------------------- */

/* cuBLASLt counts in columns. A row-major [r, c] matrix is a column-major [c, r] one, so d = op(a)
 * op(b) is asked for as its transpose: op(b)^T op(a)^T, the operands swapped and each read as it
 * lies. */

static cudaDataType_t cuda_type_of(enum dtype dt)
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
    return cublasLtMatrixLayoutCreate(out, cuda_type_of(dt), (uint64_t)cols, (uint64_t)rows, cols);
}

static cublasStatus_t set_matmul_attribute(cublasLtMatmulDesc_t op,
                                           cublasLtMatmulDescAttributes_t which, int32_t value)
{
    return cublasLtMatmulDescSetAttribute(op, which, &value, sizeof value);
}

static cublasLtEpilogue_t epilogue_of(enum matmul_epilogue e)
{
    switch (e) {
    case EPILOGUE_NONE:
        return CUBLASLT_EPILOGUE_DEFAULT;
    case EPILOGUE_BIAS:
        return CUBLASLT_EPILOGUE_BIAS;
    case EPILOGUE_GELU:
        return CUBLASLT_EPILOGUE_GELU_AUX;
    case EPILOGUE_BIAS_GELU:
        return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case EPILOGUE_DGELU:
        return CUBLASLT_EPILOGUE_DGELU;
    }
    return CUBLASLT_EPILOGUE_DEFAULT;
}

static cublasStatus_t describe_epilogue(const struct matmul_plan *plan)
{
    const struct matmul_key *k = &plan->key;
    cublasStatus_t rc =
        set_matmul_attribute(plan->op, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(k->epilogue));

    if (rc == 0 && (k->epilogue == EPILOGUE_BIAS || k->epilogue == EPILOGUE_BIAS_GELU)) {
        rc = set_matmul_attribute(plan->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                  cuda_type_of(k->dt));
    }
    if (rc == 0 && k->epilogue >= EPILOGUE_GELU) {
        rc = cublasLtMatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &k->n,
                                            sizeof k->n);
    }
    return rc;
}

static cublasStatus_t describe_matmul(struct matmul_plan *plan)
{
    const struct matmul_key *k = &plan->key;
    int ta = (k->flags & MATMUL_TA) != 0, tb = (k->flags & MATMUL_TB) != 0;
    cublasStatus_t rc = cublasLtMatmulDescCreate(
        &plan->op, k->dt == DT_F64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
        cuda_type_of(dtype_accum(k->dt)));

    rc = rc != 0 ? rc
                 : set_matmul_attribute(plan->op, CUBLASLT_MATMUL_DESC_TRANSA,
                                        tb ? CUBLAS_OP_T : CUBLAS_OP_N);
    rc = rc != 0 ? rc
                 : set_matmul_attribute(plan->op, CUBLASLT_MATMUL_DESC_TRANSB,
                                        ta ? CUBLAS_OP_T : CUBLAS_OP_N);
    rc = rc != 0 ? rc : describe_epilogue(plan);
    rc = rc != 0 ? rc : layout(&plan->b, k->dt, tb ? k->n : k->k, tb ? k->k : k->n);
    rc = rc != 0 ? rc : layout(&plan->a, k->dt, ta ? k->k : k->m, ta ? k->m : k->k);
    rc = rc != 0 ? rc : layout(&plan->c, k->out, k->m, k->n);
    return rc;
}

/* Pointers of the epilogue belong to the description: they change with every call. */
static cublasStatus_t point(const struct matmul_plan *plan, const struct matmul_operands *x)
{
    enum matmul_epilogue e = plan->key.epilogue;
    cublasStatus_t rc = CUBLAS_STATUS_SUCCESS;

    if (e == EPILOGUE_BIAS || e == EPILOGUE_BIAS_GELU) {
        rc = cublasLtMatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &x->bias,
                                            sizeof x->bias);
    }
    if (rc == 0 && e >= EPILOGUE_GELU) {
        rc = cublasLtMatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                            &x->aside, sizeof x->aside);
    }
    return rc;
}

/* --- choosing --------------------------------------------------------------------------------- */

static cublasStatus_t prefer(cublasLtMatmulPreference_t want, uint32_t aligned_bytes)
{
    static const cublasLtMatmulPreferenceAttributes_t alignment[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const size_t room = MATMUL_WORKSPACE_BYTES;
    const uint32_t ordered =
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    cublasStatus_t rc = cublasLtMatmulPreferenceSetAttribute(
        want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room);

    rc = rc != 0 ? rc
                 : cublasLtMatmulPreferenceSetAttribute(
                       want, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &ordered, sizeof ordered);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(alignment); i++) {
        rc = cublasLtMatmulPreferenceSetAttribute(want, alignment[i], &aligned_bytes,
                                                  sizeof aligned_bytes);
    }
    return rc;
}

/* The number of proposals, the likely best one first; 0 when there is none. */
static int propose(const struct matmul_plans *p, const struct matmul_plan *plan,
                   cublasLtMatmulHeuristicResult_t found[PROPOSALS])
{
    cublasLtMatmulPreference_t want = NULL;
    cublasStatus_t rc = cublasLtMatmulPreferenceCreate(&want);
    int n = 0, good = 0;

    rc = rc != 0 ? rc : prefer(want, plan->key.aligned_bytes);
    rc = rc != 0 ? rc
                 : cublasLtMatmulAlgoGetHeuristic(p->lt, plan->op, plan->b, plan->a, plan->c,
                                                  plan->c, want, PROPOSALS, found, &n);
    if (want != NULL) {
        cublasLtMatmulPreferenceDestroy(want);
    }
    for (int i = 0; rc == 0 && i < n; i++) {
        if (found[i].state == CUBLAS_STATUS_SUCCESS) {
            found[good++] = found[i];
        }
    }
    return good;
}

static cublasStatus_t run_matmul_algo(const struct matmul_plans *p, cudaStream_t stream,
                                      const struct matmul_plan *plan,
                                      const cublasLtMatmulAlgo_t *algo,
                                      const struct matmul_operands *x)
{
    const double alpha_d = (plan->key.flags & MATMUL_SUB) != 0 ? -1 : 1, beta_d = plan->key.adds;
    const float alpha_f = (float)alpha_d, beta_f = (float)beta_d;
    bool f64 = plan->key.dt == DT_F64;
    cublasStatus_t rc = point(plan, x);

    return rc != 0 ? rc
                   : cublasLtMatmul(p->lt, plan->op, f64 ? (const void *)&alpha_d : &alpha_f, x->b,
                                    plan->b, x->a, plan->a, f64 ? (const void *)&beta_d : &beta_f,
                                    x->c, plan->c, x->d, plan->c, algo, p->workspace,
                                    MATMUL_WORKSPACE_BYTES, stream);
}

/* The fastest of some runs behind one that warms up; infinite when it does not run. */
static float time_matmul_algo(const struct matmul_plans *p, cudaStream_t stream,
                              const struct matmul_plan *plan, const cublasLtMatmulAlgo_t *algo,
                              const struct matmul_operands *x, cudaEvent_t begin, cudaEvent_t end)
{
    float best_ms = HUGE_VALF, ms;

    if (run_matmul_algo(p, stream, plan, algo, x) != CUBLAS_STATUS_SUCCESS) {
        return HUGE_VALF;
    }
    for (int i = 0; i < TIMED_RUNS; i++) {
        if (cudaEventRecord(begin, stream) != cudaSuccess ||
            run_matmul_algo(p, stream, plan, algo, x) != CUBLAS_STATUS_SUCCESS ||
            cudaEventRecord(end, stream) != cudaSuccess ||
            cudaEventSynchronize(end) != cudaSuccess ||
            cudaEventElapsedTime(&ms, begin, end) != cudaSuccess) {
            return HUGE_VALF;
        }
        best_ms = ms < best_ms ? ms : best_ms;
    }
    return best_ms;
}

/* Which of the proposals is the fastest; -1 when that cannot be known. */
static int fastest(const struct matmul_plans *p, cudaStream_t stream,
                   const struct matmul_plan *plan, const cublasLtMatmulHeuristicResult_t *found,
                   int n, const struct matmul_operands *x)
{
    struct matmul_operands trial = *x;
    cudaEvent_t begin = NULL, end = NULL;
    float best_ms = HUGE_VALF;
    void *aside = NULL;
    int best = -1;

    /* What is added up must be added once: such runs go elsewhere. */
    if (x->c == x->d && plan->key.adds) {
        size_t room = (size_t)(plan->key.m * plan->key.n) * dtype_bytes(plan->key.out);

        if (cudaMalloc(&aside, room) != cudaSuccess) {
            (void)cudaGetLastError();
            return -1;
        }
        (void)cudaMemsetAsync(aside, 0, room, stream);
        trial.c = trial.d = aside;
    }
    if (cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess) {
        for (int i = 0; i < n; i++) {
            float ms = time_matmul_algo(p, stream, plan, &found[i].algo, &trial, begin, end);

            if (ms < best_ms) {
                best_ms = ms;
                best = i;
            }
        }
    }
    if (begin != NULL) {
        cudaEventDestroy(begin);
    }
    if (end != NULL) {
        cudaEventDestroy(end);
    }
    cudaFree(aside);          /* waits for the runs that use it */
    (void)cudaGetLastError(); /* what could not be measured is no fault */
    return best;
}

/* --- what is kept ----------------------------------------------------------------------------- */

static void name_machine(struct matmul_plans *p)
{
    struct cudaDeviceProp prop;
    int device = 0, driver = 0;

    if (p->opened) {
        return;
    }
    p->opened = true;
    if (cudaGetDevice(&device) == cudaSuccess &&
        cudaGetDeviceProperties(&prop, device) == cudaSuccess &&
        cudaDriverGetVersion(&driver) == cudaSuccess) {
        snprintf(p->machine, sizeof p->machine, "%.60s driver %d cublasLt %zu", prop.name, driver,
                 cublasLtGetVersion());
        tuning_open(&p->tuning, p->machine);
    }
}

static void name_question(const struct matmul_key *k, char *to, size_t room)
{
    snprintf(to, room, "matmul %lldx%lldx%lld t%d%d f%u e%d b%d a%u", (long long)k->m,
             (long long)k->n, (long long)k->k, (int)k->dt, (int)k->out, k->flags, (int)k->epilogue,
             k->adds, k->aligned_bytes);
}

/* What a file says is an algorithm for this multiplication, and one that we would have taken. */
static bool algo_fits_workspace(const struct matmul_plans *p, const struct matmul_plan *plan,
                                const cublasLtMatmulAlgo_t *algo)
{
    cublasLtMatmulHeuristicResult_t about;
    uint32_t scheme = 0;
    size_t n;

    return cublasLtMatmulAlgoCheck(p->lt, plan->op, plan->b, plan->a, plan->c, plan->c, algo,
                                   &about) == CUBLAS_STATUS_SUCCESS &&
           about.workspaceSize <= MATMUL_WORKSPACE_BYTES &&
           cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                &scheme, sizeof scheme,
                                                &n) == CUBLAS_STATUS_SUCCESS &&
           (scheme & CUBLASLT_REDUCTION_SCHEME_INPLACE) == 0;
}

static bool capturing(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus now = cudaStreamCaptureStatusNone;

    return cudaStreamIsCapturing(stream, &now) != cudaSuccess || now != cudaStreamCaptureStatusNone;
}

/* Few tiles leave most multiprocessors idle, unless each sum is shared out among several: the parts
 * wait in the workspace and are added in their order. Appends such forms of the first proposals, as
 * many as cuBLASLt takes; how many there are then. */
static int add_splits(const struct matmul_plans *p, const struct matmul_plan *plan,
                      cublasLtMatmulHeuristicResult_t found[CANDIDATES], int n)
{
    static const int32_t parts[SPLITS] = {2, 3, 4, 5, 7, 9, 12, 16};
    const uint32_t ordered = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct matmul_key *k = &plan->key;
    int all = n;

    if (k->m * k->n > SPLIT_ELEMENTS || k->k < SPLIT_DEPTH) {
        return n;
    }
    for (int i = 0; i < n && i < SPLIT_PROPOSALS; i++) {
        for (size_t s = 0; s < ARRAY_LEN(parts); s++) {
            cublasLtMatmulAlgo_t *algo = &found[all].algo;

            *algo = found[i].algo;
            if (cublasLtMatmulAlgoConfigSetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                                     &parts[s], sizeof parts[s]) == 0 &&
                cublasLtMatmulAlgoConfigSetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                     &ordered, sizeof ordered) == 0 &&
                algo_fits_workspace(p, plan, algo)) {
                all++;
            }
        }
    }
    return all;
}

/* What another process chose for this product. */
static bool take_given(const struct matmul_plans *p, struct matmul_plan *plan, const char *question)
{
    for (int i = 0; i < p->givens; i++) {
        if (strcmp(p->given[i].question, question) == 0 &&
            algo_fits_workspace(p, plan, &p->given[i].algo)) {
            plan->algo = p->given[i].algo;
            return true;
        }
    }
    return false;
}

/* plan->algo: the given one, else the kept winner, else a new one, else the first proposal. */
static void choose_matmul_algo(struct matmul_plans *p, cudaStream_t stream,
                               struct matmul_plan *plan,
                               cublasLtMatmulHeuristicResult_t found[CANDIDATES], int n,
                               const struct matmul_operands *x)
{
    const struct matmul_key *k = &plan->key;
    char question[MATMUL_QUESTION_BYTES];

    name_question(k, question, sizeof question);
    if (take_given(p, plan, question)) {
        return;
    }
    plan->algo = found[0].algo;
    if (n == 1 || 2.0 * (double)k->m * (double)k->n * (double)k->k < p->worth_measuring ||
        capturing(stream)) {
        return;
    }
    name_machine(p);
    if (tuning_find(&p->tuning, question, &plan->algo, sizeof plan->algo)) {
        if (algo_fits_workspace(p, plan, &plan->algo)) {
            return;
        }
        tuning_drop(&p->tuning, question);
    }
    plan->algo = found[0].algo;
    if (p->tuning.folder[0] != '\0') {
        n = add_splits(p, plan, found, n);
        n = fastest(p, stream, plan, found, n, x);
        if (n >= 0) {
            plan->algo = found[n].algo;
        }
        if (n < 0 || !tuning_keep(&p->tuning, question, &plan->algo, sizeof plan->algo) ||
            !algo_fits_workspace(p, plan, &plan->algo)) {
            plan->algo = found[0].algo;
        }
    }
}

/* --- choices as text -------------------------------------------------------------------------- */

/* "<the algorithm's bytes in hex> <question>" */
static size_t write_plan(const struct matmul_plan *plan, char *text, size_t room)
{
    uint8_t bytes[sizeof plan->algo];
    char hex[2 * sizeof bytes + 1], question[MATMUL_QUESTION_BYTES];
    int n;

    memcpy(bytes, &plan->algo, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    }
    name_question(&plan->key, question, sizeof question);
    n = snprintf(text, room, "%s %s\n", hex, question);
    return n > 0 && (size_t)n < room ? (size_t)n : 0;
}

void matmul_plans_write(struct matmul_plans *p, char *text, size_t room)
{
    size_t at;

    name_machine(p);
    at = (size_t)snprintf(text, room, "for %s\n", p->machine);
    for (int i = 0; i < p->count && at < room; i++) {
        size_t n = p->plan[i].none ? 0 : write_plan(&p->plan[i], text + at, room - at);

        text[at + n] = '\0';
        at += n;
    }
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A line of n bytes; false when it is none. */
static bool read_given(const char *line, size_t n, struct matmul_given *out)
{
    uint8_t bytes[sizeof out->algo];
    size_t hex = 2 * sizeof bytes;

    if (n < hex + 2 || line[hex] != ' ' || n - hex - 1 >= sizeof out->question) {
        return false;
    }
    for (size_t i = 0; i < sizeof bytes; i++) {
        int high = digit(line[2 * i]), low = digit(line[2 * i + 1]);

        if (high < 0 || low < 0) {
            return false;
        }
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    memcpy(&out->algo, bytes, sizeof bytes);
    memcpy(out->question, line + hex + 1, n - hex - 1);
    out->question[n - hex - 1] = '\0';
    return true;
}

void matmul_plans_take(struct matmul_plans *p, const char *text)
{
    char machine[MATMUL_MACHINE_BYTES + 8];
    size_t n;

    name_machine(p);
    n = (size_t)snprintf(machine, sizeof machine, "for %s\n", p->machine);
    if (strncmp(text, machine, n) != 0) {
        return;
    }
    p->givens = 0;
    for (text += n; *text != '\0' && p->givens < MATMUL_PLANS_MAX; text += n + (text[n] != '\0')) {
        n = strcspn(text, "\n");
        p->givens += read_given(text, n, &p->given[p->givens]);
    }
    while (p->count > 0) {
        forget_matmul_plan(&p->plan[--p->count]);
    }
}

/* --- plans by key ----------------------------------------------------------------------------- */

static bool same_matmul_key(const struct matmul_key *a, const struct matmul_key *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->dt == b->dt && a->out == b->out &&
           a->flags == b->flags && a->epilogue == b->epilogue && a->adds == b->adds &&
           a->aligned_bytes == b->aligned_bytes;
}

struct matmul_plan *matmul_plan_find(struct matmul_plans *p, cudaStream_t stream,
                                     const struct matmul_key *key, const struct matmul_operands *x)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    struct matmul_plan *plan;
    int n = 0;

    for (int i = 0; i < p->count; i++) {
        if (same_matmul_key(&p->plan[i].key, key)) {
            return p->plan[i].none ? NULL : &p->plan[i];
        }
    }
    /* Full: no model has so many shapes, but evaluation and tests may; the last place is used
     * again. */
    if (p->count == MATMUL_PLANS_MAX) {
        forget_matmul_plan(&p->plan[--p->count]);
    }
    plan = &p->plan[p->count++];
    *plan = (struct matmul_plan){.key = *key};
    if (describe_matmul(plan) == CUBLAS_STATUS_SUCCESS && point(plan, x) == CUBLAS_STATUS_SUCCESS) {
        n = propose(p, plan, found);
    }
    if (n == 0) {
        forget_matmul_plan(plan);
        plan->none = true;
        return NULL;
    }
    choose_matmul_algo(p, stream, plan, found, n, x);
    return plan;
}

int matmul_plan_run(const struct matmul_plans *p, cudaStream_t stream, struct matmul_plan *plan,
                    const struct matmul_operands *x)
{
    cublasStatus_t rc = run_matmul_algo(p, stream, plan, &plan->algo, x);

    if (rc == CUBLAS_STATUS_NOT_SUPPORTED || rc == CUBLAS_STATUS_INVALID_VALUE) {
        forget_matmul_plan(plan);
        plan->none = true;
        return E_UNSUPPORTED;
    }
    return rc == CUBLAS_STATUS_SUCCESS
               ? 0
               : fault_said("cuBLASLt", cublasLtGetStatusName(rc), __func__, __LINE__);
}
