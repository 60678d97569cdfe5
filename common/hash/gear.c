#include "common/hash/gear.h"

#include <pthread.h>

#include "common/base/endian.h"
#include "common/hash/digest.h"

enum { SKIP = GEAR_MIN - 64 };
#define MASK ((uint64_t)0xffff << 48)

static uint64_t table[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    char seed[16] = "mirrord gear 1:";
    struct digest d;

    for (unsigned i = 0; i < 256; i++) {
        seed[15] = (char)i;
        digest_of(slice_of(seed, sizeof seed), &d);
        table[i] = be_get(d.b, 8);
    }
}

size_t gear_cut(struct gear *g, const void *p, size_t n, bool *end)
{
    const uint8_t *b = p;
    size_t at = 0, most;
    uint64_t h = g->h;

    pthread_once(&once, make_table);
    *end = false;
    if (g->n < SKIP) {
        at = SKIP - g->n < n ? SKIP - g->n : n;
    }
    most = GEAR_MAX - g->n < n ? GEAR_MAX - g->n : n;
    while (at < most) {
        h = (h << 1) + table[b[at++]];
        if ((h & MASK) == 0 && g->n + at >= GEAR_MIN) {
            *end = true;
            break;
        }
    }
    g->n += at;
    g->h = h;
    if (*end || g->n == GEAR_MAX) {
        *end = true;
        *g = (struct gear){0};
    }
    return at;
}
