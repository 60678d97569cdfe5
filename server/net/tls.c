#include "server/net/tls.h"

#include <openssl/err.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/slice.h"
#include "common/codec/units.h"
#include "common/os/lock.h"

struct tls_pair { /* a certificate chain and its key, as they were read from their files */
    SSL_CTX *ctx;
    struct tls_validity valid; /* of ctx */
    bool public;               /* the system's authorities vouch for it */
};

struct tls_identity {
    struct lock lock; /* over pair: loops take references to its context while a reload swaps it */
    struct tls_pair *pair;
    struct tls_pair *fresh; /* read again, and not in force yet; or NULL */
    char *certificate;
    char *key;
};

static int server_tls_error(struct err *e, const char *what, const char *path)
{
    char why[160];

    ERR_error_string_n(ERR_peek_last_error(), why, sizeof why);
    ERR_clear_error();
    return err_set(e, E_CONFIG, "%s: %s: %s", path, what, why);
}

static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_n,
                       const unsigned char *in, unsigned in_n, void *arg)
{
    static const unsigned char ours[] = "\2h2\10http/1.1";
    unsigned char *chosen;

    (void)ssl;
    (void)arg;
    /* A peer that offers only what we do not speak gets an alert (RFC 7301 3.2). */
    if (SSL_select_next_proto(&chosen, out_n, ours, sizeof ours - 1, in, in_n) !=
        OPENSSL_NPN_NEGOTIATED) {
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static bool set_context(SSL_CTX *ctx)
{
    SSL_CTX_set_options(ctx, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA |
                                 SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_ENABLE_KTLS);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(ctx, 1); /* a record's header and body in one recv() */
    SSL_CTX_set_alpn_select_cb(ctx, choose_alpn, NULL);
    return SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_num_tickets(ctx, 1) == 1 &&
           SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                                         "TLS_CHACHA20_POLY1305_SHA256") == 1 &&
           SSL_CTX_set_cipher_list(ctx, "ECDHE+AES128+AESGCM:ECDHE+AESGCM:ECDHE+CHACHA20") == 1;
}

static int context_new(const char *certificate, const char *key, SSL_CTX **out, struct err *e)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    int rc = 0;

    CHECK(ctx != NULL);
    if (!set_context(ctx)) {
        rc = server_tls_error(e, "TLS settings", "openssl");
    } else if (SSL_CTX_use_certificate_chain_file(ctx, certificate) != 1) {
        rc = server_tls_error(e, "not a PEM certificate chain", certificate);
    } else if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1) {
        rc = server_tls_error(e, "not the certificate's PEM key", key);
    } else {
        *out = ctx;
        ctx = NULL;
    }
    SSL_CTX_free(ctx);
    return rc;
}

static int64_t unix_of(const ASN1_TIME *t)
{
    struct tm tm;

    return ASN1_TIME_to_tm(t, &tm) == 1 ? timegm(&tm) : 0;
}

static void narrow_validity(struct tls_validity *v, const X509 *cert)
{
    int64_t begins = unix_of(X509_get0_notBefore(cert)),
            expires = unix_of(X509_get0_notAfter(cert));

    v->begins_unix_s = begins > v->begins_unix_s ? begins : v->begins_unix_s;
    v->expires_unix_s = expires < v->expires_unix_s ? expires : v->expires_unix_s;
}

static struct tls_validity validity_of(SSL_CTX *ctx)
{
    struct tls_validity v = {INT64_MIN, INT64_MAX};
    STACK_OF(X509) *chain = NULL;

    narrow_validity(&v, SSL_CTX_get0_certificate(ctx));
    (void)SSL_CTX_get0_chain_certs(ctx, &chain);
    for (int i = 0; i < sk_X509_num(chain); i++) { /* -1 without a chain */
        narrow_validity(&v, sk_X509_value(chain, i));
    }
    return v;
}

/* One that has signed itself is its own authority, also where it was put among the system's. */
static bool is_public(SSL_CTX *ctx)
{
    X509 *cert = SSL_CTX_get0_certificate(ctx);
    X509_STORE *system = X509_STORE_new();
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    STACK_OF(X509) *chain = NULL;
    bool yes;

    CHECK(system != NULL && check != NULL);
    (void)SSL_CTX_get0_chain_certs(ctx, &chain);
    yes = X509_check_issued(cert, cert) != X509_V_OK && X509_STORE_set_default_paths(system) == 1 &&
          X509_STORE_CTX_init(check, system, cert, chain) == 1 &&
          X509_STORE_CTX_set_default(check, "ssl_server") == 1;
    if (yes) {
        X509_STORE_CTX_set_flags(check, X509_V_FLAG_NO_CHECK_TIME);
        yes = X509_verify_cert(check) == 1;
    }
    ERR_clear_error();
    X509_STORE_CTX_free(check);
    X509_STORE_free(system);
    return yes;
}

static int pair_read(const char *certificate, const char *key, struct tls_pair **out, struct err *e)
{
    SSL_CTX *ctx = NULL;
    int rc = context_new(certificate, key, &ctx, e);

    if (rc == 0) {
        *out = NEW(struct tls_pair);
        **out = (struct tls_pair){.ctx = ctx, .valid = validity_of(ctx), .public = is_public(ctx)};
    }
    return rc;
}

