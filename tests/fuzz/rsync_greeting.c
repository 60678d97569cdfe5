/* rsync_greeting.c - fuzzes the lines before the frames: in pieces or whole the outcome is one, and
 * we say nothing unasked. */
#include "server/sync/rsync/handshake.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int feed(struct handshake *g, struct slice all, size_t step, size_t *left)
{
    int rc = 0;

    handshake_init(g, 31, SLICE("module"), SLICE("user"), SLICE("secret"));
    while (all.n > 0 && rc == 0 && !g->done) {
        struct slice piece = slice_first(all, all.n < step ? all.n : step);
        size_t before = piece.n;
        rc = handshake_feed(g, &piece, NULL);
        all = slice_from(all, before - piece.n);
        CHECK(rc != 0 || g->done || piece.n == 0);
    }
    *left = all.n;
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct handshake whole;
    struct handshake pieces;
    size_t left_whole;
    size_t left_pieces;
    int rc = feed(&whole, slice_of(p, n), n + 1, &left_whole);

    CHECK(feed(&pieces, slice_of(p, n), 1, &left_pieces) == rc);
    CHECK(whole.done == pieces.done && slice_eq(buf_slice(&whole.out), buf_slice(&pieces.out)));
    CHECK(rc != 0 || left_whole == left_pieces);
    CHECK(!whole.done || (whole.version >= 30 && whole.version <= 31 && rc == 0));
    CHECK(whole.motd.n <= HANDSHAKE_MOTD_MAX && whole.line.n <= HANDSHAKE_LINE_MAX);
    handshake_fini(&whole);
    handshake_fini(&pieces);
    return 0;
}
