#include "server/cache/claims.h"

bool claims_cover(const struct claims *c, const struct extents *have, uint64_t at,
                  uint64_t near_bytes)
{
    if (extents_until(have, at) > at) {
        return true;
    }
    for (unsigned i = 0; i < CLAIMS_MAX; i++) {
        const struct claim *o = &c->of[i];
        if (o->active && o->cur <= at && at < o->end && at - o->cur <= near_bytes) {
            return true;
        }
    }
    return false;
}

/* The first byte from the front that is neither here nor claimed. */
static uint64_t first_free(const struct claims *c, const struct extents *have)
{
    uint64_t at = 0;
    bool moved = true;

    while (moved) {
        uint64_t until = extents_until(have, at);
        moved = until > at;
        at = until;
        for (unsigned i = 0; i < CLAIMS_MAX; i++) {
            const struct claim *o = &c->of[i];
            if (o->active && o->cur <= at && at < o->end) {
                at = o->end;
                moved = true;
            }
        }
    }
    return at;
}

bool claims_gap(const struct claims *c, const struct extents *have, uint64_t total_bytes,
                struct extent *out)
{
    uint64_t at = first_free(c, have);

    if (at >= total_bytes) {
        return false;
    }
    *out = (struct extent){at, min_u64(extents_next(have, at), total_bytes)};
    for (unsigned i = 0; i < CLAIMS_MAX; i++) {
        const struct claim *o = &c->of[i];
        if (o->active && o->cur > at) {
            out->end = min_u64(out->end, o->cur);
        }
    }
    return true;
}

/* The blocks of a need, as far as the object reaches. */
static struct extent blocks_of(const struct reader_need *n, uint64_t total_bytes)
{
    uint64_t end = total_bytes;

    if (n->end <= total_bytes) { /* LENGTH_UNKNOWN is more than any length */
        end = min_u64((n->end + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES, total_bytes);
    }
    return (struct extent){n->at / BLOCK_BYTES * BLOCK_BYTES, end};
}

bool claims_cut(const struct claims *c, const struct extents *have, const struct reader_need *n,
                uint64_t total_bytes, uint64_t near_bytes, struct extent *out, unsigned *holder)
{
    uint64_t behind = 0; /* where what is here or claimed before n->at ends */

    *out = blocks_of(n, total_bytes);
    *holder = CLAIMS_MAX;
    if (claims_cover(c, have, n->at, near_bytes)) {
        return false;
    }
    for (size_t i = 0; i < have->count && have->run[i].end <= n->at; i++) {
        behind = have->run[i].end;
    }
    out->end = min_u64(out->end, extents_next(have, n->at));
    for (unsigned i = 0; i < CLAIMS_MAX; i++) {
        const struct claim *o = &c->of[i];
        if (o->active && o->cur <= n->at && n->at < o->end) {
            *holder = i;
            behind = max_u64(behind, o->cur);
        } else if (o->active && o->end <= n->at) {
            behind = max_u64(behind, o->end);
        } else if (o->active) {
            out->end = min_u64(out->end, o->cur);
        }
    }
    out->first = max_u64(out->first, behind);
    return out->first < out->end;
}
