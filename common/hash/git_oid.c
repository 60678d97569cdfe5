#include "common/hash/git_oid.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/os/newfile.h"

enum { READ_BYTES = 256 << 10 };

bool git_oid_parse(struct slice hex, struct git_oid *out)
{
    return slice_hex(hex, out->b, GIT_OID_BYTES);
}

void git_oid_format(const struct git_oid *o, char out[GIT_OID_HEX + 1])
{
    static const char hex[] = "0123456789abcdef";

    for (int i = 0; i < GIT_OID_BYTES; i++) {
        out[2 * i] = hex[o->b[i] >> 4];
        out[2 * i + 1] = hex[o->b[i] & 15];
    }
    out[GIT_OID_HEX] = '\0';
}

bool git_oid_eq(const struct git_oid *a, const struct git_oid *b)
{
    return memcmp(a->b, b->b, GIT_OID_BYTES) == 0;
}

/* --- piece by piece --- */

struct git_hasher {
    EVP_MD_CTX *md;
};

struct git_hasher *git_hasher_new(uint64_t size_bytes)
{
    struct git_hasher *h = NEW(struct git_hasher);
    char head[32];
    int n = snprintf(head, sizeof head, "blob %" PRIu64, size_bytes);

    h->md = EVP_MD_CTX_new();
    CHECK(h->md != NULL && EVP_DigestInit_ex(h->md, EVP_sha1(), NULL) == 1);
    CHECK(EVP_DigestUpdate(h->md, head, (size_t)n + 1) == 1); /* with its NUL */
    return h;
}

void git_hasher_add(struct git_hasher *h, struct slice bytes)
{
    CHECK(EVP_DigestUpdate(h->md, bytes.p, bytes.n) == 1);
}

void git_hasher_final(struct git_hasher *h, struct git_oid *out)
{
    CHECK(EVP_DigestFinal_ex(h->md, out->b, NULL) == 1);
}

void git_hasher_free(struct git_hasher **hp)
{
    if (*hp != NULL) {
        EVP_MD_CTX_free((*hp)->md);
        free(*hp);
        *hp = NULL;
    }
}

/* --- at once --- */

static int hash_git_file(struct git_hasher *h, int fd, uint64_t size_bytes, struct err *e)
{
    char *p = malloc(READ_BYTES);
    int rc = 0;

    CHECK(p != NULL);
    for (uint64_t at = 0; rc == 0 && at < size_bytes;) {
        size_t n = size_bytes - at < READ_BYTES ? (size_t)(size_bytes - at) : READ_BYTES;
        rc = fd_pread_all(fd, p, n, at, e);
        if (rc == 0) {
            git_hasher_add(h, slice_of(p, n));
        }
        at += n;
    }
    free(p);
    return rc;
}

int git_oid_of_fd(int fd, uint64_t size_bytes, struct git_oid *out, struct err *e)
{
    struct git_hasher *h = git_hasher_new(size_bytes);
    int rc = hash_git_file(h, fd, size_bytes, e);

    if (rc == 0) {
        git_hasher_final(h, out);
    }
    git_hasher_free(&h);
    return rc;
}

void git_oid_of(struct slice bytes, struct git_oid *out)
{
    struct git_hasher *h = git_hasher_new(bytes.n);

    git_hasher_add(h, bytes);
    git_hasher_final(h, out);
    git_hasher_free(&h);
}
