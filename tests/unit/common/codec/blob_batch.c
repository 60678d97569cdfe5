#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/codec/blob_batch.h"

/* "abc" as it comes, "-" absent, "!" alone, "." the end of a record; "?" an end that may not be,
 * "#" refused. */
static void tell(struct slice answer, size_t asked, size_t step_bytes, struct buf *out)
{
    struct blob_batch_reader r;
    struct slice some;
    int step = BLOB_BATCH_NEED;

    buf_clear(out);
    blob_batch_reader_init(&r, asked);
    while (step > 0 && answer.n != 0) {
        struct slice piece = slice_first(answer, answer.n < step_bytes ? answer.n : step_bytes);
        answer = slice_from(answer, piece.n);
        while ((step = blob_batch_next(&r, &piece, &some, NULL)) > 0 && step != BLOB_BATCH_NEED) {
            buf_adds(out, some);
            buf_str(out, step == BLOB_BATCH_WHOLE    ? "."
                         : step != BLOB_BATCH_RECORD ? ""
                         : r.n == BLOB_BATCH_ABSENT  ? "-"
                         : r.n == BLOB_BATCH_ALONE   ? "!"
                                                     : "");
        }
    }
    if (step < 0) {
        assert_int_equal(step, E_PROTOCOL);
        buf_str(out, "#");
    } else if (!blob_batch_between(&r)) {
        buf_str(out, "?");
    }
}

static void expect(struct slice answer, size_t asked, const char *reported)
{
    struct buf out = BUF_INIT(1 << 20);

    for (size_t step_bytes = 1; step_bytes <= answer.n + 1; step_bytes++) {
        tell(answer, asked, step_bytes, &out);
        assert_string_equal(buf_cstr(&out), reported);
    }
    buf_free(&out);
}

static void test_records(void **state)
{
    struct buf b = BUF_INIT(1 << 20);

    (void)state;
    blob_batch_put_head(&b, 3);
    buf_str(&b, "abc");
    blob_batch_put_head(&b, BLOB_BATCH_ABSENT);
    blob_batch_put_head(&b, 0);
    blob_batch_put_head(&b, BLOB_BATCH_ALONE);
    blob_batch_put_head(&b, 1);
    buf_str(&b, "d");
    expect(buf_slice(&b), 5, "abc.-.!d.");
    expect(buf_slice(&b), 1024, "abc.-.!d."); /* fewer than were asked for */
    expect(buf_slice(&b), 4, "abc.-.!#");
    expect(buf_slice(&b), 1, "abc.#");
    buf_free(&b);
}

static void test_ends(void **state)
{
    (void)state;
    expect(SLICE(""), 3, "");
    expect(SLICE("\0\0\0\3ab"), 3, "ab?");
    expect(SLICE("\0\0\0"), 3, "?");
    expect(SLICE("\0\0\0\1a\0"), 3, "a.?");
    expect(SLICE("\0\0\200\0"), 3, "?"); /* 32 KiB: the most */
    expect(SLICE("\0\0\200\1a"), 3, "#");
    expect(SLICE("\377\377\377\375a"), 3, "#");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
