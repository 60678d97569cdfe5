/* token.h - the tokens this server gave out: in memory all of them, in TABLE_TOKEN by the SHA-256 of their text.
 *
 * "mrd_" 8 hex digits (the id, no secret) "_" 43 letters and digits (256 bits) "_" 8 hex digits (CRC-32 of what stands
 * before): a scanner finds one that leaked, a typo is told from a stranger's.
 *
 * owns     a token found is held: token_release()
 * threads  any; tokens_open and changes block (the store)
 */
#ifndef SERVER_GATE_TOKEN_H
#define SERVER_GATE_TOKEN_H

#include "server/gate/gate.h"

struct tokens;

MUST_USE int tokens_open(struct store *s, struct tokens **out, struct err *e);
void tokens_close(struct tokens **tp);
bool token_shaped(struct slice text); /* begins as ours do */
/* E_DENIED with a reason that tells a stranger nothing about which tokens exist. */
MUST_USE int tokens_find(struct tokens *ts, struct slice text, uint64_t now_unix_s,
                         struct token **out, struct err *e);
/* Whoever else proved that it is who that token names. E_NOTFOUND: there is none, or it has expired. */
MUST_USE int tokens_named(struct tokens *ts, struct slice name, uint64_t now_unix_s,
                          struct token **out, struct err *e);
struct token *token_hold(struct token *t);
void token_release(struct token **tp);
struct slice token_name(const struct token *t);
const char *token_id(const struct token *t);
/* The i-th of its scopes; p == NULL: it has fewer. */
struct slice token_scope(const struct token *t, size_t i);
/* "mrd_", the id, "_": no secret. */
enum { TOKEN_SHOWN = 3 + 1 + 8 + 1 };
/* How much of s one of our tokens takes, as conda's clients may spell one, too ('-' for '_'); 0: none begins it. */
size_t token_bytes(struct slice s);
bool token_gives(const struct token *t, struct slice right, struct slice subject);

MUST_USE int tokens_create(struct tokens *ts, struct slice name, const char *const *scopes,
                           size_t count, uint64_t now_unix_s, uint64_t expires_unix_s,
                           char secret[TOKEN_TEXT], struct err *e);
MUST_USE int tokens_revoke(struct tokens *ts, struct slice name, struct err *e);
void tokens_each(struct tokens *ts, void (*each)(void *arg, const struct token_info *t), void *arg);

#endif
