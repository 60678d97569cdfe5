#include "server/sync/pieces.h"

#include <stdlib.h>

#include "server/store/blob.h"

enum { PIECE_BYTES = 256 << 10 };
#define UNPACKED_BYTES ((uint64_t)8 << 30)

static int each_piece(struct store *s, const struct digest *d, struct unpack *u, struct err *e)
{
    char *piece = mem_new(PIECE_BYTES);
    struct blob *b = NULL;
    uint64_t at = 0;
    int rc = blob_open(s, d, &b, e);

    while (rc == 0 && at < blob_size_bytes(b)) {
        size_t n = (size_t)min_u64(PIECE_BYTES, blob_size_bytes(b) - at);
        rc = blob_read(b, at, piece, n, e);
        rc = rc != 0 ? rc : unpack_feed(u, slice_of(piece, n), e);
        at += n;
    }
    blob_release(&b);
    free(piece);
    return rc != 0 ? rc : unpack_finish(u, e);
}

int pieces_read(struct store *s, const struct digest *d, enum packing how,
                int (*feed)(void *arg, struct slice bytes, struct err *e), void *arg, struct err *e)
{
    struct unpack *u = unpack_open(how, feed, arg, UNPACKED_BYTES);
    int rc = each_piece(s, d, u, e);

    unpack_close(&u);
    return rc;
}

static int add_to_buf(void *arg, struct slice bytes, struct err *e)
{
    struct buf *b = arg;

    buf_adds(b, bytes);
    return b->rc == 0 ? 0 : err_set(e, E_TOOBIG, "the index is larger than %zu bytes", b->max);
}

int pieces_load(struct store *s, const struct digest *d, struct buf *out, struct err *e)
{
    return pieces_read(s, d, PACKING_NONE, add_to_buf, out, e);
}

static int add_to_sum(void *arg, struct slice bytes, struct err *e)
{
    (void)e;
    summer_add(arg, bytes);
    return 0;
}

int pieces_sum(struct store *s, const struct digest *d, enum sum_kind kind, struct sum *out,
               struct err *e)
{
    struct unpack *u;
    struct summer *m = summer_open(kind);
    int rc;

    u = unpack_open(PACKING_NONE, add_to_sum, m, UINT64_MAX);
    rc = each_piece(s, d, u, e);
    if (rc == 0) {
        summer_final(m, out);
    }
    unpack_close(&u);
    summer_close(&m);
    return rc;
}
