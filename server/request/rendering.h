/* rendering.h - documents that this server makes (a rewritten index page, a folder's listing), each
 * made once for all requests for it.
 *
 * A request that comes while the document is being made waits for it. A request that comes while
 * any other still uses it, or soon after, gets the same. Two documents are made at a time, in
 * memory, each within its own bound. The total of what is made and held is bounded, too: small
 * documents are in memory while its budget lasts, the others in files without a name, on the
 * store's account.
 *
 * owns     counted; a rendering is constant
 * threads  hold, release: any. rendering_ask(): the request's loop
 * errors   E_NOSPACE: neither memory nor the store has room
 */
#ifndef SERVER_REQUEST_RENDERING_H
#define SERVER_REQUEST_RENDERING_H

#include "server/request/request.h"

struct rendering {
    int fd; /* -1: `bytes` */
    const char *bytes;
    uint64_t size_bytes;
    struct slice content_type; /* static */
    char *next;                /* of a list: where the next part begins; NULL: there is none */
    char etag[32 + 3];         /* of its bytes: half of the digest is enough */
};

struct rendering_work {
    /* Writes to *out (its bound is set) and sets the type and `next` (malloc()ed). May block: it
     * runs on a maker's thread. */
    int (*make)(void *arg, struct buf *out, struct rendering *about, struct err *e);
    void (*free)(
        void *arg); /* called once: there, or on the loop when the document existed already */
};

struct renderings;
struct renderings *renderings_open(struct store *s, struct pool *disk);
/* key: everything that determines the document, except c's repo and its generation. p == NULL: a
 * key cannot express it, so the document is made for this request alone. Takes arg, which may point
 * into c. done() runs once, later, on c's loop, unless the client has disconnected. r is borrowed,
 * or NULL with rc and the reason. */
void rendering_ask(struct request *c, struct slice key, size_t bytes_max,
                   const struct rendering_work *what, void *arg,
                   void (*done)(struct request *c, struct rendering *r, int rc,
                                const struct err *why));
struct rendering *rendering_hold(struct rendering *r);
void rendering_release(struct rendering **rp); /* NULL is fine */

struct rendering_stats {
    uint64_t made, shared; /* shared: requests that another's document answered */
    uint64_t memory_bytes, file_bytes;
};
void renderings_stats(struct renderings *all, struct rendering_stats *out);
/* No request comes any more; work under way is finished and delivered. */
void renderings_stop(struct renderings *all);
void renderings_close(struct renderings **allp); /* all renderings are released */

#endif
