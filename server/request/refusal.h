/* refusal.h - answers of requests that never get a plan: what happened, why, and what to do.
 *
 * threads  the loop of the exchange
 */
#ifndef SERVER_REQUEST_REFUSAL_H
#define SERVER_REQUEST_REFUSAL_H

#include "server/gate/gate.h"
#include "server/http/exchange.h"

/* The body of an answer that consists of one sentence, and its fields: plain text, or a page for a
 * browser. r has its status; text may be a copy in a. */
struct slice refusal_words(const struct http_req *req, struct slice text, struct arena *a,
                           struct http_reply *r);
void refuse(struct exchange *x, int status, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Adds the challenges of a 401: a token as the password of Basic, or as a Bearer. They are two
 * fields, because Chromium accepts neither when both are in one. */
void refusal_challenge(struct http_reply *r);
/* Answers 403 to a write from a page of another web origin. False: it is not one, and the request
 * continues. public_url: our URL as clients know it, beside the host that they requested; or
 * NULL. */
bool refuse_cross_site(struct exchange *x, const struct http_req *req, const char *public_url);
/* /-/logout, 401: a browser drops the credentials that it sent. */
void refuse_login(struct exchange *x);
/* 405, with the allowed methods (RFC 9110 15.5.6). */
void refuse_method(struct exchange *x, struct slice allow, struct slice text);
void refuse_token(struct exchange *x, const char *why); /* 401 */
/* 503, with Retry-After: 1. */
void refuse_busy(struct exchange *x, const char *why);
/* The same, to the client whose requests hold the most memory. */
void refuse_memory(struct exchange *x);
void refuse_rate_limited(struct exchange *x, const struct gate_decision *g); /* 429 */

#endif
