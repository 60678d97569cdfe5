/* refusal.h - what stands between a request and its plan, in words: what, why, what to do. */
#ifndef SERVER_SERVE_REFUSAL_H
#define SERVER_SERVE_REFUSAL_H

#include "server/gate/gate.h"
#include "server/http/exchange.h"

void refuse(struct exchange *x, int status, const char *fmt, ...) PRINTF_LIKE(3, 4);
#define REFUSAL_CHALLENGE "Basic realm=\"mirrord\", Bearer" /* of a 401 */
/* 405 names the methods that are taken (RFC 9110 15.5.6). */
void refuse_method(struct exchange *x, struct slice allow, struct slice text);
void refuse_token(struct exchange *x, const char *why); /* 401 */
/* 503: come again in a second. */
void refuse_busy(struct exchange *x, const char *why);
/* ... of a client whose requests hold most memory. */
void refuse_memory(struct exchange *x);
void refuse_haste(struct exchange *x, const struct gate_verdict *g); /* 429 */

#endif
