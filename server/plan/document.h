/* document.h - reads the bytes of an answer as a whole, for index pages that a plan needs or that
 * are rewritten before they are sent.
 *
 * It waits on the loop until the answer is complete. A document is read on a pool thread and
 * bounded by the cache's document limit.
 *
 * owns     a document holds its answer, and so its file
 * threads  document_whole(), document_cancel(): the loop. A document: any, one at a time; reading
 *          blocks
 * errors   done() gets the code
 */
#ifndef SERVER_PLAN_DOCUMENT_H
#define SERVER_PLAN_DOCUMENT_H

#include "server/cache/cache.h"

struct document {
    struct answer *answer;
    int fd; /* -1: `bytes` */
    const char *bytes;
    size_t size_bytes;
};

/* Takes a, a 200. *slot is the wait while it lasts. done() runs once, possibly before this returns.
 * It takes d, which is NULL when rc is not 0. */
struct document_wait;
void document_whole(struct cache *c, struct loop *l, struct answer *a, struct document_wait **slot,
                    void (*done)(void *arg, struct document *d, int rc), void *arg);
void document_cancel(struct document_wait **dp); /* NULL is fine */
MUST_USE int document_read(const struct document *d, struct buf *out, struct err *e);
void document_free(struct document **dp);

#endif
