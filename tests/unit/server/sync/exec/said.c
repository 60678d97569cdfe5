/* The lines of the rsync program, in pieces of any size. */
#include "server/sync/exec/said.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static unsigned lines;

static void on_line(void *arg, struct slice line)
{
    (void)arg;
    assert_true(line.n > 0 && line.n <= 2000);
    lines++;
}

static void feed(struct said *s, const char *text, size_t step)
{
    struct slice all = slice_str(text);

    while (all.n > 0) {
        size_t n = all.n < step ? all.n : step;
        said_out(s, slice_first(all, n));
        all = slice_from(all, n);
    }
}

static void what_is_passed_over(void **state)
{
    static const char text[] = "skipping non-regular file \"d/pipe\"\n"
                               "new\\#012line is over max-size\n"
                               "a \"b\" is over max-size\n"
                               "back\\#134#012 is over max-size\n"
                               "\\#999 is over max-size\n"
                               "              3   0%    2.93kB/s    0:00:00\r"
                               "         123456  50%    2.93kB/s    0:00:00\r\n"
                               "sending incremental file list\n";
    struct said s;

    (void)state;
    for (size_t step = 1; step < 100; step += 7) {
        said_init(&s, on_line, NULL);
        feed(&s, text, step);
        assert_int_equal(said_sort(&s, NULL), 0);
        assert_int_equal(s.passed_count, 5);
        assert_int_equal(s.odd, 1);
        assert_int_equal(s.bytes, 123456);
        assert_true(said_passed(&s, "d/pipe") && said_passed(&s, "new\nline"));
        assert_true(said_passed(&s, "a \"b\"") && said_passed(&s, "back\\#012"));
        assert_true(said_passed(&s, "\\#999") && !said_passed(&s, "d"));
        said_fini(&s);
    }
}

static void lines_without_end(void **state)
{
    static char much[SAID_LINE_MAX * 2];
    struct said s;

    (void)state;
    memset(much, 'x', sizeof much);
    said_init(&s, on_line, NULL);
    said_out(&s, slice_of(much, sizeof much));
    said_out(&s, SLICE(" is over max-size\nfine is over max-size\n"));
    lines = 0;
    for (unsigned i = 0; i < 100; i++) {
        said_err(&s, slice_of(much, sizeof much));
        said_err(&s, SLICE("\n\n"));
    }
    said_err(&s, SLICE("the last has no end"));
    assert_int_equal(said_sort(&s, NULL), 0);
    assert_int_equal(lines, 101);
    assert_int_equal(s.passed_count, 1);
    assert_true(s.errors.n <= SAID_ERRORS_MAX + 2001 && s.errors.rc == 0);
    assert_true(slice_ends(buf_slice(&s.errors), SLICE("the last has no end\n")));
    said_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_passed_over),
        cmocka_unit_test(lines_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
