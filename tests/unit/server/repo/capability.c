#include "server/repo/capability.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "common/base/check.h"

static void test_there_and_back(void **state)
{
    struct arena a = {0};
    struct slice text = capability_seal(SLICE("read x"), SLICE("Bearer hf_1"), 100, &a);
    struct slice secret;

    (void)state;
    assert_true(capability_open(text, SLICE("read x"), 99, &a, &secret));
    assert_true(slice_eqs(secret, "Bearer hf_1"));
    assert_true(capability_open(text, SLICE("read x"), 100, &a, &secret));
    assert_null(memmem(text.p, text.n, "hf_1", 4));
    for (size_t i = 0; i < text.n; i++) {
        assert_non_null(
            strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", text.p[i]));
    }
    text = capability_seal(SLICE("read x"), SLICE(""), 100, &a);
    assert_true(capability_open(text, SLICE("read x"), 1, &a, &secret));
    assert_int_equal(secret.n, 0);
    arena_fini(&a);
}

static void test_refused(void **state)
{
    struct arena a = {0};
    struct slice text = capability_seal(SLICE("read x"), SLICE("secret"), 100, &a);
    struct slice secret;

    (void)state;
    assert_false(capability_open(text, SLICE("read x"), 101, &a, &secret));
    assert_false(capability_open(text, SLICE("read y"), 1, &a, &secret));
    assert_false(capability_open(SLICE(""), SLICE("read x"), 1, &a, &secret));
    assert_false(capability_open(SLICE("AAAA"), SLICE("read x"), 1, &a, &secret));
    assert_false(capability_open(SLICE("not base64!"), SLICE("read x"), 1, &a, &secret));
    for (size_t i = 0; i < text.n; i++) {
        char *other = arena_cstr(&a, text);
        other[i] = other[i] == 'A' ? 'B' : 'A';
        /* The last letter has bits that mean nothing. */
        assert_true(i == text.n - 1 ||
                    !capability_open(slice_of(other, text.n), SLICE("read x"), 1, &a, &secret));
        assert_false(capability_open(slice_first(text, i), SLICE("read x"), 1, &a, &secret));
    }
    {
        char *huge = arena_alloc(&a, 100000);
        memset(huge, 'A', 100000);
        assert_false(capability_open(slice_of(huge, 100000), SLICE("read x"), 1, &a, &secret));
    }
    arena_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_there_and_back),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
