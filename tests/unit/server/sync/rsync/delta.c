#include "server/sync/rsync/delta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void it_is_in_flight_for_where_it_pays(void **state)
{
    struct delta d = {.given_up = 0};

    (void)state;
    assert_true(delta_pays(&d, SLICE("a/weights.bin"), 1 << 20, 1 << 20));
    assert_true(delta_pays(&d, SLICE("a.b/README"), 1 << 20, 1 << 20));
    assert_false(delta_pays(&d, SLICE("a/weights.bin"), 1000, 1 << 20));
    assert_false(delta_pays(&d, SLICE("a/weights.bin"), 1 << 20, 1000));
    assert_false(delta_pays(&d, SLICE("pool/x_1.0.deb"), 1 << 20, 1 << 20));
    assert_false(delta_pays(&d, SLICE("x.tar.zst"), 1 << 20, 1 << 20));
}

static void a_class_that_changes_whole_is_given_up(void **state)
{
    struct delta d = {.given_up = 0};
    unsigned bin = delta_class(SLICE("a/weights.bin"));

    (void)state;
    assert_int_equal(bin, delta_class(SLICE("other.bin")));
    delta_learn(&d, bin, 500, 1000);
    assert_true(delta_pays(&d, SLICE("other.bin"), 1 << 20, 1 << 20));
    delta_learn(&d, bin, 10, 1000);
    assert_false(delta_pays(&d, SLICE("other.bin"), 1 << 20, 1 << 20));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_in_flight_for_where_it_pays),
        cmocka_unit_test(a_class_that_changes_whole_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
