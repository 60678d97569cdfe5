#include "agent/train/philox.h"

#include <math.h>

struct philox philox_at(uint64_t key, uint64_t counter_high, uint64_t counter_low)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    struct philox c = {{(uint32_t)counter_low, (uint32_t)(counter_low >> 32),
                        (uint32_t)counter_high, (uint32_t)(counter_high >> 32)}};

    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c.v[0], b = (uint64_t)0xCD9E8D57u * c.v[2];

        c = (struct philox){{(uint32_t)(b >> 32) ^ c.v[1] ^ k0, (uint32_t)b,
                             (uint32_t)(a >> 32) ^ c.v[3] ^ k1, (uint32_t)a}};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

double philox_uniform(uint32_t bits)
{
    return ((double)bits + 0.5) * 0x1p-32;
}

void philox_normal(const struct philox *r, double out[2])
{
    double radius = sqrt(-2 * log(philox_uniform(r->v[0])));
    double angle = 6.283185307179586477 * philox_uniform(r->v[1]);

    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}
