/* poke.h - tells the other mirrors that the log has a new entry, so that they read it now, or that
 * this one's state has changed, so that they read the list of mirrors now.
 *
 *   POST /-/cluster/poke?seq=<entry>     Mirrord-Poke: <HMAC-SHA256 of "poke <entry>", hex>
 *   204: it has applied that entry       202: not yet       403: another secret
 *
 * A mirror that has published waits for the answers up to POKE_WAIT_MS before it answers its
 * client. So a client that asks another mirror next finds what it has published. A mirror that does
 * not answer is left out for POKE_REST_MS, and reads the entry at its next poll.
 *
 *   POST /-/cluster/hello?node=<id>      Mirrord-Poke: <HMAC-SHA256 of "hello <id>", hex>
 *   204: it has read the list since      202: not yet       403: another secret
 *
 * A mirror that has started is not ready before the others have answered, or HELLO_WAIT_MS have
 * passed: until they know it, they pass no request on to it and do not poke it.
 *
 * A poke carries nothing that is secret, and one that is sent again does no harm: the signature
 * keeps strangers from making a mirror poll.
 *
 * owns     a thread and its connections
 * threads  any; poke_all() and poke_hello() block
 */
#ifndef SERVER_CLUSTER_POKE_H
#define SERVER_CLUSTER_POKE_H

#include "common/base/slice.h"
#include "server/cluster/member.h"

enum { POKE_WAIT_MS = 250, POKE_REST_MS = 10000, HELLO_WAIT_MS = 1000 };
#define POKE_FIELD "mirrord-poke"

struct poker;
struct poker *poker_open(const char *secret); /* copied */
void poker_close(struct poker **pp);          /* NULL is fine */
/* The number of mirrors that have applied the entry. */
size_t poke_all(struct poker *p, const struct member *to, size_t n, uint64_t seq);
/* The state of `node`, this one, has changed, and is in the bucket. */
void poke_hello(struct poker *p, const struct member *to, size_t n, const char *node);
/* That node is there again: it is poked at once. */
void poke_heard(struct poker *p, const char *node);

/* Whether the signature of a poke is right, and that of a hello. */
MUST_USE bool poke_is_ours(const struct poker *p, uint64_t seq, struct slice signature);
MUST_USE bool poke_hello_is_ours(const struct poker *p, struct slice node, struct slice signature);

#endif
