/* Every CUDA kernel beside its CPU twin, on a GPU of the host's (tests/simt/simt.h), in three orders of its threads. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/gpu/twins.h"
#ifdef HAVE_SIMT
#    include "tests/simt/device.h"

enum { ORDERS = 3, ROUNDS = 1 };

static void rows_hold(const struct twin *t, int rows, unsigned order)
{
    struct twins c = {.k = simt_kops(), .seed = 1 + order};

    simt_schedule(order);
    assert_int_equal(c.k->stream_open(&c.ks), 0);
    for (; t->name != NULL && rows > 0; t++, rows--) {
        if (!twins_hold(&c, t, ROUNDS, 1e-5)) {
            fail_msg("%s, order %u: %g off, %s", t->name, order, c.worst,
                     c.trouble != NULL ? c.trouble : "nothing failed");
        }
    }
    c.k->stream_close(&c.ks);
}

static void test_operations(void **state)
{
    (void)state;
    for (unsigned order = 0; order < ORDERS; order++) {
        rows_hold(twins_of_operations, INT_MAX, order);
    }
}

static void test_models(void **state)
{
    (void)state;
    rows_hold(twins_of_models, 1, 0); /* its runs are alike by nature */
}
#else
static void test_operations(void **state)
{
    (void)state;
    print_message("skipped: sanitizers do not understand threads that are fibers\n");
    skip();
}

static void test_models(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
