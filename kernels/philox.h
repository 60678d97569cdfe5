/* philox.h - random numbers without state: a function of a key (the seed) and a counter (the
 * number's index).
 *
 * Any number can be computed at any time, so a resumed run draws what the uninterrupted one would
 * have drawn; CPU and CUDA draw the same bits.
 *
 * source   Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3": Philox4x32-10
 */
#ifndef KERNELS_PHILOX_H
#define KERNELS_PHILOX_H

#include <math.h>

#include "kernels/dev.h"

struct philox {
    uint32_t v[4];
};

static inline HOST_DEVICE struct philox philox_at(uint64_t key, uint64_t counter_high,
                                                  uint64_t counter_low)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_low, c1 = (uint32_t)(counter_low >> 32);
    uint32_t c2 = (uint32_t)counter_high, c3 = (uint32_t)(counter_high >> 32);
    struct philox out;

    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out.v[0] = c0;
    out.v[1] = c1;
    out.v[2] = c2;
    out.v[3] = c3;
    return out;
}

/* In (0, 1). */
static inline double philox_uniform(uint32_t bits)
{
    return ((double)bits + 0.5) * 0x1p-32;
}

/* Two independent standard normal numbers out of four words (Box-Muller). */
static inline void philox_normal(const struct philox *r, double out[2])
{
    double radius = sqrt(-2 * log(philox_uniform(r->v[0])));
    double angle = 6.283185307179586477 * philox_uniform(r->v[1]);

    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

#endif
