/* opening.h - an answer before its first byte: its head waits with it.
 *
 * A fill may fail, or its origin become another, between its head and the bytes that a client asked for. While nothing was
 * sent nothing need be cut: the call asks the cache again, once, which begins anew, has something stale, or knows what to
 * say. Whoever has had a byte is cut, never spliced.
 */
#ifndef SERVER_SERVE_OPENING_H
#define SERVER_SERVE_OPENING_H

#include "server/serve/call.h"

struct opening;
/* Sends a freshly resolved answer as soon as there is a byte of it; keep: for the next too, when nothing forbids. Takes h. */
void opening_send(struct call *c, struct hot *h, bool keep);
void opening_cancel(struct opening **op); /* NULL is fine */

#endif
