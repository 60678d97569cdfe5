#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/request/path_token.h"

static void what_is_a_token(void **state)
{
    static const struct {
        const char *path, *token, *rest; /* token NULL: none */
    } row[] = {
        {"t/abc/forge/x", "abc", "forge/x"},
        {"t/mrd-1-2-3/forge", "mrd-1-2-3", "forge"},
        {"t/abc/", "abc", ""},
        {"t/abc", NULL, NULL},
        {"t//x", NULL, NULL},
        {"t/", NULL, NULL},
        {"t", NULL, NULL},
        {"", NULL, NULL},
        {"tt/abc/x", NULL, NULL},
        {"forge/t/abc/x", NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct slice path = slice_str(row[i].path), token;
        assert_int_equal(path_token_cut(&path, &token), row[i].token != NULL);
        if (row[i].token != NULL) {
            assert_true(slice_eqs(token, row[i].token) && slice_eqs(path, row[i].rest));
        } else {
            assert_true(slice_eqs(path, row[i].path));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_a_token)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
