/* document.h - an answer's bytes as a whole: for index pages that a plan needs or that are rewritten before they leave.
 *
 * Waits until a filling answer is complete, then reads it on a pool thread. Bounded by the cache's document limit.
 */
#ifndef SERVER_SERVE_DOCUMENT_H
#define SERVER_SERVE_DOCUMENT_H

#include "server/serve/call.h"

struct document;
/* Takes the answer's count. What does not arrive whole is asked for again, once. work(): on a pool thread with the bytes; done(): on the loop (not after the client left). */
struct document_work {
    /* bytes live until free. Returns 0 or E_*. */
    int (*work)(void *arg, struct slice bytes, struct err *e);
    void (*done)(void *arg, struct call *c, int rc, const struct err *why);
    void (*free)(void *arg); /* always, last */
};
void document_read(struct call *c, struct answer *a, const struct document_work *w, void *arg);
void document_cancel(struct document **dp); /* NULL is fine */

#endif
