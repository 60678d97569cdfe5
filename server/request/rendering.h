/* rendering.h - a document of our own making (an index page rewritten, a folder listed), made once
 * for all who ask for it.
 *
 * Who asks while it is being made waits for it, who asks while anybody has it, or soon after, gets
 * the same. Two are made at a time, in memory, each within its own bound. What is made and held is
 * bounded for all of them together: small ones lie in memory while its budget lasts, the others in
 * files without a name, on the store's account. When neither has room it is E_NOSPACE.
 *
 * owns     counted; a rendering is constant
 * threads  hold, release: any. rendering_ask: the call's loop
 */
#ifndef SERVER_REQUEST_RENDERING_H
#define SERVER_REQUEST_RENDERING_H

#include "server/request/request.h"

struct rendering {
    int fd; /* -1: `bytes` */
    const char *bytes;
    uint64_t size_bytes;
    struct slice content_type; /* static */
    char *next;                /* of a list: where it goes on; NULL: this is all of it */
    char etag[32 + 3];         /* of its bytes: half the digest is tag enough */
};

struct rendering_work {
    /* Writes to *out (its bound is set) and says the type, and what is next (malloc()ed). May
     * block: a maker's thread. */
    int (*make)(void *arg, struct buf *out, struct rendering *about, struct err *e);
    void (*free)(
        void *arg); /* once: there, or on the loop when somebody else's was there already */
};

struct renderings;
struct renderings *renderings_open(struct store *s, struct pool *disk);
/* key: what the document is made of, all of it, but for c's repo and its generation; p == NULL: of
 * more than a key can say, so it is made for this call alone. Takes arg, which may point to what is
 * c's. done() runs once, later, on c's loop, unless the client left: r is borrowed, or NULL and rc
 * says why. */
void rendering_ask(struct request *c, struct slice key, size_t bytes_max,
                   const struct rendering_work *what, void *arg,
                   void (*done)(struct request *c, struct rendering *r, int rc,
                                const struct err *why));
struct rendering *rendering_hold(struct rendering *r);
void rendering_release(struct rendering **rp); /* NULL is fine */

struct rendering_stats {
    uint64_t made, shared; /* shared: asks that another's answered */
    uint64_t memory_bytes, file_bytes;
};
void renderings_stats(struct renderings *all, struct rendering_stats *out);
void renderings_stop(
    struct renderings *all); /* nobody asks any more; what was asked is made and told */
void renderings_close(struct renderings **allp); /* all are released */

#endif
