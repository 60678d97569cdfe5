/* rsync_token.c - fuzzes answers to requests: whole or in pieces, the same events; no block beyond
 * the head that was told. */
#include "server/sync/rsync/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int take(struct slice all, size_t step, struct buf *seen)
{
    struct answer_reader a;
    struct buf carry = BUF_INIT(1 << 20);
    int rc = 0;

    answer_reader_init(&a, 16);
    while (all.n > 0 && rc >= 0) {
        struct slice rest;
        size_t piece = all.n < step ? all.n : step;
        buf_add(&carry, all.p, piece);
        all = slice_from(all, piece);
        rest = buf_slice(&carry);
        while ((rc = answer_next(&a, &rest, NULL)) > ANSWER_MORE) {
            if (rc == ANSWER_LITERAL) {
                CHECK(a.bytes.n > 0);
                buf_adds(seen, a.bytes);
                continue;
            }
            CHECK(rc != ANSWER_BLOCK || a.block < a.head.count);
            CHECK(rc != ANSWER_BEGIN || (a.index >= 0 && a.head.strong_bytes <= 16 &&
                                         a.head.remainder <= a.head.block_bytes));
            buf_addf(seen, "<%d %d %u>", rc, (int)a.index, (unsigned)a.block);
        }
        buf_drop(&carry, carry.n - rest.n);
        CHECK(rc < 0 || carry.n < 33000);
    }
    buf_free(&carry);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct buf whole = BUF_INIT(16 << 20);
    struct buf pieces = BUF_INIT(16 << 20);
    int rc = take(slice_of(p, n), n + 1, &whole);

    CHECK((take(slice_of(p, n), 1, &pieces) < 0) == (rc < 0));
    CHECK(slice_eq(buf_slice(&whole), buf_slice(&pieces)));
    buf_free(&whole);
    buf_free(&pieces);
    return 0;
}
