#include "server/repo/origin_field.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "server/repo/repo.h"

static void the_table(void **state)
{
    static const char *const yes[] = {"etag",          "content-language", "x-error-message",
                                      "x-linked-etag", "oci-subject",      "x-build-id"};
    static const char *const no[] = {"",
                                     "x-accel-redirect",
                                     "x-",
                                     "x-error",
                                     "etags",
                                     "link",
                                     "set-cookie",
                                     "content-disposition",
                                     "access-control-allow-origin",
                                     "x-kind-of",
                                     "date"};
    char kind[] = "x-kind", build[] = "x-build-*";
    char *pass[] = {kind, build};
    struct repo r = {.pass = pass, .passes = 2};
    struct repo none = {.passes = 0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        assert_true(origin_field_passes(&r, slice_str(yes[i])));
    }
    for (size_t i = 0; i < ARRAY_LEN(no); i++) {
        if (origin_field_passes(&r, slice_str(no[i]))) {
            fail_msg("%s passes", no[i]);
        }
    }
    assert_true(origin_field_passes(&r, SLICE("x-kind")));
    assert_false(origin_field_passes(&none, SLICE("x-kind")));
}

/* What a repo's own list cannot name, in any case, by itself or among others. */
static void the_dangerous_ones(void **state)
{
    static const char *const bad[] = {
        "",
        "*",
        "x-*",
        "X-A*",
        "x-accel-redirect",
        "X-ACCEL-*",
        "x-accel-redirect*",
        "Content-*",
        "set-cookie3",
        "Access-Control-Allow-Origin",
        "a b",
        "x-kind*more",
        "x:y",
        "Date",
        "an-endless-name-an-endless-name-an-endless-name-an-endless-name-x"};
    static const char *const good[] = {"X-Kind", "x-build-*", "Memento-Datetime", "X_Y",
                                       "ratelimit*"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (origin_field_refuses(bad[i]) == NULL) {
            fail_msg("%s is taken", bad[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        if (origin_field_refuses(good[i]) != NULL) {
            fail_msg("%s is refused: %s", good[i], origin_field_refuses(good[i]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table),
        cmocka_unit_test(the_dangerous_ones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
