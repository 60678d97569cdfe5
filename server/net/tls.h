/* tls.h - what a listener's TLS is: versions, ciphers, certificate, ALPN. The bytes are wire.c's
 * business.
 *
 * TLS 1.2 and 1.3; AES-128-GCM first (14 % cheaper than 256); one ticket a handshake, no session
 * cache; "h2" before "http/1.1". A reload swaps the whole pair: sessions under way keep the one
 * they began with.
 *
 * threads  any
 */
#ifndef SERVER_NET_TLS_H
#define SERVER_NET_TLS_H

#include <openssl/ssl.h>

#include "common/base/err.h"

struct tls_identity;

MUST_USE int tls_identity_open(const char *certificate, const char *key, struct tls_identity **out,
                               struct err *e);
/* Reads its files again, for tls_identity_begin(): until then nothing changes. One at a time. */
MUST_USE int tls_identity_reread(struct tls_identity *t, struct err *e);
/* New sessions have what was read last from now on. */
void tls_identity_begin(struct tls_identity *t);
void tls_identity_close(struct tls_identity **tp);
struct tls_validity { /* when all certificates of a chain are valid */
    int64_t begins_unix_s, expires_unix_s;
};
/* Of the chain that it serves now. */
struct tls_validity tls_identity_validity(const struct tls_identity *t);
/* This machine's own authorities vouch for it, whether it is valid now or not. Not self-signed, nor
 * of an authority of one's own that clients have to be given first. */
bool tls_identity_public(const struct tls_identity *t);
enum { TLS_EXPIRES_SOON_S = 14 * 24 * 3600 }; /* from then on the operator is warned */
/* It is not valid yet, expires soon, or has expired. */
bool tls_validity_alarms(const struct tls_validity *v, int64_t now_unix_s);
enum { TLS_VALIDITY_TEXT = 64 };
/* "expires in 3d00h", "expired 2d00h ago", or "is not valid yet, for 1h00m". */
void tls_validity_format(const struct tls_validity *v, int64_t now_unix_s,
                         char out[TLS_VALIDITY_TEXT]);

/* E_CONFIG: no certificate is in the file, so that it can vouch for nobody. */
MUST_USE int tls_authorities_check(const char *path, struct err *e);

SSL *tls_session(struct tls_identity *t); /* a server's end, no BIO yet */
bool tls_chose_h2(const SSL *ssl);        /* after the handshake */

#endif
