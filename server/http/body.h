/* body.h - the bytes of an answer, whatever their source: memory, a range of a file, a file that is
 * still growing.
 *
 * The connection that sends a body asks body->ops->poll() how far it may send. It reads memory at
 * `bytes`, or the file `fd` with sendfile or pread at the absolute offset. A growing body without
 * new bytes keeps `wake` and calls it, on the loop that it was made for, when there are more (or
 * when it failed). Bytes before `off` have been sent.
 *
 * owns     the connection owns the body from exchange_reply() on and calls body_close() once
 * threads  one loop
 * errors   poll() returns a negative code: the answer must be cut off
 */
#ifndef SERVER_HTTP_BODY_H
#define SERVER_HTTP_BODY_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct body;

struct body_ops {
    /* NULL: everything in [off, end) may be sent now. Otherwise *upto is the absolute offset up to
     * which bytes may be sent now (== off: none yet, and wake() will come). Sets b->end when it was
     * LENGTH_UNKNOWN and has become known. Negative: failed, and the answer must be cut off
     * (RST_STREAM, or a close before Content-Length is reached). */
    int (*poll)(struct body *b, uint64_t *upto);
    void (*close)(struct body *b); /* frees it */
    /* Optional: where the bytes at `off` are, at most n of them: in memory at *bytes, valid until
     * the next call, or in the file at *at. NULL: at `off` itself, in memory or in the file. */
    size_t (*piece)(struct body *b, uint64_t off, size_t n, const char **bytes, uint64_t *at);
};

struct body {
    const struct body_ops *ops;
    uint64_t off; /* next byte to send, absolute in the representation */
    /* one past the last; LENGTH_UNKNOWN: not known yet, HTTP/1 sends it chunked */
    uint64_t end;
    int fd;            /* -1: bytes in memory */
    const char *bytes; /* of the representation's byte 0, when fd is -1 */
    bool unreadable;   /* the connection could not read the file: the answer was cut off */
    void (*wake)(void *arg);
    void *wake_arg;
};

struct blob;
struct body *body_of_bytes(struct slice s); /* copies */

/* Follows a growing body whose bytes are not sent: off moves to the bytes present. 1: all are
 * present; 0: wake() will come; negative: it failed. */
MUST_USE int body_follow(struct body *b);

/* Is it a contiguous part of a file, which can be sent by sendfile? */
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
