/* refusal.h - what stands between a request and its plan, in words: what, why, what to do. */
#ifndef SERVER_REQUEST_REFUSAL_H
#define SERVER_REQUEST_REFUSAL_H

#include "server/gate/gate.h"
#include "server/http/exchange.h"

/* The body of an answer that only says a sentence, and the fields that go with it: plain text, or a
 * page for a browser. r has its status; text may be a copy in a. */
struct slice refusal_words(const struct http_req *req, struct slice text, struct arena *a,
                           struct http_reply *r);
void refuse(struct exchange *x, int status, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* A 401's: a token as the password of Basic, or by itself. Two fields: of both in one, Chromium
 * takes neither. */
void refusal_challenge(struct http_reply *r);
/* 403: a write by a page of another web origin. False: it is none, and goes on. public_url: what
 * clients call us, beside the host that they asked; or NULL. */
bool refuse_cross_site(struct exchange *x, const struct http_req *req, const char *public_url);
/* /-/logout, 401: a browser drops the credentials that it sent. */
void refuse_login(struct exchange *x);
/* 405 names the methods that are taken (RFC 9110 15.5.6). */
void refuse_method(struct exchange *x, struct slice allow, struct slice text);
void refuse_token(struct exchange *x, const char *why); /* 401 */
/* 503: come again in a second. */
void refuse_busy(struct exchange *x, const char *why);
/* ... of a client whose requests hold most memory. */
void refuse_memory(struct exchange *x);
void refuse_rate_limited(struct exchange *x, const struct gate_decision *g); /* 429 */

#endif
