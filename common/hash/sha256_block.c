#include "common/hash/sha256_block.h"

#include "common/base/check.h"

#ifdef __x86_64__

#    include <cpuid.h>
#    include <immintrin.h>

#    define SHA_CODE   __attribute__((target("sha,sse4.1,ssse3")))
#    define SHA_INLINE SHA_CODE __attribute__((always_inline)) static inline

enum { LEAF1_SSSE3 = 1 << 9, LEAF1_SSE41 = 1 << 19, LEAF7_SHA = 1 << 29 };

bool sha256_block_here(void)
{
    unsigned a, b, c, d;

    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & LEAF1_SSSE3) == 0 || (c & LEAF1_SSE41) == 0) {
        return false;
    }
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & LEAF7_SHA) != 0;
}

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

/* A state as the instructions want it: its words, from the highest lane down. */
struct lanes {
    __m128i abef, cdgh;
};

SHA_INLINE struct lanes lanes_of(const uint32_t h[SHA256_WORDS])
{
    __m128i dcba = _mm_loadu_si128((const __m128i *)h);
    __m128i hgfe = _mm_loadu_si128((const __m128i *)(h + 4));
    __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1);
    __m128i efgh = _mm_shuffle_epi32(hgfe, 0x1b);

    return (struct lanes){_mm_alignr_epi8(cdab, efgh, 8), _mm_blend_epi16(efgh, cdab, 0xf0)};
}

SHA_INLINE void lanes_put(struct lanes s, uint32_t h[SHA256_WORDS])
{
    __m128i feba = _mm_shuffle_epi32(s.abef, 0x1b);
    __m128i dchg = _mm_shuffle_epi32(s.cdgh, 0xb1);

    _mm_storeu_si128((__m128i *)h, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(h + 4), _mm_alignr_epi8(dchg, feba, 8));
}

SHA_INLINE struct lanes lanes_sum(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm_add_epi32(a.abef, b.abef), _mm_add_epi32(a.cdgh, b.cdgh)};
}

/* Four rounds with the words w, from round i on. */
SHA_INLINE void four_rounds(struct lanes *a, struct lanes *b, bool both, __m128i w, size_t i)
{
    __m128i first = _mm_add_epi32(w, _mm_loadu_si128((const __m128i *)(round_constants + i)));
    __m128i second = _mm_shuffle_epi32(first, 0x0e);

    a->cdgh = _mm_sha256rnds2_epu32(a->cdgh, a->abef, first);
    if (both) {
        b->cdgh = _mm_sha256rnds2_epu32(b->cdgh, b->abef, first);
    }
    a->abef = _mm_sha256rnds2_epu32(a->abef, a->cdgh, second);
    if (both) {
        b->abef = _mm_sha256rnds2_epu32(b->abef, b->cdgh, second);
    }
}

/* The four words that follow w0 .. w3, four each. */
SHA_INLINE __m128i expand(__m128i w0, __m128i w1, __m128i w2, __m128i w3)
{
    __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8(w3, w2, 4));

    return _mm_sha256msg2_epu32(sum, w3);
}

SHA_INLINE __m128i words_at(const uint8_t *p)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);

    return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)p), big_endian);
}

SHA_INLINE void sixteen_rounds(struct lanes *a, struct lanes *b, bool both, __m128i w[4], size_t i)
{
    four_rounds(a, b, both, w[0], i);
    w[0] = expand(w[0], w[1], w[2], w[3]);
    four_rounds(a, b, both, w[1], i + 4);
    w[1] = expand(w[1], w[2], w[3], w[0]);
    four_rounds(a, b, both, w[2], i + 8);
    w[2] = expand(w[2], w[3], w[0], w[1]);
    four_rounds(a, b, both, w[3], i + 12);
    w[3] = expand(w[3], w[0], w[1], w[2]);
}

/* Without a loop: it costs a tenth. */
SHA_INLINE void take_block(struct lanes *a, struct lanes *b, bool both, const uint8_t *p)
{
    __m128i w[4] = {words_at(p), words_at(p + 16), words_at(p + 32), words_at(p + 48)};

    sixteen_rounds(a, b, both, w, 0);
    sixteen_rounds(a, b, both, w, 16);
    sixteen_rounds(a, b, both, w, 32);
    four_rounds(a, b, both, w[0], 48);
    four_rounds(a, b, both, w[1], 52);
    four_rounds(a, b, both, w[2], 56);
    four_rounds(a, b, both, w[3], 60);
}

SHA_CODE void sha256_block_one(uint32_t h[SHA256_WORDS], const uint8_t *p, size_t blocks)
{
    struct lanes a = lanes_of(h);

    for (; blocks > 0; blocks--, p += SHA256_BLOCK) {
        struct lanes before = a;
        take_block(&a, NULL, false, p);
        a = lanes_sum(a, before);
    }
    lanes_put(a, h);
}

SHA_CODE void sha256_block_two(uint32_t h[SHA256_WORDS], uint32_t other[SHA256_WORDS],
                               const uint8_t *p, size_t blocks)
{
    struct lanes a = lanes_of(h), b = lanes_of(other);

    for (; blocks > 0; blocks--, p += SHA256_BLOCK) {
        struct lanes a_before = a, b_before = b;
        take_block(&a, &b, true, p);
        a = lanes_sum(a, a_before);
        b = lanes_sum(b, b_before);
    }
    lanes_put(a, h);
    lanes_put(b, other);
}

#else /* such instructions elsewhere (AArch64 has them) are for whoever can measure there */

bool sha256_block_here(void)
{
    return false;
}

void sha256_block_one(uint32_t h[SHA256_WORDS], const uint8_t *p, size_t blocks)
{
    (void)h;
    (void)p;
    (void)blocks;
    CHECK(false);
}

void sha256_block_two(uint32_t h[SHA256_WORDS], uint32_t other[SHA256_WORDS], const uint8_t *p,
                      size_t blocks)
{
    (void)other;
    sha256_block_one(h, p, blocks);
}

#endif
