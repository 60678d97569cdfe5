/* psk.h - TLS 1.3 with a key that both ends hold already (RFC 8446 2.2, external PSK with ECDHE),
 * and nothing else.
 *
 * Neither end shows a certificate and neither takes one: who has not the key of the identity fails
 * the handshake, whatever else a context was told. The identity crosses the wire in the clear, the
 * key never does.
 *
 * owns     a context keeps a copy of the key; a server's `arg` outlives its context
 * threads  find() runs in the handshake, on whichever thread drives that
 */
#ifndef COMMON_XFER_PSK_H
#define COMMON_XFER_PSK_H

#include "common/base/slice.h"

struct ssl_ctx_st;
struct ssl_st;

enum { PSK_KEY_BYTES = 32, PSK_IDENTITY_MAX = 64 };

struct psk {
    char identity[PSK_IDENTITY_MAX + 1];
    uint8_t key[PSK_KEY_BYTES];
};

/* The client's end of a context that a library made: all that it was told of certificates is
 * void. */
void psk_client(struct ssl_ctx_st *ctx, const struct psk *p);

/* False: nobody of that name. Who came stands in SSL_get_app_data() where find() put it. */
typedef bool psk_find(void *arg, struct ssl_st *ssl, struct slice identity,
                      uint8_t key[PSK_KEY_BYTES]);
struct ssl_ctx_st *psk_server(psk_find *find, void *arg); /* SSL_CTX_free() */

#endif