static void pair_free(struct tls_pair **pp)
{
    struct tls_pair *p = *pp;

    *pp = NULL;
    if (p != NULL) {
        SSL_CTX_free(p->ctx); /* counted: the last session frees it */
        free(p);
    }
}

int tls_identity_open(const char *certificate, const char *key, struct tls_identity **out,
                      struct err *e)
{
    struct tls_pair *pair;
    struct tls_identity *t;
    int rc;

    if (key == NULL) {
        return err_set(e, E_CONFIG, "%s: the certificate has no key; set tls_key", certificate);
    }
    rc = pair_read(certificate, key, &pair, e);
    if (rc != 0) {
        return rc;
    }
    t = NEW(struct tls_identity);
    lock_init(&t->lock, LOCK_LEAF);
    t->pair = pair;
    t->certificate = mem_strdup(certificate);
    t->key = mem_strdup(key);
    *out = t;
    return 0;
}

int tls_identity_reread(struct tls_identity *t, struct err *e)
{
    pair_free(&t->fresh);
    return pair_read(t->certificate, t->key, &t->fresh, e);
}

void tls_identity_begin(struct tls_identity *t)
{
    struct tls_pair *old;

    if (t->fresh == NULL) {
        return;
    }
    lock_take(&t->lock);
    old = t->pair;
    t->pair = t->fresh;
    lock_drop(&t->lock);
    t->fresh = NULL;
    pair_free(&old);
}

void tls_identity_forget(struct tls_identity *t)
{
    pair_free(&t->fresh);
}

struct tls_validity tls_identity_validity(const struct tls_identity *t)
{
    struct lock *lock = (struct lock *)(uintptr_t)&t->lock; /* nobody sees it change */
    struct tls_validity v;

    lock_take(lock);
    v = t->pair->valid;
    lock_drop(lock);
    return v;
}

bool tls_identity_public(const struct tls_identity *t)
{
    struct lock *lock = (struct lock *)(uintptr_t)&t->lock; /* nobody sees it change */
    bool yes;

    lock_take(lock);
    yes = t->pair->public;
    lock_drop(lock);
    return yes;
}

bool tls_validity_alarms(const struct tls_validity *v, int64_t now_unix_s)
{
    return v->begins_unix_s > now_unix_s || v->expires_unix_s - now_unix_s < TLS_EXPIRES_SOON_S;
}

void tls_validity_format(const struct tls_validity *v, int64_t now_unix_s,
                         char out[TLS_VALIDITY_TEXT])
{
    int64_t left_s = v->expires_unix_s - now_unix_s;
    char span[UNITS_TEXT];

    if (v->begins_unix_s > now_unix_s) {
        span_format((uint64_t)(v->begins_unix_s - now_unix_s) * 1000, span);
        snprintf(out, TLS_VALIDITY_TEXT, "becomes valid only in %s", span);
        return;
    }
    span_format((uint64_t)(left_s < 0 ? -left_s : left_s) * 1000, span);
    snprintf(out, TLS_VALIDITY_TEXT, "%s%s%s", left_s < 0 ? "expired " : "expires in ", span,
             left_s < 0 ? " ago" : "");
}

void tls_identity_close(struct tls_identity **tp)
{
    struct tls_identity *t = *tp;

    if (t == NULL) {
        return;
    }
    *tp = NULL;
    pair_free(&t->pair);
    pair_free(&t->fresh);
    lock_fini(&t->lock);
    free(t->certificate);
    free(t->key);
    free(t);
}

int tls_authorities_check(const char *path, struct err *e)
{
    X509_STORE *authorities = X509_STORE_new();
    STACK_OF(X509) * found;
    int rc;

    CHECK(authorities != NULL);
    rc = X509_STORE_load_file(authorities, path) == 1
             ? 0
             : server_tls_error(e, "the file contains no certificate", path);
    found = X509_STORE_get1_all_certs(authorities);
    if (rc == 0 && sk_X509_num(found) == 0) { /* a list of revocations alone */
        rc = err_set(e, E_CONFIG, "%s: the file contains no certificate", path);
    }
    sk_X509_pop_free(found, X509_free);
    X509_STORE_free(authorities);
    return rc;
}

SSL *tls_session(struct tls_identity *t)
{
    SSL_CTX *ctx;
    SSL *ssl;

    lock_take(&t->lock);
    ctx = t->pair->ctx;
    SSL_CTX_up_ref(ctx);
    lock_drop(&t->lock);
    ssl = SSL_new(ctx);
    SSL_CTX_free(ctx);
    CHECK(ssl != NULL);
    SSL_set_accept_state(ssl);
    return ssl;
}

bool tls_chose_h2(const SSL *ssl)
{
    const unsigned char *name;
    unsigned n;

    SSL_get0_alpn_selected(ssl, &name, &n);
    return slice_eq(slice_of(name, n), SLICE("h2"));
}
