/* tls.h - the TLS settings of a listener: versions, ciphers, certificate, ALPN. wire.c handles the
 * bytes.
 *
 * TLS 1.2 and 1.3; AES-128-GCM first (14 % cheaper than 256); one ticket per handshake, no session
 * cache; "h2" before "http/1.1". A reload replaces certificate and key together; open sessions keep
 * theirs.
 *
 * owns     struct tls_identity, from tls_identity_open() to tls_identity_close()
 * threads  any
 * errors   E_CONFIG
 */
#ifndef SERVER_NET_TLS_H
#define SERVER_NET_TLS_H

#include <openssl/ssl.h>

#include "common/base/err.h"

struct tls_identity;

MUST_USE int tls_identity_open(const char *certificate, const char *key, struct tls_identity **out,
                               struct err *e);
/* Reads its files again, for tls_identity_begin() or tls_identity_forget(); until then nothing
 * changes. These three: one thread at a time. */
MUST_USE int tls_identity_reread(struct tls_identity *t, struct err *e);
/* New sessions use what was read last. */
void tls_identity_begin(struct tls_identity *t);
/* What was read again is not used. */
void tls_identity_forget(struct tls_identity *t);
void tls_identity_close(struct tls_identity **tp);
struct tls_validity { /* when all certificates of a chain are valid */
    int64_t begins_unix_s, expires_unix_s;
};
/* For the chain in use. */
struct tls_validity tls_identity_validity(const struct tls_identity *t);
/* True: this machine's own certificate authorities vouch for it, whether it is valid now or not.
 * False for a self-signed one, and for a private authority that clients must be given first. */
bool tls_identity_public(const struct tls_identity *t);
enum { TLS_EXPIRES_SOON_S = 14 * 24 * 3600 }; /* from then on the operator is warned */
/* True: not valid yet, about to expire, or expired. */
bool tls_validity_alarms(const struct tls_validity *v, int64_t now_unix_s);
enum { TLS_VALIDITY_TEXT = 64 };
/* "expires in 3d00h", "expired 2d00h ago", or "is not valid yet, for 1h00m". */
void tls_validity_format(const struct tls_validity *v, int64_t now_unix_s,
                         char out[TLS_VALIDITY_TEXT]);

/* E_CONFIG: the file has no certificate, so nothing can be verified with it. */
MUST_USE int tls_authorities_check(const char *path, struct err *e);

SSL *tls_session(struct tls_identity *t); /* the server's side, without a BIO */
bool tls_chose_h2(const SSL *ssl);        /* after the handshake */

#endif
