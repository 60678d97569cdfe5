#include "server/cache/request_cache_control.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Up to two lines of Cache-Control. */
static struct request_cache_control request_cache_control_of(const char *one, const char *other)
{
    const struct http_field fields[] = {{SLICE("cache-control"), slice_str(one)},
                                        {SLICE("cache-control"), slice_str(other)}};
    struct arena a = {0};
    struct http_req req = {.fields = fields, .nfields = *other != '\0' ? 2 : 1, .arena = &a};
    struct request_cache_control d;

    request_cache_control_read(&req, &d);
    arena_fini(&a);
    return d;
}

static void reads_what_is_asked(void **state)
{
    struct http_req bare = {0};
    struct request_cache_control d;

    (void)state;
    request_cache_control_read(&bare, &d);
    assert_false(d.refresh || d.bounded || d.only_cached || d.min_fresh_s || d.max_stale_s);
    d = request_cache_control_of("No-Cache", "");
    assert_true(d.refresh && !d.bounded);
    d = request_cache_control_of("max-age=0", "");
    assert_true(d.refresh);
    d = request_cache_control_of("x, max-age=\"30\" , min-fresh=4", "only-if-cached, max-stale=7");
    assert_true(d.bounded && d.only_cached && !d.refresh);
    assert_int_equal(d.max_age_s, 30);
    assert_int_equal(d.min_fresh_s, 4);
    assert_int_equal(d.max_stale_s, 7);
    assert_int_equal(request_cache_control_of("max-stale", "").max_stale_s, UINT32_MAX);
    assert_int_equal(request_cache_control_of("max-age=99999999999", "").max_age_s, UINT32_MAX);
}

static void what_is_not_understood_is_not_asked(void **state)
{
    static const char *const odd[] = {"max-age",      "max-age=",
                                      "max-age=-1",   "max-age=1x",
                                      "no-store",     "max-stale=x",
                                      "min-fresh=\"", "=",
                                      ",,",           "max-age=9999999999999999999999"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        struct request_cache_control d = request_cache_control_of(odd[i], "");
        if (d.refresh || d.bounded || d.min_fresh_s != 0 || d.max_stale_s != 0 || d.only_cached) {
            fail_msg("%s", odd[i]);
        }
    }
}

static void judges_age_and_what_is_left(void **state)
{
    const struct request_cache_control d = {.bounded = true, .max_age_s = 10, .min_fresh_s = 5};

    (void)state;
    assert_false(request_cache_control_refuses(&d, 10, 5));
    assert_true(request_cache_control_refuses(&d, 11, 5));
    assert_true(request_cache_control_refuses(&d, 10, 4));
    assert_false(request_cache_control_refuses(&(struct request_cache_control){0}, UINT64_MAX, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_is_asked),
        cmocka_unit_test(what_is_not_understood_is_not_asked),
        cmocka_unit_test(judges_age_and_what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
