#include "server/net/listener.h"

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], file[96];

/* A certificate that signed itself and its key, in one file. */
static void write_pair(long valid_s)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    FILE *f = fopen(file, "w");

    assert_non_null(f);
    X509_gmtime_adj(X509_getm_notBefore(cert), 0);
    X509_gmtime_adj(X509_getm_notAfter(cert), valid_s);
    X509_set_pubkey(cert, key);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    assert_int_equal(PEM_write_X509(f, cert), 1);
    assert_int_equal(PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL), 1);
    assert_int_equal(fclose(f), 0);
    X509_free(cert);
    EVP_PKEY_free(key);
}

static int setup(void **state)
{
    const char *tmp = getenv("TMPDIR");

    (void)state;
    snprintf(folder, sizeof folder, "%.40s/listener.XXXXXX", tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/pair.pem", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(file);
    return rmdir(folder);
}

static int64_t expires(const struct listener *l)
{
    return tls_identity_validity(listener_identity(l)).expires_unix_s;
}

static void a_certificate_is_read_again(void **state)
{
    const struct listener_settings set = {
        .address = "127.0.0.1:0", .tls_certificate = file, .tls_key = file};
    struct listener *l, *again;
    int64_t was;

    (void)state;
    write_pair(3600);
    assert_int_equal(listener_open(NULL, &set, &l, NULL), 0);
    was = expires(l);
    write_pair(7200);
    assert_int_equal(listener_open(l, &set, &again, NULL), 0);
    assert_ptr_equal(again, l);
    assert_int_equal(expires(l), was);
    listener_begin(again);
    assert_true(expires(l) > was);
    listener_release(&again);
    listener_release(&l);
}

/* A reload that failed elsewhere leaves nothing of the new certificate. */
static void a_certificate_that_is_not_used_is_forgotten(void **state)
{
    const struct listener_settings set = {
        .address = "127.0.0.1:0", .tls_certificate = file, .tls_key = file};
    struct listener *l, *again;
    int64_t was;

    (void)state;
    write_pair(3600);
    assert_int_equal(listener_open(NULL, &set, &l, NULL), 0);
    was = expires(l);
    write_pair(7200);
    assert_int_equal(listener_open(l, &set, &again, NULL), 0);
    listener_cancel(&again);
    assert_null(again);
    listener_begin(l);
    assert_int_equal(expires(l), was);
    listener_cancel(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_certificate_is_read_again, setup, teardown),
        cmocka_unit_test_setup_teardown(a_certificate_that_is_not_used_is_forgotten, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
