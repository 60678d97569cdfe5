/* limits.h - which `limit` block a client falls under. Immutable, counted: a reload swaps the whole.
 *
 * threads  any
 */
#ifndef SERVER_GATE_LIMITS_H
#define SERVER_GATE_LIMITS_H

#include "server/gate/gate.h"

struct limits;

struct limits *limits_new(const struct limit_conf *conf, size_t count); /* copies */
struct limits *limits_hold(struct limits *ls);
void limits_release(struct limits **lp);
/* The token's own, else the narrowest network's, else, without a token (name.n == 0), `anonymous`; or NULL. */
const struct limit_conf *limits_find(const struct limits *ls, struct slice token_name,
                                     const uint8_t address[16]);

#endif
