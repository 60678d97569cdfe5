#include "agent/peers/choose.h"

#include "agent/peers/bits.h"
#include "common/base/dice.h"

static size_t next_missing(const struct choose_from *c, size_t i)
{
    while (i < c->count && c->state[i] != PART_MISSING) {
        i++;
    }
    return i;
}

static bool is_mine(const struct choose_from *c, size_t *chunk)
{
    for (size_t i = next_missing(c, c->first); i < c->count; i = next_missing(c, i + 1)) {
        if (bits_get(c->mine, i)) {
            *chunk = i;
            return true;
        }
    }
    return false;
}

static bool gives(const struct giver *g, size_t chunk)
{
    return g->places > 0 && g->have != NULL && bits_get(g->have, chunk);
}

/* One at random of those who have it; false: nobody. */
static bool some_giver(const struct choose_from *c, size_t chunk, uint64_t *dice, size_t *giver)
{
    uint64_t seen = 0;

    for (size_t i = 0; i < c->ngivers; i++) {
        if (gives(&c->giver[i], chunk) && dice_below(dice, ++seen) == 0) {
            *giver = i;
        }
    }
    return seen > 0;
}

static bool from_giver(const struct choose_from *c, uint64_t *dice, size_t *chunk, size_t *giver)
{
    uint64_t seen = 0;
    size_t who = 0;

    for (size_t i = next_missing(c, c->first); i < c->count && seen < CHOOSE_AMONG;
         i = next_missing(c, i + 1)) {
        if (some_giver(c, i, dice, &who) && dice_below(dice, ++seen) == 0) {
            *chunk = i;
            *giver = who;
        }
    }
    return seen > 0;
}

static bool unasked(const struct choose_from *c, uint64_t *dice, size_t *chunk)
{
    uint64_t among = (c->stalled || c->starved) && !c->alone ? CHOOSE_AMONG : 1;
    uint64_t seen = 0;

    for (size_t i = next_missing(c, c->first); i < c->count && seen < among;
         i = next_missing(c, i + 1)) {
        if (dice_below(dice, ++seen) == 0) {
            *chunk = i;
        }
    }
    return seen > 0;
}

enum peer_choice choose(const struct choose_from *c, uint64_t *dice, size_t *chunk, size_t *giver)
{
    if (c->brings && is_mine(c, chunk)) {
        return CHOOSE_MIRROR;
    }
    if (c->starved && unasked(c, dice, chunk)) {
        return CHOOSE_MIRROR;
    }
    if (from_giver(c, dice, chunk, giver)) {
        return CHOOSE_GIVER;
    }
    if ((c->alone || c->stalled) && unasked(c, dice, chunk)) {
        return CHOOSE_MIRROR;
    }
    return CHOOSE_NONE;
}
