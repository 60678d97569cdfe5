/* each_real.h - compiles the file named by BODY once for every element type.
 *
 * A twin is written once and includes itself through here. Inside, `elem` is the type in memory
 * and `real` the type of the computation, of dtype_accum(); GET(e) widens one to the other,
 * PUT(r) rounds back, PUT_NOISY does so at random (convert.h); FN(name) is the function's name;
 * EXP and others are the right functions of math.h. For f32 and f64 both types are one, and GET
 * and PUT do nothing; the 16-bit types have NARROW and are bits (float16.h). The doubles exist
 * for the tests, whose finite differences need them.
 */
#include <math.h>

#include "common/base/err.h"
#include "kernels/convert.h"

/* The least work for which several threads pay, in elements that are read, computed in one or two
 * steps and written: some 150 us of one core. Waking a sleeping thread costs 10 to 50 us. Where
 * other programs share the cores, a parallel region lasts until each of its threads has had its
 * turn, which is milliseconds, so small work stays on its thread. A value through EXP costs as
 * much as four elements; MULTIPLIES products of a matrix multiplication cost as much as one. The
 * result never depends on the number of threads: the order of every sum is fixed. */
enum { PARALLEL_FROM = 1 << 18, EXPONENT = 4, MULTIPLIES = 32 };

/* Compiled once more for wider vectors, chosen when the program starts. Not under sanitizers:
 * their run time is not initialised yet when that choice is made. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(SANITIZED)
#    define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
/* glibc has vector forms of expf (at most 4 ulp of error); only -ffast-math would declare them,
 * and it does much more. */
#    ifdef __GLIBC__
float expf(float x) __attribute__((simd("notinbranch")));
#    endif
#else
#    define WIDE
#endif

#define PASTE_(a, b) a##_##b
#define PASTE(a, b)  PASTE_(a, b)
#define FN(name)     PASTE(name, TYPE)

/* --- the 16-bit types: f32 inside ------------------------------------------------------------- */
#define real    float
#define DT_REAL DT_F32
#define EXP     expf
#define LOG     logf
#define SQRT    sqrtf
#define GEMM    cblas_sgemm

#define NARROW                 1
#define elem                   uint16_t
#define GET(e)                 PASTE(TYPE, widen)(e)
#define PUT(r)                 PASTE(TYPE, round)(r)
#define PUT_NOISY(r, noise, i) PASTE(TYPE, stochastic)(r, noise_at(noise, i))
#define TYPE                   bf16
#include BODY
#undef TYPE
#define TYPE f16
#include BODY
#undef TYPE
#undef NARROW
#undef elem
#undef GET
#undef PUT
#undef PUT_NOISY

/* --- f32 and f64 ------------------------------------------------------------------------------ */
#define NARROW                 0
#define elem                   real
#define GET(e)                 (e)
#define PUT(r)                 (r)
#define PUT_NOISY(r, noise, i) ((void)(noise), (r))
#define TYPE                   f32
#include BODY
#undef TYPE
#undef real
#undef DT_REAL
#undef EXP
#undef LOG
#undef SQRT
#undef GEMM

#define real    double
#define DT_REAL DT_F64
#define EXP     exp
#define LOG     log
#define SQRT    sqrt
#define GEMM    cblas_dgemm
#define TYPE    f64
#include BODY

/* The dispatch, as an expression: `return EACH_REAL(dt, add, (y, a, b, n));` */
#define EACH_REAL(dt, name, args)                                                                  \
    ((dt) == DT_F32    ? (name##_f32 args, 0)                                                      \
     : (dt) == DT_F64  ? (name##_f64 args, 0)                                                      \
     : (dt) == DT_BF16 ? (name##_bf16 args, 0)                                                     \
     : (dt) == DT_F16  ? (name##_f16 args, 0)                                                      \
                       : E_UNSUPPORTED)
