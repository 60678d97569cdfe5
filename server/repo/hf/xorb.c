#include "server/repo/hf/xorb.h"

#include <lz4frame.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/endian.h"
#include "server/http/body.h"
#include "server/repo/repo.h"

enum { STEP = XORB_CHUNK_BYTES + XORB_HEAD_BYTES };

uint64_t xorb_framed(uint64_t plain)
{
    return plain + (plain + XORB_CHUNK_BYTES - 1) / XORB_CHUNK_BYTES * XORB_HEAD_BYTES;
}

uint64_t xorb_plain(uint64_t framed)
{
    uint64_t in_chunk = framed % STEP;

    return framed / STEP * XORB_CHUNK_BYTES +
           (in_chunk > XORB_HEAD_BYTES ? in_chunk - XORB_HEAD_BYTES : 0);
}

void xorb_piece(uint64_t plain_bytes, uint64_t framed, size_t n, struct xorb_piece *out)
{
    uint64_t chunk = framed / STEP * XORB_CHUNK_BYTES;
    uint64_t at = framed % STEP;
    uint32_t length = (uint32_t)min_u64(plain_bytes - chunk, XORB_CHUNK_BYTES);

    if (at < XORB_HEAD_BYTES) {
        *out = (struct xorb_piece){.n = (size_t)min_u64(n, XORB_HEAD_BYTES - at)};
        le_put(out->room + 1, 3, length);
        le_put(out->room + 5, 3, length);
        out->head = out->room + at;
    } else {
        at -= XORB_HEAD_BYTES;
        *out = (struct xorb_piece){.n = (size_t)min_u64(n, length - at), .plain = chunk + at};
    }
}

/* --- a file, framed as it leaves -------------------------------------------------------------- */

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
    /* A head goes with its chunk's first bytes, so nothing of a chunk that is not there yet has
     * left. */
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

/* --- what others wrote ------------------------------------------------------------------------ */

enum { AS_IT_IS, LZ4, GROUPED_LZ4, STORED_MAX = 2 * XORB_CHUNK_BYTES, GROUPS = 4 };

bool xorb_head(const uint8_t head[XORB_HEAD_BYTES], struct xorb_chunk *out)
{
    *out =
        (struct xorb_chunk){head[4], (uint32_t)le_get(head + 1, 3), (uint32_t)le_get(head + 5, 3)};
    return head[0] == 0 && out->stored != 0 && out->stored <= STORED_MAX && out->plain != 0 &&
           out->plain <= XORB_CHUNK_BYTES;
}

static int unpack_lz4(const struct xorb_chunk *c, const void *stored, void *plain, struct err *e)
{
    LZ4F_dctx *lz4 = NULL;
    const char *from = stored;
    size_t done = 0;
    size_t used = 0;
    size_t rc = LZ4F_createDecompressionContext(&lz4, LZ4F_VERSION);

    CHECK(!LZ4F_isError(rc));
    do {
        size_t room = c->plain - done;
        size_t left = c->stored - used;
        rc = LZ4F_decompress(lz4, (char *)plain + done, &room, from + used, &left, NULL);
        if (LZ4F_isError(rc) || (room == 0 && left == 0)) {
            break;
        }
        done += room;
        used += left;
    } while (rc != 0);
    LZ4F_freeDecompressionContext(lz4);
    if (rc != 0 || done != c->plain) {
        return err_set(e, E_CORRUPT, "a chunk of %u bytes cannot be decompressed", c->plain);
    }
    return 0;
}

/* Four planes, of every fourth byte each, behind one another. */
static void ungroup(const uint8_t *from, uint8_t *to, size_t n)
{
    for (size_t g = 0; g < GROUPS; g++) {
        for (size_t i = g; i < n; i += GROUPS) {
            to[i] = *from++;
        }
    }
}

int xorb_unpack(const struct xorb_chunk *c, const void *stored, void *plain, struct err *e)
{
    uint8_t *planes;
    int rc;

    switch (c->scheme) {
    case AS_IT_IS:
        if (c->stored != c->plain) {
            return err_set(e, E_CORRUPT, "an uncompressed chunk has two different sizes");
        }
        memcpy(plain, stored, c->plain);
        return 0;
    case LZ4:
        return unpack_lz4(c, stored, plain, e);
    case GROUPED_LZ4:
        planes = mem_new(c->plain);
        rc = unpack_lz4(c, stored, planes, e);
        if (rc == 0) {
            ungroup(planes, plain, c->plain);
        }
        free(planes);
        return rc;
    default:
        return err_set(e, E_UNSUPPORTED, "chunks are compressed with an unknown scheme: %u",
                       c->scheme);
    }
}
