/* Every CUDA kernel beside its CPU twin, on a GPU of the host's (tests/simt/simt.h), in three
 * orders of its threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/gpu/twins.h"
#ifdef HAVE_SIMT
#    include "tests/simt/device.h"

/* A thread costs some hundred times what it does on a GPU: shapes are smaller here, but for those
 * that decide the way. */
enum { ORDERS = 3, ROUNDS = 1, SHRINK = 2 };

static void holds(struct twins *c, const struct twin *t, enum dtype dt, unsigned order)
{
    if ((t->types & 1u << dt) != 0 && !twins_hold(c, t, dt, ROUNDS)) {
        fail_msg("%s, type %d, order %u: %g off, %s; %s", t->name, dt, order, c->worst,
                 c->trouble != NULL ? c->trouble : "nothing failed", c->told);
    }
}

static void rows_hold(const struct twin *t, unsigned order)
{
    struct twins c = {.k = simt_kops(), .seed = 1 + order, .shrink = SHRINK};

    simt_schedule(order);
    assert_int_equal(c.k->stream_open(&c.ks), 0);
    for (; t->name != NULL; t++) {
        holds(&c, t, DT_F32, order);
        holds(&c, t, DT_BF16, order);
        if (order == 0) { /* bf16's code but for the conversions */
            holds(&c, t, DT_F16, order);
        }
    }
    c.k->stream_close(&c.ks);
}

static void test_operations(void **state)
{
    (void)state;
    for (unsigned order = 0; order < ORDERS; order++) {
        rows_hold(twins_of_operations, order);
    }
}

#else
static void test_operations(void **state)
{
    (void)state;
    print_message("skipped: sanitizers do not understand threads that are fibers\n");
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
