#include "server/sync/rsync/sums.h"

#include <math.h>

enum { SUMS_AT_ONCE = 16 };

static unsigned log2_of(uint64_t v)
{
    unsigned n = 0;

    while (v > 1) {
        v >>= 1;
        n++;
    }
    return n;
}

static uint32_t block_of(uint64_t size)
{
    uint64_t root;

    if (size <= (uint64_t)SUMS_BLOCK_LEAST * SUMS_BLOCK_LEAST) {
        return SUMS_BLOCK_LEAST;
    }
    root = (uint64_t)sqrt((double)size) & ~(uint64_t)7;
    return (uint32_t)(root < SUMS_BLOCK_MOST ? root : SUMS_BLOCK_MOST);
}

/* Every offset of a file as long as ours is compared with every block: size * size / block pairs,
 * 32 bits of each by the rolling sum; 10 bits more make a false match rare enough for the whole
 * file's digest. */
static uint32_t strong_of(uint64_t size, uint32_t block, size_t most)
{
    unsigned bits = 10 + 2 * log2_of(size);
    unsigned less = 32 + log2_of(block);
    uint32_t bytes = bits > less ? (bits - less + 7) / 8 : 0;

    if (bytes < SUMS_STRONG_LEAST) {
        return SUMS_STRONG_LEAST;
    }
    return bytes < most ? bytes : (uint32_t)most;
}

struct sums_head sums_of(uint64_t size, enum checksum_kind k, bool full)
{
    uint32_t block = block_of(size);
    uint64_t count = size / block + (size % block != 0);

    if (count == 0 || count > INT32_MAX) {
        return (struct sums_head){.count = 0};
    }
    return (struct sums_head){
        .count = (uint32_t)count,
        .block_bytes = block,
        .strong_bytes =
            full ? (uint32_t)checksum_bytes(k) : strong_of(size, block, checksum_bytes(k)),
        .remainder = (uint32_t)(size % block),
    };
}

void put_sums_head(struct buf *b, const struct sums_head *h)
{
    put_int(b, (int32_t)h->count);
    put_int(b, (int32_t)h->block_bytes);
    put_int(b, (int32_t)h->strong_bytes);
    put_int(b, (int32_t)h->remainder);
}

struct sums_head get_sums_head(struct get *g, size_t strong_max)
{
    int32_t count = get_int(g);
    int32_t block = get_int(g);
    int32_t strong = get_int(g);
    int32_t rest = get_int(g);

    if (g->rc == 0 &&
        (count < 0 || block < 0 || block > SUMS_BLOCK_MOST || strong < 0 ||
         (size_t)strong > strong_max || rest < 0 || rest > block || (count > 0 && block == 0))) {
        g->rc = E_PROTOCOL;
    }
    if (g->rc != 0) {
        return (struct sums_head){.count = 0};
    }
    return (struct sums_head){(uint32_t)count, (uint32_t)block, (uint32_t)strong, (uint32_t)rest};
}

/* Independent sums, four times as fast: each byte of a step counts in the second sum once per
 * later step, and once for itself and each byte after it in its own. */
uint32_t sums_rolling(struct slice block)
{
    const signed char *p = (const signed char *)block.p; /* bytes count with their sign */
    uint32_t sum[SUMS_AT_ONCE] = {0}, sums[SUMS_AT_ONCE] = {0}, a = 0, b = 0;
    size_t i = 0;

    for (; i + SUMS_AT_ONCE <= block.n; i += SUMS_AT_ONCE) {
        for (size_t k = 0; k < SUMS_AT_ONCE; k++) {
            sums[k] += sum[k];
            sum[k] += (uint32_t)(int32_t)p[i + k];
        }
    }
    for (uint32_t k = 0; k < SUMS_AT_ONCE; k++) {
        a += sum[k];
        b += SUMS_AT_ONCE * sums[k] + (SUMS_AT_ONCE - k) * sum[k];
    }
    for (; i < block.n; i++) {
        a += (uint32_t)(int32_t)p[i];
        b += a;
    }
    return (a & 0xffff) | b << 16;
}
