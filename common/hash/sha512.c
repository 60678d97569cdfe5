#include "common/hash/sha512.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "common/os/newfile.h"

enum { READ_BYTES = 1 << 20 };

bool sha512_eq(const struct sha512 *a, const struct sha512 *b)
{
    return memcmp(a->b, b->b, SHA512_BYTES) == 0;
}

void sha512_of(struct slice bytes, struct sha512 *out)
{
    CHECK(EVP_Digest(bytes.p != NULL ? bytes.p : "", bytes.n, out->b, NULL, EVP_sha512(), NULL) ==
          1);
}

int sha512_of_fd(int fd, uint64_t size_bytes, struct sha512 *out, struct err *e)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    char *p = malloc(READ_BYTES);
    int rc = 0;

    CHECK(md != NULL && p != NULL && EVP_DigestInit_ex(md, EVP_sha512(), NULL) == 1);
    for (uint64_t at = 0; rc == 0 && at < size_bytes;) {
        size_t n = size_bytes - at < READ_BYTES ? (size_t)(size_bytes - at) : READ_BYTES;
        rc = fd_pread_all(fd, p, n, at, e);
        if (rc == 0) {
            CHECK(EVP_DigestUpdate(md, p, n) == 1);
        }
        at += n;
    }
    if (rc == 0) {
        CHECK(EVP_DigestFinal_ex(md, out->b, NULL) == 1);
    }
    free(p);
    EVP_MD_CTX_free(md);
    return rc;
}
