/* body.h - the bytes of an answer, whatever they are: memory, a range of a file, a file that is
 * still growing.
 *
 * The connection that sends a body asks body->ops->poll() how far it may go; it reads memory at
 * `bytes`, or the file `fd` with sendfile/pread at the absolute offset. A growing body that has
 * nothing yet keeps `wake` and calls it, on the loop it was made for, when there is more (or when
 * it failed). Bytes before `off` have left.
 *
 * owns     the connection owns the body from exchange_reply() on and calls body_close() once
 * threads  one loop
 */
#ifndef SERVER_HTTP_BODY_H
#define SERVER_HTTP_BODY_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct body;

struct body_ops {
    /* NULL: everything in [off, end) may be sent now. Else: *upto = absolute offset up to which
     * bytes may be sent now (== off: nothing yet, wake() will come); sets b->end when it was
     * LENGTH_UNKNOWN and has become known. Negative: failed, the answer must be cut (RST_STREAM, or
     * close before Content-Length is reached). */
    int (*poll)(struct body *b, uint64_t *upto);
    void (*close)(struct body *b); /* frees it */
    /* Optional: where the bytes at `off` are, at most n of them: in memory at *bytes, which holds
     * until the next call, or in the file at *at. NULL: in either at `off` itself. */
    size_t (*piece)(struct body *b, uint64_t off, size_t n, const char **bytes, uint64_t *at);
};

struct body {
    const struct body_ops *ops;
    uint64_t off;      /* next byte to send, absolute in the representation */
    uint64_t end;      /* one past the last; LENGTH_UNKNOWN: not known yet, h1 sends it chunked */
    int fd;            /* -1: bytes in memory */
    const char *bytes; /* of the representation's byte 0, when fd is -1 */
    void (*wake)(void *arg);
    void *wake_arg;
};

struct blob;
struct body *body_of_bytes(struct slice s); /* copies */

/* Follows a growing body whose bytes are not sent: off moves as far as they have come. 1: all of it
 * is here; 0: wake() will come; negative: it failed. */
MUST_USE int body_follow(struct body *b);

/* A stretch of a file as it stands, for sendfile. */
static inline bool body_is_file(const struct body *b)
{
    return b->fd != -1 && b->ops->piece == NULL;
}

static inline void body_close(struct body **bp)
{
    if (*bp != NULL) {
        struct body *b = *bp;
        *bp = NULL;
        b->ops->close(b);
    }
}

#endif
