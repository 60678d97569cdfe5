#include "common/hash/sha256.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/endian.h"

static EVP_MD *fetched; /* once: an implicit fetch per digest is OpenSSL 3's known slow path */

static void fetch_once(void)
{
    fetched = EVP_MD_fetch(NULL, "SHA256", NULL);
    CHECK(fetched != NULL);
}

static const EVP_MD *algorithm(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fetch_once);
    return fetched;
}

void sha256_of(const void *p, size_t n, uint8_t out[SHA256_BYTES])
{
    CHECK(EVP_Digest(p, n, out, NULL, algorithm(), NULL) == 1);
}

/* --- by OpenSSL --- */

static void *md_new(void)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();

    CHECK(c != NULL && EVP_DigestInit_ex2(c, algorithm(), NULL) == 1);
    return c;
}

static void *md_copy(const EVP_MD_CTX *from)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();

    CHECK(c != NULL && EVP_MD_CTX_copy_ex(c, from) == 1);
    return c;
}

static void md_add(struct sha256 *s, const uint8_t *p, size_t n)
{
    enum { STEP = 64 << 10 }; /* the second pass finds the bytes in L2 */

    while (n > 0) {
        size_t step = s->parted && n > STEP ? STEP : n;
        CHECK(EVP_DigestUpdate(s->whole_md, p, step) == 1);
        CHECK(!s->parted || EVP_DigestUpdate(s->part_md, p, step) == 1);
        p += step;
        n -= step;
    }
}

/* --- by the CPU --- */

static const uint32_t beginning[SHA256_WORDS] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static void take_blocks(struct sha256 *s, const uint8_t *p, size_t blocks)
{
    if (blocks == 0) {
        return;
    }
    if (s->parted) {
        sha256_block_two(s->whole, s->part, p, blocks);
    } else {
        sha256_block_one(s->whole, p, blocks);
    }
}

static void cpu_add(struct sha256 *s, const uint8_t *p, size_t n)
{
    size_t have = (size_t)(s->count % SHA256_BLOCK);

    if (have != 0) {
        size_t more = n < SHA256_BLOCK - have ? n : SHA256_BLOCK - have;
        memcpy(s->rest + have, p, more);
        p += more;
        n -= more;
        if (have + more < SHA256_BLOCK) {
            return;
        }
        take_blocks(s, s->rest, 1);
    }
    take_blocks(s, p, n / SHA256_BLOCK);
    memcpy(s->rest, p + n / SHA256_BLOCK * SHA256_BLOCK, n % SHA256_BLOCK);
}

/* Of a stream of so many bytes that has this state: its rest, a one, zeros, its length in bits. */
static void close_state(const struct sha256 *s, const uint32_t state[SHA256_WORDS], uint64_t bytes,
                        uint8_t out[SHA256_BYTES])
{
    size_t have = (size_t)(bytes % SHA256_BLOCK);
    size_t blocks = have < SHA256_BLOCK - 8 ? 1 : 2;
    uint8_t last[2 * SHA256_BLOCK] = {0};
    uint32_t h[SHA256_WORDS];

    memcpy(h, state, sizeof h);
    memcpy(last, s->rest, have);
    last[have] = 0x80;
    be_put(last + blocks * SHA256_BLOCK - 8, 8, bytes << 3);
    sha256_block_one(h, last, blocks);
    for (int i = 0; i < SHA256_WORDS; i++) {
        be_put(out + (ptrdiff_t)4 * i, 4, h[i]);
    }
}

/* --- either --- */

void sha256_init(struct sha256 *s, enum sha256_way way)
{
    *s = (struct sha256){.way = way};
    memcpy(s->whole, beginning, sizeof s->whole);
    if (way == SHA256_BY_OPENSSL) {
        s->whole_md = md_new();
    }
}

void sha256_copy(const struct sha256 *from, struct sha256 *to)
{
    *to = *from;
    if (from->way == SHA256_BY_OPENSSL) {
        to->whole_md = md_copy(from->whole_md);
        to->part_md = from->part_md != NULL ? md_copy(from->part_md) : NULL;
    }
}

void sha256_add(struct sha256 *s, const void *p, size_t n)
{
    if (n == 0) {
        return;
    }
    if (s->way == SHA256_BY_CPU) {
        cpu_add(s, p, n);
    } else {
        md_add(s, p, n);
    }
    s->count += n;
}

void sha256_part_begin(struct sha256 *s)
{
    CHECK(s->count % SHA256_BLOCK == 0);
    s->parted = true;
    s->part_at = s->count;
    memcpy(s->part, beginning, sizeof s->part);
    if (s->way == SHA256_BY_OPENSSL) {
        EVP_MD_CTX_free(s->part_md);
        s->part_md = md_new();
    }
}

void sha256_part_end(struct sha256 *s, uint8_t out[SHA256_BYTES])
{
    CHECK(s->parted);
    s->parted = false;
    if (s->way == SHA256_BY_CPU) {
        close_state(s, s->part, s->count - s->part_at, out);
    } else {
        CHECK(EVP_DigestFinal_ex(s->part_md, out, NULL) == 1);
    }
}

void sha256_so_far(const struct sha256 *s, uint8_t out[SHA256_BYTES])
{
    if (s->way == SHA256_BY_CPU) {
        close_state(s, s->whole, s->count, out);
    } else {
        EVP_MD_CTX *c = md_copy(s->whole_md);
        CHECK(EVP_DigestFinal_ex(c, out, NULL) == 1);
        EVP_MD_CTX_free(c);
    }
}

void sha256_fini(struct sha256 *s)
{
    EVP_MD_CTX_free(s->whole_md);
    EVP_MD_CTX_free(s->part_md);
    s->whole_md = s->part_md = NULL;
}

/* --- which --- */

/* The whole and a part of some bytes. */
static void sample(enum sha256_way way, uint8_t out[2 * SHA256_BYTES])
{
    enum { BYTES = 1000, BEGIN = 192 };
    uint8_t p[BYTES];
    struct sha256 s;

    for (int i = 0; i < BYTES; i++) {
        p[i] = (uint8_t)(i * 31 + i / 7);
    }
    sha256_init(&s, way);
    sha256_add(&s, p, BEGIN);
    sha256_part_begin(&s);
    sha256_add(&s, p + BEGIN, BYTES - BEGIN);
    sha256_part_end(&s, out);
    sha256_so_far(&s, out + SHA256_BYTES);
    sha256_fini(&s);
}

static enum sha256_way best;

static void choose_once(void)
{
    uint8_t ours[2 * SHA256_BYTES], theirs[2 * SHA256_BYTES];

    if (!sha256_block_here()) {
        return;
    }
    sample(SHA256_BY_CPU, ours);
    sample(SHA256_BY_OPENSSL, theirs);
    best = memcmp(ours, theirs, sizeof ours) == 0 ? SHA256_BY_CPU : SHA256_BY_OPENSSL;
}

enum sha256_way sha256_best(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose_once);
    return best;
}
