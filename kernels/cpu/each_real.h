/* each_real.h - compiles the file named by BODY once for float and once for double.
 *
 * A twin is written once and includes itself through here: inside, `real` is the type, FN(name) its function's name,
 * EXP and friends the right functions of math.h. The doubles exist for the tests: finite differences need them.
 */
#include <math.h>

#include "common/base/err.h"

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
