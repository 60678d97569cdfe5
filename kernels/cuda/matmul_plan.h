/* matmul_plan.h - plans one matrix multiplication for cuBLASLt: describes it once and chooses its
 * algorithm once.
 *
 * For a large multiplication the first few of cuBLASLt's proposals are run and timed on the
 * caller's own operands, the first time it occurs (never while a graph is captured). The winner
 * is kept on disk (tuning.h). Small ones use the first proposal, and so does every one when
 * nothing can be kept: a choice that cannot be repeated would change the bits of a resumed run.
 * Split-K is used only with its parts summed in a fixed order; for small results of long sums
 * more splits are tried than cuBLASLt proposes.
 *
 * owns     a stream's plans; matmul_plans_fini() frees them
 */
#ifndef KERNELS_CUDA_MATMUL_PLAN_H
#define KERNELS_CUDA_MATMUL_PLAN_H

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "common/base/check.h"
#include "kernels/cuda/tuning.h"
#include "kernels/matmul.h"

enum { MATMUL_PLANS_MAX = 128, MATMUL_WORKSPACE_BYTES = 64 << 20 };

/* What follows the sums inside the same kernel. */
enum matmul_epilogue {
    EPILOGUE_NONE,
    EPILOGUE_BIAS,
    EPILOGUE_GELU,      /* stores gelu(sums), and the sums aside */
    EPILOGUE_BIAS_GELU, /* the same of sums + bias */
    EPILOGUE_DGELU,     /* sums * gelu's slope at the stored values (`aside`) */
};

/* Everything that a plan depends on. */
struct matmul_key {
    int64_t m, n, k;
    enum dtype dt, out;
    unsigned flags;
    enum matmul_epilogue epilogue;
    bool adds;              /* c is read as well: beta is 1 */
    uint32_t aligned_bytes; /* the least alignment of all operands */
};

struct matmul_operands {
    void *d;
    const void *a, *b,
        /* d = c + op(a) op(b), or without c; c is d or another one, and is read only when the key
         * adds */
        *c;
    const void *bias;
    const void *aside; /* the sums in front of gelu: written forward, read backward */
};

struct matmul_plan {
    struct matmul_key key;
    bool none; /* cuBLASLt has no such multiplication */
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
};

enum { MATMUL_QUESTION_BYTES = 128, MATMUL_MACHINE_BYTES = 320 };

/* An algorithm that another process chose. */
struct matmul_given {
    char question[MATMUL_QUESTION_BYTES];
    cublasLtMatmulAlgo_t algo;
};

struct matmul_plans {
    cublasLtHandle_t lt;
    void *workspace;
    double worth_measuring; /* the number of floating point operations from which measuring pays */
    bool opened;            /* tuning, and the machine named */
    struct tuning tuning;
    char machine[MATMUL_MACHINE_BYTES];
    struct matmul_given given[MATMUL_PLANS_MAX];
    int givens;
    struct matmul_plan plan[MATMUL_PLANS_MAX];
    int count;
};

#ifdef __cplusplus
extern "C" {
#endif
MUST_USE int matmul_plans_init(struct matmul_plans *p);
void matmul_plans_fini(struct matmul_plans *p); /* zeroes are fine */

/* All chosen algorithms in matmul.h's form; as many whole lines as fit. */
void matmul_plans_write(struct matmul_plans *p, char *text, size_t room);
/* Makes plans anew, with the algorithms of such a text where they fit. */
void matmul_plans_take(struct matmul_plans *p, const char *text);

/* The alignment of all of these pointers, up to 256. */
uint32_t matmul_alignment(const struct matmul_operands *x);
/* NULL when cuBLASLt has none, or its algorithm failed. A new, large one multiplies the operands,
 * more than once. */
struct matmul_plan *matmul_plan_find(struct matmul_plans *p, cudaStream_t stream,
                                     const struct matmul_key *key, const struct matmul_operands *x);
/* E_UNSUPPORTED when cuBLASLt refuses what it proposed: the plan cannot be used any more. */
int matmul_plan_run(const struct matmul_plans *p, cudaStream_t stream, struct matmul_plan *plan,
                    const struct matmul_operands *x);
#ifdef __cplusplus
}
#endif

#endif
