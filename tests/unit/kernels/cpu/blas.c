#include "kernels/cpu/blas.h"

#include <cblas.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char *self;

/* In a process that starts with the name in its environment, OpenBLAS uses the kernels that it
 * names. */
static void test_a_better_core_is_one_that_openblas_takes(void **state)
{
    const char *better = blas_better_core();
    int status;
    pid_t child;

    (void)state;
    if (better == NULL || getenv("OPENBLAS_CORETYPE") != NULL) {
        skip();
    }
    child = fork();
    assert_true(child != -1);
    if (child == 0) {
        setenv("OPENBLAS_CORETYPE", better, 1);
        execl(self, self, better, (char *)NULL);
        _exit(99);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Whoever has kernels of their own choice, by the processor or by the environment, keeps them. */
static void test_a_known_processor_is_left_alone(void **state)
{
    (void)state;
    if (strcasecmp(openblas_get_corename(), "Prescott") == 0) {
        skip();
    }
    assert_null(blas_better_core());
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_better_core_is_one_that_openblas_takes),
        cmocka_unit_test(test_a_known_processor_is_left_alone),
    };

    self = argv[0];
    if (argc > 1) { /* the first test's child */
        return strcasecmp(openblas_get_corename(), argv[1]) != 0 || blas_better_core() != NULL;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
