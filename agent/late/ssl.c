/* ssl.c - what common/xfer/psk.c and agent/peers call of libssl, forwarded (late.h). libcurl brings the same one along. */
#include <openssl/ssl.h>

#include "agent/late/late.h"

static struct late_library ssl = {.file = "libssl.so.3", .package = "libssl3"};

LATE(ssl, const SSL_METHOD *, TLS_server_method, (void), ())
LATE(ssl, SSL_CTX *, SSL_CTX_new, (const SSL_METHOD *m), (m))
LATE(ssl, void, SSL_CTX_free, (SSL_CTX * c), (c))
LATE(ssl, long, SSL_CTX_ctrl, (SSL_CTX * c, int what, long n, void *p), (c, what, n, p))
LATE(ssl, uint64_t, SSL_CTX_set_options, (SSL_CTX * c, uint64_t options), (c, options))
LATE(ssl, int, SSL_CTX_set_ciphersuites, (SSL_CTX * c, const char *names), (c, names))
LATE(ssl, int, SSL_CTX_set_num_tickets, (SSL_CTX * c, size_t n), (c, n))
LATE(ssl, int, SSL_CTX_set_ex_data, (SSL_CTX * c, int slot, void *p), (c, slot, p))
LATE(ssl, void *, SSL_CTX_get_ex_data, (const SSL_CTX *c, int slot), (c, slot))
LATE(ssl, void, SSL_CTX_set_verify, (SSL_CTX * c, int mode, SSL_verify_cb cb), (c, mode, cb))
LATE(ssl, void, SSL_CTX_set_cert_verify_callback,
     (SSL_CTX * c, int (*cb)(X509_STORE_CTX *, void *), void *arg), (c, cb, arg))
LATE(ssl, void, SSL_CTX_set_psk_use_session_callback, (SSL_CTX * c, SSL_psk_use_session_cb_func cb),
     (c, cb))
LATE(ssl, void, SSL_CTX_set_psk_find_session_callback,
     (SSL_CTX * c, SSL_psk_find_session_cb_func cb), (c, cb))

LATE(ssl, const SSL_CIPHER *, SSL_CIPHER_find, (SSL * s, const unsigned char *id), (s, id))
LATE(ssl, SSL_SESSION *, SSL_SESSION_new, (void), ())
LATE(ssl, int, SSL_SESSION_set1_master_key, (SSL_SESSION * s, const unsigned char *p, size_t n),
     (s, p, n))
LATE(ssl, int, SSL_SESSION_set_cipher, (SSL_SESSION * s, const SSL_CIPHER *c), (s, c))
LATE(ssl, int, SSL_SESSION_set_protocol_version, (SSL_SESSION * s, int version), (s, version))

LATE(ssl, SSL *, SSL_new, (SSL_CTX * c), (c))
LATE(ssl, void, SSL_free, (SSL * s), (s))
LATE(ssl, SSL_CTX *, SSL_get_SSL_CTX, (const SSL *s), (s))
LATE(ssl, int, SSL_set_fd, (SSL * s, int fd), (s, fd))
LATE(ssl, int, SSL_set_ex_data, (SSL * s, int slot, void *p), (s, slot, p))
LATE(ssl, void *, SSL_get_ex_data, (const SSL *s, int slot), (s, slot))
LATE(ssl, void, SSL_set_accept_state, (SSL * s), (s))
LATE(ssl, int, SSL_accept, (SSL * s), (s))
LATE(ssl, int, SSL_read, (SSL * s, void *p, int n), (s, p, n))
LATE(ssl, int, SSL_write, (SSL * s, const void *p, int n), (s, p, n))
LATE(ssl, int, SSL_shutdown, (SSL * s), (s))
LATE(ssl, int, SSL_get_error, (const SSL *s, int rc), (s, rc))
