#include "kernels/bias.h"

#include "kernels/add.h"
#include "tests/unit/kernels/finite.h"

static void test_columns_are_summed_onto_db(void **state)
{
    double dy[6] = {1, 2, 3, 10, 20, 30}, db[3] = {100, 0, -1};

    (void)state;
    assert_int_equal(bias_backward_cpu(NULL, DT_F64, db, dy, 2, 3), 0);
    assert_true(db[0] == 111 && db[1] == 22 && db[2] == 32);
    assert_int_equal(bias_backward_cpu(NULL, DT_F64, db, dy, 0, 3), 0);
    assert_true(db[0] == 111);
}

static void test_add_in_place(void **state)
{
    float a[3] = {1, 2, 3}, b[3] = {10, 20, 30};

    (void)state;
    assert_int_equal(add_cpu(NULL, DT_F32, a, a, b, 3), 0);
    assert_true(a[0] == 11 && a[1] == 22 && a[2] == 33 && b[2] == 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns_are_summed_onto_db),
        cmocka_unit_test(test_add_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
