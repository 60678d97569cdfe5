/* ssl.c - what common/xfer/psk.c and agent/peers call of libssl, forwarded (lazy.h). libcurl brings
 * the same one along. */
#include <openssl/ssl.h>

#include "agent/lazy/lazy.h"

static struct lazy_library ssl = {.file = "libssl.so.3", .package = "libssl3"};

LAZY(ssl, const SSL_METHOD *, TLS_server_method, (void), ())
LAZY(ssl, SSL_CTX *, SSL_CTX_new, (const SSL_METHOD *m), (m))
LAZY(ssl, void, SSL_CTX_free, (SSL_CTX * c), (c))
LAZY(ssl, long, SSL_CTX_ctrl, (SSL_CTX * c, int what, long n, void *p), (c, what, n, p))
LAZY(ssl, uint64_t, SSL_CTX_set_options, (SSL_CTX * c, uint64_t options), (c, options))
LAZY(ssl, int, SSL_CTX_set_ciphersuites, (SSL_CTX * c, const char *names), (c, names))
LAZY(ssl, int, SSL_CTX_set_num_tickets, (SSL_CTX * c, size_t n), (c, n))
LAZY(ssl, int, SSL_CTX_set_ex_data, (SSL_CTX * c, int slot, void *p), (c, slot, p))
LAZY(ssl, void *, SSL_CTX_get_ex_data, (const SSL_CTX *c, int slot), (c, slot))
LAZY(ssl, void, SSL_CTX_set_verify, (SSL_CTX * c, int mode, SSL_verify_cb cb), (c, mode, cb))
LAZY(ssl, void, SSL_CTX_set_cert_verify_callback,
     (SSL_CTX * c, int (*cb)(X509_STORE_CTX *, void *), void *arg), (c, cb, arg))
LAZY(ssl, void, SSL_CTX_set_psk_use_session_callback, (SSL_CTX * c, SSL_psk_use_session_cb_func cb),
     (c, cb))
LAZY(ssl, void, SSL_CTX_set_psk_find_session_callback,
     (SSL_CTX * c, SSL_psk_find_session_cb_func cb), (c, cb))

LAZY(ssl, const SSL_CIPHER *, SSL_CIPHER_find, (SSL * s, const unsigned char *id), (s, id))
LAZY(ssl, SSL_SESSION *, SSL_SESSION_new, (void), ())
LAZY(ssl, int, SSL_SESSION_set1_master_key, (SSL_SESSION * s, const unsigned char *p, size_t n),
     (s, p, n))
LAZY(ssl, int, SSL_SESSION_set_cipher, (SSL_SESSION * s, const SSL_CIPHER *c), (s, c))
LAZY(ssl, int, SSL_SESSION_set_protocol_version, (SSL_SESSION * s, int version), (s, version))

LAZY(ssl, SSL *, SSL_new, (SSL_CTX * c), (c))
LAZY(ssl, void, SSL_free, (SSL * s), (s))
LAZY(ssl, SSL_CTX *, SSL_get_SSL_CTX, (const SSL *s), (s))
LAZY(ssl, int, SSL_set_fd, (SSL * s, int fd), (s, fd))
LAZY(ssl, int, SSL_set_ex_data, (SSL * s, int slot, void *p), (s, slot, p))
LAZY(ssl, void *, SSL_get_ex_data, (const SSL *s, int slot), (s, slot))
LAZY(ssl, void, SSL_set_accept_state, (SSL * s), (s))
LAZY(ssl, int, SSL_accept, (SSL * s), (s))
LAZY(ssl, int, SSL_read, (SSL * s, void *p, int n), (s, p, n))
LAZY(ssl, int, SSL_write, (SSL * s, const void *p, int n), (s, p, n))
LAZY(ssl, int, SSL_shutdown, (SSL * s), (s))
LAZY(ssl, int, SSL_get_error, (const SSL *s, int rc), (s, rc))
