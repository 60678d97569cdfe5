#include "server/repo/capability.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <pthread.h>

#include "common/base/endian.h"
#include "common/base/check.h"
#include "common/codec/base64.h"

enum {
    KEY = 32,
    NONCE = 12,
    TAG = 16,
    TIME = 8,
    SEALED_MAX = NONCE + TIME + CAPABILITY_SECRET_MAX + TAG
};

static uint8_t key[KEY];
static bool is_shared;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void draw_key(void)
{
    CHECK(is_shared || RAND_bytes(key, KEY) == 1);
}

void capability_share_key(const char *secret)
{
    static const unsigned char purpose[] = "key of capabilities";
    unsigned n = KEY;

    CHECK(HMAC(EVP_sha256(), secret, (int)strlen(secret), purpose, sizeof purpose - 1, key, &n) !=
              NULL &&
          n == KEY);
    is_shared = true;
}

/* '+' and '/' mean something in URLs. */
static void swap(char *p, size_t n, const char *from, const char *to)
{
    for (size_t i = 0; i < n; i++) {
        p[i] = p[i] == from[0] ? to[0] : p[i] == from[1] ? to[1] : p[i];
    }
}

struct slice capability_seal(struct slice purpose, struct slice secret, uint64_t until_unix_s,
                             struct arena *a)
{
    uint8_t plain[TIME + CAPABILITY_SECRET_MAX];
    uint8_t out[SEALED_MAX];
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    size_t n = TIME + secret.n;
    char *text = arena_alloc(a, BASE64_ROOM(sizeof out));
    size_t length;
    int did;

    CHECK(c != NULL && secret.n <= CAPABILITY_SECRET_MAX);
    pthread_once(&once, draw_key);
    be_put(plain, 8, until_unix_s);
    if (secret.n != 0) {
        memcpy(plain + TIME, secret.p, secret.n);
    }
    CHECK(RAND_bytes(out, NONCE) == 1);
    CHECK(EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, key, out) == 1);
    CHECK(EVP_EncryptUpdate(c, NULL, &did, (const uint8_t *)purpose.p, (int)purpose.n) == 1);
    CHECK(EVP_EncryptUpdate(c, out + NONCE, &did, plain, (int)n) == 1);
    CHECK(EVP_EncryptFinal_ex(c, out + NONCE + n, &did) == 1);
    CHECK(EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, TAG, out + NONCE + n) == 1);
    EVP_CIPHER_CTX_free(c);
    OPENSSL_cleanse(plain, sizeof plain);
    base64_encode(out, NONCE + n + TAG, text);
    length = strcspn(text, "=");
    swap(text, length, "+/", "-_");
    return slice_of(text, length);
}

static bool decode_capability_text(struct slice text, uint8_t *out, size_t room, size_t *n)
{
    char padded[BASE64_ROOM(SEALED_MAX) + 4];
    size_t length = text.n;

    if (length >= sizeof padded - 4) {
        return false;
    }
    memcpy(padded, text.p, length);
    swap(padded, length, "-_", "+/");
    while (length % 4 != 0) {
        padded[length++] = '=';
    }
    return base64_decode(slice_of(padded, length), out, room, n);
}

bool capability_open(struct slice text, struct slice purpose, uint64_t now_unix_s, struct arena *a,
                     struct slice *secret)
{
    uint8_t in[SEALED_MAX];
    uint8_t plain[TIME + CAPABILITY_SECRET_MAX];
    EVP_CIPHER_CTX *c;
    size_t n;
    int did;
    bool good;

    if (text.n == 0 || !decode_capability_text(text, in, sizeof in, &n) || n < NONCE + TIME + TAG) {
        return false;
    }
    pthread_once(&once, draw_key);
    n -= NONCE + TAG;
    c = EVP_CIPHER_CTX_new();
    CHECK(c != NULL);
    CHECK(EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, key, in) == 1);
    CHECK(EVP_DecryptUpdate(c, NULL, &did, (const uint8_t *)purpose.p, (int)purpose.n) == 1);
    CHECK(EVP_DecryptUpdate(c, plain, &did, in + NONCE, (int)n) == 1);
    CHECK(EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG, in + NONCE + n) == 1);
    good = EVP_DecryptFinal_ex(c, plain + n, &did) == 1 && be_get(plain, 8) >= now_unix_s;
    EVP_CIPHER_CTX_free(c);
    if (good) {
        *secret = arena_copy(a, slice_of((const char *)plain + TIME, n - TIME));
    }
    OPENSSL_cleanse(plain, sizeof plain);
    return good;
}
