#include "common/xfer/psk.h"

#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <pthread.h>
#include <stdlib.h>

struct finder {
    psk_find *find;
    void *arg;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int client_slot = -1; /* of a context: its struct psk */
static int server_slot = -1; /* of a context: its struct finder */

static void free_psk(void *parent, void *p, CRYPTO_EX_DATA *ad, int slot, long l, void *arg)
{
    (void)parent, (void)ad, (void)slot, (void)l, (void)arg;
    if (p != NULL) {
        OPENSSL_cleanse(p, sizeof(struct psk));
        free(p);
    }
}

static void free_finder(void *parent, void *p, CRYPTO_EX_DATA *ad, int slot, long l, void *arg)
{
    (void)parent, (void)ad, (void)slot, (void)l, (void)arg;
    free(p);
}

static void make_slots(void)
{
    client_slot = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, free_psk);
    server_slot = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, free_finder);
    CHECK(client_slot != -1 && server_slot != -1);
}

/* An external key is a session to OpenSSL. The cipher names the hash that the key is for: RFC 8446
 * 4.2.11 has SHA-256 when nothing else was agreed. */
static SSL_SESSION *session_of(SSL *ssl, const uint8_t key[PSK_KEY_BYTES])
{
    static const uint8_t aes_128_gcm_sha256[] = {0x13, 0x01};
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
    SSL_SESSION *s = SSL_SESSION_new();

    CHECK(s != NULL && cipher != NULL);
    CHECK(SSL_SESSION_set1_master_key(s, key, PSK_KEY_BYTES) == 1 &&
          SSL_SESSION_set_cipher(s, cipher) == 1 &&
          SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION) == 1);
    return s;
}

static void set_both(SSL_CTX *ctx)
{
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    CHECK(SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
          SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) == 1 &&
          SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") ==
              1);
}

/* --- the client ------------------------------------------------------------------------------- */

static int use_session(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_n,
                       SSL_SESSION **out)
{
    const struct psk *p = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), client_slot);

    *out = NULL;
    if (md != NULL && !EVP_MD_is_a(md, "SHA256")) {
        return 1; /* a retry that settled on another hash: not with this key */
    }
    *out = session_of(ssl, p->key);
    *id = (const unsigned char *)p->identity;
    *id_n = strlen(p->identity);
    return 1;
}

static int refuse_certificate(X509_STORE_CTX *store, void *arg)
{
    (void)arg;
    X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);
    return 0;
}

void psk_client(SSL_CTX *ctx, const struct psk *p)
{
    struct psk *own = NEW(struct psk);

    CHECK(pthread_once(&once, make_slots) == 0);
    *own = *p;
    set_both(ctx);
    CHECK(SSL_CTX_set_ex_data(ctx, client_slot, own) == 1);
    SSL_CTX_set_psk_use_session_callback(ctx, use_session);
    /* A handshake with the key has no certificate in it; one that has is somebody else's. */
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_cert_verify_callback(ctx, refuse_certificate, NULL);
}

/* --- the server ------------------------------------------------------------------------------- */

static int find_session(SSL *ssl, const unsigned char *id, size_t id_n, SSL_SESSION **out)
{
    const struct finder *f = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), server_slot);
    uint8_t key[PSK_KEY_BYTES];

    *out = NULL;
    if (id_n <= PSK_IDENTITY_MAX && f->find(f->arg, ssl, slice_of(id, id_n), key)) {
        *out = session_of(ssl, key);
        OPENSSL_cleanse(key, sizeof key);
    }
    return 1; /* without a session OpenSSL goes on to certificates, has none, and ends it */
}

SSL_CTX *psk_server(psk_find *find, void *arg)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    struct finder *f = NEW(struct finder);

    CHECK(ctx != NULL && pthread_once(&once, make_slots) == 0);
    *f = (struct finder){find, arg};
    set_both(ctx);
    CHECK(SSL_CTX_set_ex_data(ctx, server_slot, f) == 1 && SSL_CTX_set_num_tickets(ctx, 0) == 1);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_psk_find_session_callback(ctx, find_session);
    return ctx;
}
