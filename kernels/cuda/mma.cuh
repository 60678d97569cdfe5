/* mma.cuh - the tensor cores of one warp, and copies into shared memory that run beside it (sm_80
 * and newer).
 *
 * A fragment is a small matrix spread over the lanes of a warp. Of lane l, with g = l / 4 and t = l
 * % 4:
 *
 *     a, 16 x 16    a[0] (g, 2t..) a[1] (g + 8, 2t..) a[2] (g, 2t + 8..) a[3] (g + 8, 2t + 8..): two values each
 *     b, 16 x 8     b[0] (2t.., g) b[1] (2t + 8.., g)
 *     c, 16 x 8     c[0], c[1] (g, 2t..); c[2], c[3] (g + 8, 2t..): f32
 *
 * All lanes of a warp call these together. tests/simt has a double of this file that runs on the
 * host.
 *
 * source   PTX ISA 8.x, "Matrix fragments for mma.m16n8k16", "ldmatrix", "cp.async"
 */
#pragma once

#include "kernels/float16.h"

/* The 16-bit types, by name. */
struct bf16_tag {
};
struct f16_tag {
};

/* c += a b */
static __device__ inline void mma(bf16_tag, float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                  uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ inline void mma(f16_tag, float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                  uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two values as one register's halves, rounded to nearest even. */
static __device__ inline uint32_t pack(bf16_tag, float low, float high)
{
    uint32_t both;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

static __device__ inline uint32_t pack(f16_tag, float low, float high)
{
    uint32_t both;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

static __device__ inline float widen(bf16_tag, uint16_t x)
{
    return bf16_widen(x);
}

static __device__ inline float widen(f16_tag, uint16_t x)
{
    float wide;

    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
    return wide;
}

static __device__ inline uint32_t shared_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/* Four 8 x 8 matrices; lane l names row l % 8 of matrix l / 8 (16 bytes), and gets of each matrix
 * (g, 2t..). */
static __device__ inline void load_matrices(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* The same, each matrix transposed: (2t.., g). */
static __device__ inline void load_matrices_transposed(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* Sixteen bytes into shared memory, zeros unless `valid`; there after copies_done() and a
 * barrier. */
static __device__ inline void copy_16(void *to, const void *from, bool valid)
{
    int size = valid ? 16 : 0;

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(size)
                 : "memory");
}

/* Ends a group of this thread's copies. */
static __device__ inline void copies_end()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most `LEFT` of this thread's groups are on their way. */
template <int LEFT> static __device__ inline void copies_done()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
