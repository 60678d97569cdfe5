/* orthonormal.h - makes the columns of a tall matrix orthonormal; the first columns, however
 * many, still span the same space.
 *
 * Modified Gram-Schmidt: a column is projected twice against those before it, scaled to length 1
 * and projected once more, so columns that are nearly dependent end orthogonal as well. A column
 * that is zero, or dependent within rounding, is replaced by a direction that is drawn from the
 * seed: there are always `cols` directions. NaN stays NaN.
 *
 * shapes   x [rows, cols], row-major; cols <= rows
 * dtypes   f32 and f64; sums are f64, in a fixed order
 * cost     O(rows * cols^2), three times; for a few columns
 * twins    cpu/orthonormal.c is the meaning; cuda/orthonormal.cu agrees within tests/gpu/twins.c
 */
#ifndef KERNELS_ORTHONORMAL_H
#define KERNELS_ORTHONORMAL_H

#include "kernels/philox.h"

/* For f32 and f64: a column of which less is left depends on those before it. */
#define ORTHONORMAL_LEAST_F32 0x1p-22
#define ORTHONORMAL_LEAST_F64 0x1p-50

/* An element of the direction that a dependent column is replaced by: in [-1, 1). */
static inline HOST_DEVICE double orthonormal_noise(uint64_t seed, int64_t row, int64_t col)
{
    /* "orth" separates these draws from others with the same seed. */
    struct philox r = philox_at(seed, (UINT64_C(0x6f727468) << 32) + (uint64_t)col, (uint64_t)row);

    return (double)(int32_t)r.v[0] * 0x1p-31;
}

int orthonormalize_cpu(struct kstream *ks, enum dtype dt, void *x, int64_t rows, int64_t cols,
                       uint64_t seed);

#endif
