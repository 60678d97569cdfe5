/* each_real.h - compiles the file named by BODY once for float and once for double.
 *
 * A twin is written once and includes itself through here: inside, `real` is the type, FN(name) its function's name,
 * EXP and friends the right functions of math.h. The doubles exist for the tests: finite differences need them.
 */
#include <math.h>

#include "common/base/err.h"

/* Elements of work from which on more threads than one pay. */
enum { PARALLEL_FROM = 1 << 15 };

/* Compiled once more for wider vectors, chosen when the program starts. Not under sanitizers: their run time is not up
 * yet when that choice is made. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(SANITIZED)
#    define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
/* glibc has vector forms of expf (4 ulp at worst); only -ffast-math would declare them, and bring the rest with it. */
#    ifdef __GLIBC__
float expf(float x) __attribute__((simd("notinbranch")));
#    endif
#else
#    define WIDE
#endif

#define REAL     32
#define real     float
#define FN(name) name##_f32
#define EXP      expf
#define LOG      logf
#define SQRT     sqrtf
#define GEMM     cblas_sgemm
#include BODY
#undef REAL
#undef real
#undef FN
#undef EXP
#undef LOG
#undef SQRT
#undef GEMM

#define REAL     64
#define real     double
#define FN(name) name##_f64
#define EXP      exp
#define LOG      log
#define SQRT     sqrt
#define GEMM     cblas_dgemm
#include BODY
#undef REAL
#undef real
#undef FN
#undef EXP
#undef LOG
#undef SQRT
#undef GEMM

/* The dispatch, as an expression: `return EACH_REAL(dt, add, (y, a, b, n));` */
#define EACH_REAL(dt, name, args)                                                                  \
    ((dt) == DT_F32 ? (name##_f32 args, 0) : (dt) == DT_F64 ? (name##_f64 args, 0) : E_UNSUPPORTED)
