/* dice.h - xorshift64 (Marsaglia, Xorshift RNGs, 2003): enough to spread load, to draw lots, to
 * make noise. No secret comes from it.
 *
 * The state is the caller's, whatever it is seeded with, but never 0; what is seeded alike falls
 * alike.
 */
#ifndef COMMON_BASE_DICE_H
#define COMMON_BASE_DICE_H

#include <stdint.h>

static inline uint64_t dice_throw(uint64_t *dice)
{
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    return *dice;
}

static inline uint64_t dice_below(uint64_t *dice, uint64_t n)
{
    return dice_throw(dice) % n;
}

#endif
