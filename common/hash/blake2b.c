#include "common/hash/blake2b.h"

#include "common/base/endian.h"

enum { ROUNDS = 12 };

static const uint64_t iv[8] = {0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu,
                               0xa54ff53a5f1d36f1u, 0x510e527fade682d1u, 0x9b05688c2b3e6c1fu,
                               0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u};

static const uint8_t order[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                      {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                      {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                      {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                      {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                      {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                      {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                      {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                      {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                      {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static uint64_t rotate_right_64(uint64_t v, unsigned by)
{
    return v >> by | v << (64 - by);
}

static void mix(uint64_t *v, unsigned a, unsigned b, unsigned c, unsigned d, uint64_t x, uint64_t y)
{
    v[a] += v[b] + x;
    v[d] = rotate_right_64(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = rotate_right_64(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = rotate_right_64(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = rotate_right_64(v[b] ^ v[c], 63);
}

static void compress(struct blake2b *b, const uint8_t *block, bool last)
{
    uint64_t v[16], m[16];

    for (size_t i = 0; i < 16; i++) {
        m[i] = le_get(block + 8 * i, 8);
        v[i] = i < 8 ? b->h[i] : iv[i - 8];
    }
    v[12] ^= b->count;
    v[14] ^= last ? UINT64_MAX : 0;
    for (size_t r = 0; r < ROUNDS; r++) {
        const uint8_t *s = order[r % 10];
        for (unsigned i = 0; i < 4; i++) {
            mix(v, i, i + 4, i + 8, i + 12, m[s[2 * i]], m[s[2 * i + 1]]);
        }
        for (unsigned i = 0; i < 4; i++) {
            mix(v, i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12, m[s[8 + 2 * i]],
                m[s[9 + 2 * i]]);
        }
    }
    for (size_t i = 0; i < 8; i++) {
        b->h[i] ^= v[i] ^ v[i + 8];
    }
}

void blake2b_init(struct blake2b *b, size_t out_bytes)
{
    CHECK(out_bytes >= 1 && out_bytes <= 64);
    *b = (struct blake2b){.out_bytes = out_bytes};
    memcpy(b->h, iv, sizeof iv);
    b->h[0] ^= 0x01010000u ^ out_bytes; /* no key, one leaf */
}

/* The last block is compressed at the end alone, also when it is full. */
void blake2b_add(struct blake2b *b, struct slice bytes)
{
    while (bytes.n != 0) {
        size_t n = BLAKE2B_BLOCK - b->held;
        if (n == 0) {
            compress(b, b->block, false);
            b->held = 0;
            continue;
        }
        if (b->held == 0 && bytes.n > BLAKE2B_BLOCK) { /* as it stands */
            b->count += BLAKE2B_BLOCK;
            compress(b, (const uint8_t *)bytes.p, false);
            bytes = slice_from(bytes, BLAKE2B_BLOCK);
            continue;
        }
        n = n < bytes.n ? n : bytes.n;
        memcpy(b->block + b->held, bytes.p, n);
        b->held += n;
        b->count += n;
        bytes = slice_from(bytes, n);
    }
}

void blake2b_final(struct blake2b *b, uint8_t *out)
{
    memset(b->block + b->held, 0, BLAKE2B_BLOCK - b->held);
    compress(b, b->block, true);
    for (size_t i = 0; i < b->out_bytes; i++) {
        out[i] = (uint8_t)(b->h[i / 8] >> 8 * (i % 8));
    }
}
