#include "agent/train/region.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static void test_names(void **state)
{
    const struct region r = {.row = 8, .rows = 4, .col = 2, .cols = 6, .from = 5, .n = 10};
    struct slice tensor;
    struct region back;
    char name[REGION_NAME];

    (void)state;
    region_name("exp_avg.", "h.0.w", &r, name);
    assert_string_equal(name, "exp_avg.h.0.w[8:12,2:8][5:15]");
    assert_true(region_parse(slice_str(name), &tensor, &back));
    assert_true(slice_eqs(tensor, "exp_avg.h.0.w"));
    assert_memory_equal(&back, &r, sizeof r);
}

static void test_hostile_names(void **state)
{
    static const char *const bad[] = {
        "",
        "w",
        "w[0:1,0:1]",
        "[0:1,0:1][0:1]",
        "w[0:1,0:1][0:2]",
        "w[0:1,0:1][0:1]x",
        "w[0:1,0:1][0:1",
        "w[0:1,0:1]0:1]",
        "w[0:1][0:1]",
        "w[1:1,0:1][0:1]",
        "w[2:1,0:1][0:1]",
        "w[0:1,0:1][1:1]",
        "w[-1:1,0:1][0:1]",
        "w[0:1,0:1][0:-1]",
        "w[0:9223372036854775807,0:2][0:1]",
        "w[0:2147483648,0:2147483648][0:1]",
        "w[0:18446744073709551616,0:1][0:1]",
    };
    struct slice tensor;
    struct region r;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (region_parse(slice_str(bad[i]), &tensor, &r)) {
            fail_msg("%s", bad[i]);
        }
    }
}

static int64_t below(int64_t n)
{
    return n <= 0 ? 0 : rand() % n;
}

static struct region some_region(int64_t rows, int64_t cols)
{
    struct region r = {.row = below(rows), .col = below(cols)};

    r.rows = 1 + below(rows - r.row);
    r.cols = 1 + below(cols - r.col);
    r.from = below(r.rows * r.cols);
    r.n = 1 + below(r.rows * r.cols - r.from);
    return r;
}

/* The number in the whole tensor, of so many columns, of element `at`. */
static int64_t number(const struct region *r, int64_t at, int64_t cols)
{
    int64_t flat = r->from + at;

    return (r->row + flat / r->cols) * cols + r->col + flat % r->cols;
}

/* Two of one tensor, element by element: a run is never wrong, and only empty where the other does
 * not have the element. */
static void test_runs(void **state)
{
    enum { ROWS = 7, COLS = 5 };

    (void)state;
    srand(1);
    for (int i = 0; i < 20000; i++) {
        struct region a = some_region(ROWS, COLS), b = some_region(ROWS, COLS);
        bool in_b[ROWS * COLS] = {false};

        if (i % 2 == 0) {
            b.row = a.row;
            b.rows = a.rows;
            b.col = a.col;
            b.cols = a.cols;
            b.n = b.from < b.rows * b.cols ? 1 + below(b.rows * b.cols - b.from) : 0;
        }
        for (int64_t at = 0; at < b.n; at++) {
            in_b[number(&b, at, COLS)] = true;
        }
        for (int64_t at = 0; at < a.n; at++) {
            int64_t there, run = region_run(&a, at, &b, &there);

            assert_int_equal(run > 0, in_b[number(&a, at, COLS)]);
            assert_true(at + run <= a.n && (run == 0 || there + run <= b.n));
            for (int64_t k = 0; k < run; k++) {
                assert_int_equal(number(&a, at + k, COLS), number(&b, there + k, COLS));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_hostile_names),
        cmocka_unit_test(test_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
