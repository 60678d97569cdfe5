#include "server/sync/rsync/checksum.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <xxhash.h>
#if defined(__x86_64__)
#    include <xxh_x86dispatch.h> /* XXH3 with the widest vectors that this processor has */
#endif

#include "common/base/endian.h"

static const EVP_MD *fetched_md5; /* once: see common/hash/digest.c */

static void fetch_once(void)
{
    fetched_md5 = EVP_MD_fetch(NULL, "MD5", NULL);
    CHECK(fetched_md5 != NULL);
}

static const EVP_MD *md5(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fetch_once);
    return fetched_md5;
}

const char *checksum_name(enum checksum_kind k)
{
    switch (k) {
    case CHECKSUM_XXH128:
        return "xxh128";
    case CHECKSUM_XXH3:
        return "xxh3";
    case CHECKSUM_XXH64:
        return "xxh64";
    case CHECKSUM_MD5:
        return "md5";
    }
    return "?";
}

size_t checksum_bytes(enum checksum_kind k)
{
    return k == CHECKSUM_XXH3 || k == CHECKSUM_XXH64 ? 8 : 16;
}

static bool has_word(struct slice words, struct slice word)
{
    while (words.n > 0) {
        if (slice_eq(slice_cut(&words, ' '), word)) {
            return true;
        }
    }
    return false;
}

bool checksum_agree(struct slice clients, struct slice servers, enum checksum_kind *out)
{
    while (clients.n > 0) {
        struct slice word = slice_cut(&clients, ' ');
        for (int k = 0; k < CHECKSUM_KINDS; k++) {
            if (slice_eqs(word, checksum_name((enum checksum_kind)k)) && has_word(servers, word)) {
                *out = (enum checksum_kind)k;
                return true;
            }
        }
    }
    return false;
}

void checksum_init(struct checksum *c, enum checksum_kind k)
{
    c->kind = k;
    switch (k) {
    case CHECKSUM_XXH128:
    case CHECKSUM_XXH3:
        c->state = XXH3_createState();
        break;
    case CHECKSUM_XXH64:
        c->state = XXH64_createState();
        break;
    case CHECKSUM_MD5:
        c->state = EVP_MD_CTX_new();
        break;
    }
    CHECK(c->state != NULL);
    checksum_begin(c);
}

void checksum_begin(struct checksum *c)
{
    switch (c->kind) {
    case CHECKSUM_XXH128:
        XXH3_128bits_reset(c->state);
        break;
    case CHECKSUM_XXH3:
        XXH3_64bits_reset(c->state);
        break;
    case CHECKSUM_XXH64:
        XXH64_reset(c->state, 0);
        break;
    case CHECKSUM_MD5:
        CHECK(EVP_DigestInit_ex(c->state, md5(), NULL) == 1);
        break;
    }
}

void checksum_add(struct checksum *c, struct slice bytes)
{
    if (bytes.n == 0) {
        return;
    }
    switch (c->kind) {
    case CHECKSUM_XXH128:
        XXH3_128bits_update(c->state, bytes.p, bytes.n);
        break;
    case CHECKSUM_XXH3:
        XXH3_64bits_update(c->state, bytes.p, bytes.n);
        break;
    case CHECKSUM_XXH64:
        XXH64_update(c->state, bytes.p, bytes.n);
        break;
    case CHECKSUM_MD5:
        CHECK(EVP_DigestUpdate(c->state, bytes.p, bytes.n) == 1);
        break;
    }
}

static void put128(uint8_t *to, XXH128_hash_t h)
{
    le_put(to, 8, h.low64);
    le_put(to + 8, 8, h.high64);
}

void checksum_end(struct checksum *c, uint8_t out[CHECKSUM_BYTES_MAX])
{
    switch (c->kind) {
    case CHECKSUM_XXH128:
        put128(out, XXH3_128bits_digest(c->state));
        break;
    case CHECKSUM_XXH3:
        le_put(out, 8, XXH3_64bits_digest(c->state));
        break;
    case CHECKSUM_XXH64:
        le_put(out, 8, XXH64_digest(c->state));
        break;
    case CHECKSUM_MD5:
        CHECK(EVP_DigestFinal_ex(c->state, out, NULL) == 1);
        break;
    }
}

void checksum_fini(struct checksum *c)
{
    if (c->state == NULL) {
        return;
    }
    switch (c->kind) {
    case CHECKSUM_XXH128:
    case CHECKSUM_XXH3:
        XXH3_freeState(c->state);
        break;
    case CHECKSUM_XXH64:
        XXH64_freeState(c->state);
        break;
    case CHECKSUM_MD5:
        EVP_MD_CTX_free(c->state);
        break;
    }
    c->state = NULL;
}

static void block_md5(int32_t seed, bool seed_first, struct slice block, uint8_t *out)
{
    EVP_MD_CTX *x = EVP_MD_CTX_new();
    uint8_t s[4];
    size_t s_n = seed != 0 ? sizeof s : 0;

    le_put(s, sizeof s, (uint32_t)seed);
    CHECK(x != NULL && EVP_DigestInit_ex(x, md5(), NULL) == 1);
    CHECK(!seed_first || EVP_DigestUpdate(x, s, s_n) == 1);
    CHECK(EVP_DigestUpdate(x, block.p, block.n) == 1);
    CHECK(seed_first || EVP_DigestUpdate(x, s, s_n) == 1);
    CHECK(EVP_DigestFinal_ex(x, out, NULL) == 1);
    EVP_MD_CTX_free(x);
}

void checksum_block(enum checksum_kind k, int32_t seed, bool seed_first, struct slice block,
                    uint8_t out[CHECKSUM_BYTES_MAX])
{
    uint64_t wide = (uint64_t)(int64_t)seed; /* with its sign, as the peer widens it */

    switch (k) {
    case CHECKSUM_XXH128:
        put128(out, XXH3_128bits_withSeed(block.p, block.n, wide));
        break;
    case CHECKSUM_XXH3:
        le_put(out, 8, XXH3_64bits_withSeed(block.p, block.n, wide));
        break;
    case CHECKSUM_XXH64:
        le_put(out, 8, XXH64(block.p, block.n, wide));
        break;
    case CHECKSUM_MD5:
        block_md5(seed, seed_first, block, out);
        break;
    }
}
