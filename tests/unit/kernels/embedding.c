#include "kernels/embedding.h"

#include "tests/unit/kernels/finite.h"

enum { ROWS = 10, SEQ = 5, COLS = 7, VOCAB = 4 };

static const int32_t token[ROWS] = {0, 3, 3, 1, 0, 0, 3, 1, 1, 3};

struct net {
    double *wte, *wpe, *y, *weight;
};

static double value(void *arg)
{
    struct net *t = arg;

    assert_int_equal(
        embedding_forward_cpu(NULL, DT_F64, t->y, token, t->wte, t->wpe, ROWS, SEQ, COLS), 0);
    return finite_dot(t->y, t->weight, ROWS * COLS);
}

static void differences(bool positions)
{
    struct net t = {finite_array(VOCAB * COLS), positions ? finite_array(SEQ * COLS) : NULL,
                    finite_zeros(ROWS * COLS), finite_array(ROWS * COLS)};
    double *dwte = finite_zeros(VOCAB * COLS), *dwpe = finite_zeros(SEQ * COLS);

    dwte[0] = 0;
    assert_int_equal(embedding_backward_cpu(NULL, DT_F64, dwte, positions ? dwpe : NULL, t.weight,
                                            token, ROWS, SEQ, COLS, VOCAB),
                     0);
    finite_check("dwte", value, &t, t.wte, dwte, 0, VOCAB * COLS);
    if (positions) {
        finite_check("dwpe", value, &t, t.wpe, dwpe, 0, SEQ * COLS);
    }
    free(t.wte);
    free(t.wpe);
    free(t.y);
    free(t.weight);
    free(dwte);
    free(dwpe);
}

static void test_differences(void **state)
{
    (void)state;
    differences(true);
    differences(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_differences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
