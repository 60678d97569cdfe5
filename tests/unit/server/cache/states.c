/* Which states of a fill, a filler and its writes follow which: all pairs, legal or not. */
#include "server/cache/fill.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void fills(void **state)
{
    (void)state;
    for (unsigned from = 0; from < FILL_STATES; from++) {
        for (unsigned to = 0; to < FILL_STATES; to++) {
            bool next = to == from + 1;
            bool ends = to == FILL_ENDED && from != FILL_ENDED;

            assert_int_equal(fill_may_become(from, to), next || ends);
        }
    }
}

static void fillers(void **state)
{
    static const char *const legal[FILLER_STATES] = {
        [FILLER_DUE] = ".xxx",
        [FILLER_ASKED] = "x.xx",
        [FILLER_OVER] = "x..x",
        [FILLER_STOPPED] = "....",
    };

    (void)state;
    for (unsigned from = 0; from < FILLER_STATES; from++) {
        for (unsigned to = 0; to < FILLER_STATES; to++) {
            assert_int_equal(filler_may_become(from, to), legal[from][to] == 'x');
        }
    }
}

static void writes(void **state)
{
    static const char *const legal[FILLER_WRITES] = {
        [FILLER_WRITES_NONE] = ".x.",
        [FILLER_WRITE_OUT] = "x.x",
        [FILLER_WRITE_HELD] = ".x.",
    };

    (void)state;
    for (unsigned from = 0; from < FILLER_WRITES; from++) {
        for (unsigned to = 0; to < FILLER_WRITES; to++) {
            assert_int_equal(filler_may_write(from, to), legal[from][to] == 'x');
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills),
        cmocka_unit_test(fillers),
        cmocka_unit_test(writes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
