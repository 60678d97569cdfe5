#include "common/hash/sum.h"

#include <openssl/evp.h>
#include <stdlib.h>

static const struct {
    const char *name;
    enum sum_kind kind;
} names[] = {{"md5", SUM_MD5},       {"sha", SUM_SHA1},      {"sha1", SUM_SHA1},
             {"sha256", SUM_SHA256}, {"sha512", SUM_SHA512}, {"sha-1", SUM_SHA1},
             {"sha-256", SUM_SHA256}};

static size_t sum_bytes(enum sum_kind kind)
{
    switch (kind) {
    case SUM_NONE:
        return 0;
    case SUM_MD5:
        return 16;
    case SUM_SHA1:
        return 20;
    case SUM_SHA256:
        return 32;
    case SUM_SHA512:
        return 64;
    }
    return 0;
}

bool sum_parse(struct slice kind, struct slice hex, struct sum *out)
{
    *out = (struct sum){0};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (slice_ieq(kind, slice_str(names[i].name))) {
            out->kind = names[i].kind;
            return slice_hex(hex, out->b, sum_bytes(out->kind));
        }
    }
    return false;
}

bool sum_eq(const struct sum *a, const struct sum *b)
{
    return a->kind == b->kind && memcmp(a->b, b->b, SUM_BYTES) == 0;
}

bool sum_digest(const struct sum *s, struct digest *out)
{
    if (s->kind != SUM_SHA256) {
        return false;
    }
    memcpy(out->b, s->b, DIGEST_BYTES);
    return true;
}

struct summer {
    enum sum_kind kind;
    EVP_MD_CTX *ctx;
};

static const EVP_MD *method(enum sum_kind kind)
{
    switch (kind) {
    case SUM_NONE:
        break;
    case SUM_MD5:
        return EVP_md5();
    case SUM_SHA1:
        return EVP_sha1();
    case SUM_SHA256:
        return EVP_sha256();
    case SUM_SHA512:
        return EVP_sha512();
    }
    return NULL;
}

struct summer *summer_open(enum sum_kind kind)
{
    struct summer *m = NEW(struct summer);

    CHECK(kind != SUM_NONE);
    m->kind = kind;
    m->ctx = EVP_MD_CTX_new();
    CHECK(m->ctx != NULL && EVP_DigestInit_ex(m->ctx, method(kind), NULL) == 1);
    return m;
}

void summer_add(struct summer *m, struct slice bytes)
{
    CHECK(EVP_DigestUpdate(m->ctx, bytes.p, bytes.n) == 1);
}

void summer_final(struct summer *m, struct sum *out)
{
    unsigned n = 0;

    *out = (struct sum){.kind = m->kind};
    CHECK(EVP_DigestFinal_ex(m->ctx, out->b, &n) == 1 && n == sum_bytes(m->kind));
}

void summer_close(struct summer **mp)
{
    struct summer *m = *mp;

    *mp = NULL;
    if (m != NULL) {
        EVP_MD_CTX_free(m->ctx);
        free(m);
    }
}
