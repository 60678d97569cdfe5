/* dice.h - xorshift64 (Marsaglia, Xorshift RNGs, 2003): random enough to spread load, draw lots
 * and make noise. Not for secrets.
 *
 * The caller owns the state and seeds it with any value but 0. Equal seeds give equal sequences.
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
