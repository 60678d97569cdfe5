/* philox.h - random numbers without state: a function of a key (the seed) and a counter (which number).
 *
 * Any number can be had at any time, so a resumed run draws what the unbroken one would have drawn.
 *
 * source   Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3": Philox4x32-10
 */
#ifndef AGENT_TRAIN_PHILOX_H
#define AGENT_TRAIN_PHILOX_H

#include <stdint.h>

struct philox {
    uint32_t v[4];
};

struct philox philox_at(uint64_t key, uint64_t counter_high, uint64_t counter_low);
double philox_uniform(uint32_t bits); /* in (0, 1) */
/* Two independent standard normal numbers out of four words (Box-Muller). */
void philox_normal(const struct philox *r, double out[2]);

#endif
