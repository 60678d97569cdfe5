#include "common/base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { LONG = 400 };

static const char *filled(char text[LONG + 1], char c, size_t n)
{
    memset(text, c, n);
    text[n] = '\0';
    return text;
}

static void a_prefix_stands_in_front(void **state)
{
    struct err e = {0};

    (void)state;
    assert_int_equal(err_prefix(&e, "nothing happened"), 0);
    assert_string_equal(e.text, "");
    err_set(&e, E_NOTFOUND, "not there");
    assert_int_equal(err_prefix(&e, "a/%s", "b"), E_NOTFOUND);
    assert_string_equal(e.text, "a/b: not there");
    errno = ENOENT;
    assert_int_equal(err_sys(&e, "x/%d", 1), E_NOTFOUND);
    assert_string_equal(e.text, "x/1: No such file or directory");
    err_prefix(&e, "%s", e.text); /* may speak of itself */
    assert_string_equal(e.text, "x/1: No such file or directory: x/1: No such file or directory");
}

static void a_long_name_does_not_push_the_reason_out(void **state)
{
    char name[LONG + 1];
    struct err e = {0};

    (void)state;
    for (size_t n = 1; n <= LONG; n++) {
        err_set(&e, E_NOTFOUND, "the mirror does not have it (404)");
        err_prefix(&e, "%s", filled(name, 'x', n));
        assert_non_null(strstr(e.text, "x: the mirror does not have it (404)") != NULL
                            ? e.text
                            : strstr(e.text, "x...: the mirror does not have it (404)"));
        errno = EACCES;
        err_sys(&e, "%s", name);
        assert_non_null(strstr(e.text, ": Permission denied"));
        assert_true(strlen(e.text) < sizeof e.text && e.text[0] == 'x');
    }
}

static void a_long_reason_leaves_the_name(void **state)
{
    char text[LONG + 1];
    struct err e = {0};

    (void)state;
    for (size_t n = 1; n <= LONG; n++) {
        err_set(&e, E_IO, "%s", filled(text, 'r', n));
        err_prefix(&e, "job.conf:12");
        assert_int_equal(strncmp(e.text, "job.conf:12: r", 14), 0);
        err_set(&e, E_IO, "%s", text);
        err_prefix(&e, "%s", filled(text, 'n', n));
        assert_true(e.text[0] == 'n' && e.text[strlen(e.text) - 1] == 'r');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_stands_in_front),
        cmocka_unit_test(a_long_name_does_not_push_the_reason_out),
        cmocka_unit_test(a_long_reason_leaves_the_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
