#include "common/xfer/psk.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct psk right = {
    .identity = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    .key = {1, 2, 3}};

static bool find(void *arg, SSL *ssl, struct slice identity, uint8_t key[PSK_KEY_BYTES])
{
    unsigned *asked = arg;

    assert_non_null(ssl);
    ++*asked;
    memcpy(key, right.key, PSK_KEY_BYTES);
    return slice_eqs(identity, right.identity);
}

/* Both ends in turn until neither has more to say; true: both are content. */
static bool shake(SSL *client, SSL *server)
{
    BIO *a, *b;
    int rc_a = 0, rc_b = 0;

    assert_int_equal(BIO_new_bio_pair(&a, 0, &b, 0), 1);
    SSL_set_bio(client, a, a);
    SSL_set_bio(server, b, b);
    SSL_set_connect_state(client);
    SSL_set_accept_state(server);
    for (int i = 0; i < 20 && (rc_a != 1 || rc_b != 1); i++) {
        rc_a = rc_a == 1 ? 1 : SSL_do_handshake(client);
        rc_b = rc_b == 1 ? 1 : SSL_do_handshake(server);
    }
    ERR_clear_error();
    return rc_a == 1 && rc_b == 1;
}

static bool can_meet(SSL_CTX *client, SSL_CTX *server)
{
    SSL *a = SSL_new(client);
    SSL *b = SSL_new(server);
    bool ok = shake(a, b);

    SSL_free(a);
    SSL_free(b);
    SSL_CTX_free(client);
    SSL_CTX_free(server);
    return ok;
}

static bool meet(SSL_CTX *client, SSL_CTX *server)
{
    SSL *a = SSL_new(client);
    SSL *b = SSL_new(server);
    bool ok = shake(a, b);
    char text[8];

    if (ok) {
        assert_string_equal(SSL_get_version(a), "TLSv1.3");
        assert_string_equal(SSL_get_cipher_name(a), "TLS_AES_128_GCM_SHA256");
        assert_null(SSL_get0_peer_certificate(a));
        assert_int_equal(SSL_write(a, "hello", 6), 6);
        assert_int_equal(SSL_read(b, text, sizeof text), 6);
        assert_string_equal(text, "hello");
    }
    SSL_free(a);
    SSL_free(b);
    SSL_CTX_free(client);
    SSL_CTX_free(server);
    return ok;
}

static SSL_CTX *client_with(const struct psk *p)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

    SSL_CTX_set_verify(ctx, SSL_VERIFY_NONE, NULL); /* as libcurl is told */
    if (p != NULL) {
        psk_client(ctx, p);
    }
    return ctx;
}

static void test_who_has_the_key_comes_in(void **state)
{
    unsigned asked = 0;
    struct psk wrong = right;
    struct psk other = right;

    (void)state;
    assert_true(meet(client_with(&right), psk_server(find, &asked)));
    assert_int_equal(asked, 1);
    wrong.key[31] = 1;
    assert_false(meet(client_with(&wrong), psk_server(find, &asked)));
    other.identity[0] = 'x';
    assert_false(meet(client_with(&other), psk_server(find, &asked)));
    assert_int_equal(asked, 3);
    assert_false(meet(client_with(NULL), psk_server(find, &asked)));
}

static SSL_CTX *certified(void)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();

    X509_gmtime_adj(X509_getm_notBefore(cert), 0);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    assert_int_equal(SSL_CTX_use_certificate(ctx, cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
    X509_free(cert);
    EVP_PKEY_free(key);
    return ctx;
}

/* Whatever else it shows: without the key a server is nobody's. */
static void test_a_certificate_is_no_key(void **state)
{
    (void)state;
    assert_true(can_meet(client_with(NULL),
                         certified())); /* it is one that a client who checks nothing takes */
    assert_false(can_meet(client_with(&right), certified()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_has_the_key_comes_in),
        cmocka_unit_test(test_a_certificate_is_no_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
