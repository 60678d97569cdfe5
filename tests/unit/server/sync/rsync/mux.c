#include "server/sync/rsync/mux.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void frames_in_any_pieces(void **state)
{
    struct buf b = BUF_INIT(4096);

    (void)state;
    mux_put(&b, MUX_DATA, SLICE("abc"));
    mux_put(&b, MUX_NOOP, SLICE_NONE);
    mux_put(&b, MUX_ERROR, SLICE("trouble"));
    mux_put(&b, MUX_DATA, SLICE("def"));
    for (size_t step = 1; step <= b.n; step++) {
        struct mux m;
        struct mux_piece piece;
        struct buf data = BUF_INIT(64);
        int messages = 0;
        mux_init(&m);
        for (size_t at = 0; at < b.n; at += step) {
            struct slice in = slice_of(b.p + at, b.n - at < step ? b.n - at : step);
            int rc;
            while ((rc = mux_next(&m, &in, &piece, NULL)) == 1) {
                if (piece.code == MUX_DATA) {
                    buf_adds(&data, piece.bytes);
                } else if (piece.code == MUX_ERROR) {
                    assert_true(slice_eq(piece.bytes, SLICE("trouble")));
                    messages++;
                } else {
                    assert_int_equal(piece.code, MUX_NOOP);
                    messages++;
                }
            }
            assert_int_equal(rc, 0);
        }
        assert_int_equal(messages, 2);
        assert_true(slice_eq(buf_slice(&data), SLICE("abcdef")));
        buf_free(&data);
        mux_fini(&m);
    }
    buf_free(&b);
}

static void frames_beyond_bounds(void **state)
{
    static const uint8_t v[][4] = {{0, 0, 0, 0},
                                   {0, 0, 0, 7 + 11},
                                   {1, 0, 1, 7 + 2},
                                   {0xff, 0xff, 0xff, 7 + 86},
                                   {0, 0, 0, 0xff}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        struct mux m;
        struct mux_piece piece;
        struct slice in = slice_of(v[i], 4);
        struct err e;
        mux_init(&m);
        assert_int_equal(mux_next(&m, &in, &piece, &e), E_PROTOCOL);
        mux_fini(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_in_any_pieces),
        cmocka_unit_test(frames_beyond_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
