/* rsync_mux.c - fuzzes frames: whole or byte by byte, the same data and the same messages; and what
 * we frame comes back. */
#include "server/sync/rsync/mux.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct seen {
    struct buf data;
    struct buf messages;
    int rc;
};

static void take(struct seen *s, struct slice all, size_t step)
{
    struct mux m;
    struct mux_piece piece;

    mux_init(&m);
    *s = (struct seen){.data = BUF_INIT(1 << 24), .messages = BUF_INIT(1 << 24)};
    while (all.n > 0 && s->rc >= 0) {
        struct slice in = slice_first(all, all.n < step ? all.n : step);
        all = slice_from(all, in.n);
        while ((s->rc = mux_next(&m, &in, &piece, NULL)) == 1) {
            if (piece.code == MUX_DATA) {
                buf_adds(&s->data, piece.bytes);
            } else {
                CHECK(piece.bytes.n <= MUX_TEXT_MAX);
                buf_byte(&s->messages, (uint8_t)piece.code);
                buf_adds(&s->messages, piece.bytes);
            }
        }
        CHECK(s->rc < 0 || in.n == 0);
    }
    mux_fini(&m);
}

static void drop(struct seen *s)
{
    buf_free(&s->data);
    buf_free(&s->messages);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct seen whole;
    struct seen pieces;
    struct buf framed = BUF_INIT(1 << 24);

    take(&whole, slice_of(p, n), n + 1);
    take(&pieces, slice_of(p, n), 1);
    CHECK((whole.rc < 0) == (pieces.rc < 0));
    CHECK(slice_eq(buf_slice(&whole.data), buf_slice(&pieces.data)));
    CHECK(slice_eq(buf_slice(&whole.messages), buf_slice(&pieces.messages)));
    drop(&whole);
    drop(&pieces);
    mux_put(&framed, MUX_DATA, slice_of(p, n));
    take(&whole, buf_slice(&framed), 7);
    CHECK(whole.rc == 0 && slice_eq(buf_slice(&whole.data), slice_of(p, n)));
    drop(&whole);
    buf_free(&framed);
    return 0;
}
