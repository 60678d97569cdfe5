#include "server/cluster/signature.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/hash/digest.h"

void signature_make(const char *secret, const char *purpose, struct slice text,
                    char out[SIGNATURE_ROOM])
{
    struct buf b = BUF_INIT(strlen(purpose) + 1 + text.n);
    struct digest d;
    unsigned n = DIGEST_BYTES;

    buf_str(&b, purpose);
    buf_byte(&b, ' ');
    buf_adds(&b, text);
    CHECK(b.rc == 0 && HMAC(EVP_sha256(), secret, (int)strlen(secret), (const unsigned char *)b.p,
                            b.n, d.b, &n) != NULL);
    digest_format(&d, out);
    buf_free(&b);
}

bool signature_is(const char *secret, const char *purpose, struct slice text,
                  struct slice signature)
{
    char hex[SIGNATURE_ROOM];

    signature_make(secret, purpose, text, hex);
    return signature.n == SIGNATURE_ROOM - 1 &&
           CRYPTO_memcmp(signature.p, hex, SIGNATURE_ROOM - 1) == 0;
}
