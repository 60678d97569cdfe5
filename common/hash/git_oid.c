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

static int add_file(EVP_MD_CTX *md, int fd, uint64_t size_bytes, struct err *e)
{
    char *p = malloc(READ_BYTES);
    int rc = 0;

    CHECK(p != NULL);
    for (uint64_t at = 0; rc == 0 && at < size_bytes;) {
        size_t n = size_bytes - at < READ_BYTES ? (size_t)(size_bytes - at) : READ_BYTES;
        rc = fd_pread_all(fd, p, n, at, e);
        if (rc == 0) {
            CHECK(EVP_DigestUpdate(md, p, n) == 1);
        }
        at += n;
    }
    free(p);
    return rc;
}

int git_oid_of_fd(int fd, uint64_t size_bytes, struct git_oid *out, struct err *e)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    char head[32];
    int n = snprintf(head, sizeof head, "blob %" PRIu64, size_bytes);
    int rc;

    CHECK(md != NULL && EVP_DigestInit_ex(md, EVP_sha1(), NULL) == 1);
    CHECK(EVP_DigestUpdate(md, head, (size_t)n + 1) == 1); /* with its NUL */
    rc = add_file(md, fd, size_bytes, e);
    if (rc == 0) {
        CHECK(EVP_DigestFinal_ex(md, out->b, NULL) == 1);
    }
    EVP_MD_CTX_free(md);
    return rc;
}

void git_oid_of(struct slice bytes, struct git_oid *out)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    char head[32];
    int n = snprintf(head, sizeof head, "blob %zu", bytes.n);

    CHECK(md != NULL && EVP_DigestInit_ex(md, EVP_sha1(), NULL) == 1);
    CHECK(EVP_DigestUpdate(md, head, (size_t)n + 1) == 1); /* with its NUL */
    CHECK(EVP_DigestUpdate(md, bytes.p, bytes.n) == 1);
    CHECK(EVP_DigestFinal_ex(md, out->b, NULL) == 1);
    EVP_MD_CTX_free(md);
}
