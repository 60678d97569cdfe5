#include "server/fetch/alternates.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/codec/url.h"

static const char *const others[] = {"http://b:81/pre", "https://c/"};

static struct alternates *open_three(void)
{
    struct alternates *a;

    assert_int_equal(alternates_open("http://a/x/", others, 2, &a, NULL), 0);
    return a;
}

static void test_lists(void **state)
{
    static const char *const twice[] = {"http://b", "http://b/"};
    static const char *const query[] = {"http://b/?x"};
    static const char *many[ALTERNATES_MAX];
    static char text[ALTERNATES_MAX][16];
    struct alternates *a = open_three();
    struct url u;
    struct err e;

    (void)state;
    assert_int_equal(alternates_count(a), 3);
    assert_string_equal(alternates_url(a, 1), "http://b:81/pre/");
    assert_int_equal(url_split(SLICE("https://C:443/elsewhere"), &u, NULL), 0);
    assert_true(alternates_have_host(a, &u));
    assert_int_equal(url_split(SLICE("http://c/"), &u, NULL), 0);
    assert_false(alternates_have_host(a, &u));
    alternates_close(&a);
    assert_int_equal(alternates_open("http://a/", twice, 2, &a, &e), E_CONFIG);
    assert_null(a);
    assert_int_equal(alternates_open("http://a/", query, 1, &a, &e), E_CONFIG);
    for (unsigned i = 0; i < ALTERNATES_MAX; i++) {
        (void)snprintf(text[i], sizeof text[i], "http://b%u/", i);
        many[i] = text[i];
    }
    assert_int_equal(alternates_open("http://a/", many, ALTERNATES_MAX, &a, &e), E_CONFIG);
    assert_int_equal(alternates_open("http://a/", many, ALTERNATES_MAX - 1, &a, &e), 0);
    alternates_close(&a);
}

static void test_moves(void **state)
{
    struct alternates *a = open_three();
    struct buf out = BUF_INIT(1000);

    (void)state;
    assert_true(alternates_move(a, 1, SLICE("http://a/x/y/z?q"), &out));
    assert_string_equal(buf_cstr(&out), "http://b:81/pre/y/z?q");
    assert_true(alternates_move(a, 0, SLICE("https://c/y"), &out));
    assert_string_equal(buf_cstr(&out), "http://a/x/y");
    assert_false(alternates_move(a, 0, SLICE("http://a/xy"), &out));
    assert_false(alternates_move(a, 0, SLICE("http://d/x/y"), &out));
    buf_free(&out);
    alternates_close(&a);
}

enum { PROBE_MS = 40000 };

static void test_order(void **state)
{
    struct alternates *a = open_three();

    (void)state;
    assert_int_equal(alternates_choose(a, 0, PROBE_MS, 1000), 0);
    assert_int_equal(alternates_choose(a, 1, PROBE_MS, 1000), 1);
    assert_int_equal(alternates_choose(a, 7, PROBE_MS, 1000), ALTERNATE_NONE);
    assert_true(alternates_failed(a, 0, 900, 0, 1000));
    assert_false(alternates_failed(a, 0, 950, 0, 2000)); /* it began before the other was noted */
    assert_int_equal(alternates_choose(a, 0, PROBE_MS, 5999), 1);
    assert_int_equal(alternates_choose(a, 6, PROBE_MS, 5999), 0); /* when no other is left */

    assert_int_equal(alternates_choose(a, 0, PROBE_MS, 6000), 0); /* one looks whether it is back */
    assert_int_equal(alternates_choose(a, 0, PROBE_MS, 6001), 1);
    assert_int_equal(alternates_choose(a, 0, PROBE_MS, 6000 + PROBE_MS), 0); /* that one got lost */
    assert_false(alternates_failed(a, 0, 6000 + PROBE_MS, 0, 50000));
    assert_int_equal(alternates_failures(a, 0), 2);
    assert_int_equal(alternates_choose(a, 0, PROBE_MS, 59999), 1); /* ten seconds now */
    assert_int_equal(alternates_choose(a, 0, PROBE_MS, 60000), 0);
    assert_false(alternates_worked(a, 0, 49000));
    assert_true(alternates_worked(a, 0, 60000));
    assert_false(alternates_worked(a, 0, 60001));
    assert_int_equal(alternates_choose(a, 0, PROBE_MS, 60001), 0);
    assert_int_equal(alternates_choose(a, 0, PROBE_MS, 60001), 0);

    assert_true(alternates_failed(a, 1, 70000, 30000, 70001)); /* as long as it asked for */
    assert_int_equal(alternates_choose(a, 1, PROBE_MS, 100000), 2);
    assert_int_equal(alternates_choose(a, 1, PROBE_MS, 100001), 1);
    alternates_close(&a);
}

static void test_a_single_one_never_rests(void **state)
{
    struct alternates *a;

    (void)state;
    assert_int_equal(alternates_open("http://a/", NULL, 0, &a, NULL), 0);
    assert_false(alternates_failed(a, 0, 1, 0, 2));
    assert_int_equal(alternates_failures(a, 0), 0);
    assert_int_equal(alternates_choose(a, 0, PROBE_MS, 2), 0);
    alternates_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_a_single_one_never_rests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
