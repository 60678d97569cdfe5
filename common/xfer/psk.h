/* psk.h - TLS 1.3 with a key that both ends already have (RFC 8446 2.2, external PSK with ECDHE),
 * and nothing else.
 *
 * Neither end sends or accepts a certificate: a peer without the identity's key fails the
 * handshake, whatever else was set in the context. The identity is sent in the clear, the key
 * never.
 *
 * owns     a context keeps a copy of the key; a server's `arg` outlives its context
 * threads  find() runs in the handshake, on the thread that runs it
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

/* Makes a library's context a client: its settings about certificates are void. */
void psk_client(struct ssl_ctx_st *ctx, const struct psk *p);

/* False: no such identity. find() stores the client's identity for SSL_get_app_data(). */
typedef bool psk_find(void *arg, struct ssl_st *ssl, struct slice identity,
                      uint8_t key[PSK_KEY_BYTES]);
struct ssl_ctx_st *psk_server(psk_find *find, void *arg); /* SSL_CTX_free() */

#endif
