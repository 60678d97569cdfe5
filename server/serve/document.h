/* document.h - an answer's bytes as a whole: for index pages that a plan needs or that are rewritten before they leave.
 *
 * Waits on the loop until a filling answer is complete; what does not arrive whole is asked for again, once (call_again).
 * A document is read on a pool thread, and bounded by the cache's document limit.
 *
 * owns     a document holds its answer, and so its file
 * threads  document_await, document_cancel: the loop; a document: any, one at a time; reading blocks
 */
#ifndef SERVER_SERVE_DOCUMENT_H
#define SERVER_SERVE_DOCUMENT_H

#include "server/serve/call.h"

struct document {
    struct answer *answer;
    int fd; /* -1: `bytes` */
    const char *bytes;
    size_t size_bytes;
};

/* Takes a, a 200. ready() once, unless the client leaves or there is trouble: that is answered here. It takes d. */
void document_await(struct call *c, struct answer *a,
                    void (*ready)(struct call *c, struct document *d));
/* The same for whoever is no call: *slot is the wait while it lasts. done() once, maybe before this returns; it takes d, which
 * is NULL with rc. */
struct document_wait;
void document_whole(struct desk *k, struct answer *a, struct document_wait **slot,
                    void (*done)(void *arg, struct document *d, int rc), void *arg);
void document_cancel(struct document_wait **dp); /* NULL is fine */
MUST_USE int document_read(const struct document *d, struct buf *out, struct err *e);
void document_free(struct document **dp);

#endif
