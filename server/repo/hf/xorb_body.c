#include "server/repo/hf/xorb_body.h"

#include <stdlib.h>

#include "common/base/check.h"
#include "server/http/body.h"
#include "server/repo/hf/xorb.h"

struct xorb_body {
    struct body body;
    struct body *inner;
    uint64_t plain_bytes;
    struct xorb_piece piece;
};

static struct xorb_body *xorb_body_of(struct body *b)
{
    return CONTAINER_OF(b, struct xorb_body, body);
}

static void on_inner(void *arg)
{
    struct xorb_body *x = arg;

    if (x->body.wake != NULL) {
        x->body.wake(x->body.wake_arg);
    }
}

static int xorb_poll(struct body *b, uint64_t *upto)
{
    struct xorb_body *x = xorb_body_of(b);
    struct body *in = x->inner;
    uint64_t there = in->end;
    int rc = 0;

    in->off = xorb_plain(b->off);
    in->wake = on_inner;
    in->wake_arg = x;
    if (in->ops->poll != NULL && in->off < in->end) {
        rc = in->ops->poll(in, &there);
    }
    b->fd = in->fd;
    /* A head goes with its chunk's first bytes, so nothing of a chunk that is not there yet has left. */
    *upto = there >= in->end  ? b->end
            : there > in->off ? min_u64(xorb_framed(there), b->end)
                              : b->off;
    return rc;
}

static size_t xorb_bytes(struct body *b, uint64_t off, size_t n, const char **bytes, uint64_t *at)
{
    struct xorb_body *x = xorb_body_of(b);

    xorb_piece(x->plain_bytes, off, n, &x->piece);
    *at = x->piece.plain;
    if (x->piece.head != NULL) {
        *bytes = (const char *)x->piece.head;
    } else if (b->fd == -1) {
        *bytes = x->inner->bytes + x->piece.plain;
    }
    return x->piece.n;
}

static void xorb_close(struct body *b)
{
    struct xorb_body *x = xorb_body_of(b);

    body_close(&x->inner);
    free(x);
}

static struct body *xorb_body_new(struct body *inner, uint64_t plain_bytes, uint64_t first,
                                  uint64_t end)
{
    static const struct body_ops ops = {xorb_poll, xorb_close, xorb_bytes};
    struct xorb_body *x = NEW(struct xorb_body);

    x->body = (struct body){.ops = &ops, .off = first, .end = end, .fd = inner->fd};
    x->inner = inner;
    x->plain_bytes = plain_bytes;
    return &x->body;
}

const struct framing xorb_framing = {
    .framed = xorb_framed, .plain = xorb_plain, .body = xorb_body_new};
