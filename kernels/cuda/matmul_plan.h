/* matmul_plan.h - cuBLASLt's way of one multiplication: described once, its algorithm chosen once.
 *
 * Of what cuBLASLt proposes for a large multiplication the first few are run and timed on the
 * caller's own operands, the first time it comes (never while a graph is captured); the winner is
 * kept on disk (tuning.h). Small ones take the first proposal, and so do all where nothing can be
 * kept: a choice that cannot be repeated would change the bits of a resumed run. Split-K only with
 * its parts summed in a fixed order; of small results of long sums more splits are tried than are
 * proposed.
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
    EPILOGUE_DGELU,     /* sums * gelu's slope at what lies aside */
};

/* Everything that a plan depends on. */
struct matmul_key {
    int64_t m, n, k;
    enum dtype dt, out;
    unsigned flags;
    enum matmul_epilogue epilogue;
    bool adds;              /* c is read as well: beta is 1 */
    uint32_t aligned_bytes; /* all operands, at least */
};

struct matmul_operands {
    void *d;
    const void *a, *b,
        *c; /* d = c + op(a) op(b), or less that, c being d or another; read only when the key adds */
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
    double worth_measuring; /* floating point operations from which on it pays */
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

/* matmul.h's text of all that were chosen; as many whole lines as there is room for. */
void matmul_plans_write(struct matmul_plans *p, char *text, size_t room);
/* Plans are made anew, of what such a text gives where that fits. */
void matmul_plans_take(struct matmul_plans *p, const char *text);

/* The alignment that all of these pointers have, up to 256. */
uint32_t matmul_alignment(const struct matmul_operands *x);
/* NULL when cuBLASLt has none, or had none when it ran. The operands are multiplied, more than
 * once, when it is new and large. */
struct matmul_plan *matmul_plan_find(struct matmul_plans *p, cudaStream_t stream,
                                     const struct matmul_key *key, const struct matmul_operands *x);
/* E_UNSUPPORTED when cuBLASLt takes back what it proposed: the plan is then of no more use. */
int matmul_plan_run(const struct matmul_plans *p, cudaStream_t stream, struct matmul_plan *plan,
                    const struct matmul_operands *x);
#ifdef __cplusplus
}
#endif

#endif
