#include "agent/mirrors.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct mirrors *open_list(const char *list)
{
    struct mirrors *m;

    assert_int_equal(mirrors_open(slice_str(list), &m, NULL), 0);
    return m;
}

static void key_of(unsigned i, struct digest *out)
{
    digest_of(slice_of((const char *)&i, sizeof i), out);
}

static void test_lists(void **state)
{
    static const char *const bad[] = {"", " , ", "http://a,b", "http://a/?q", "a:8080"};
    struct mirrors *m = open_list(" http://a:1/ ,https://b/pre/,, http://A:1,http://c");
    struct err e;

    (void)state;
    assert_int_equal(mirrors_count(m), 3);
    assert_true(slice_eqs(mirrors_url(m, 0), "http://a:1"));
    assert_true(slice_eqs(mirrors_url(m, 1), "https://b/pre"));
    assert_true(slice_eqs(mirrors_url(m, 2), "http://c"));
    assert_int_equal(mirrors_find(m, SLICE("https://B:443/x")), 1);
    assert_int_equal(mirrors_find(m, SLICE("http://b/x")), MIRROR_NONE);
    assert_int_equal(mirrors_find(m, SLICE("nothing")), MIRROR_NONE);
    assert_true(mirrors_are_in(m, SLICE("http://c:80,http://d,http://a:1,https://b/pre")));
    assert_false(mirrors_are_in(m, SLICE("http://c,http://a:1,https://b")));
    assert_false(mirrors_are_in(m, SLICE("")));
    mirrors_close(&m);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(mirrors_open(slice_str(bad[i]), &m, &e), E_USAGE);
        assert_null(m);
    }
}

static void test_urls(void **state)
{
    struct mirrors *m = open_list("http://a:1,https://b/pre,http://a:10");
    struct arena a = {0};
    struct digest x, y;

    (void)state;
    assert_true(slice_eqs(mirrors_at(m, 1, SLICE("http://a:1/x/y?z"), &a), "https://b/pre/x/y?z"));
    assert_true(slice_eqs(mirrors_at(m, 1, SLICE("http://a:1"), &a), "https://b/pre"));
    assert_true(slice_eqs(mirrors_at(m, 1, SLICE("http://a:10/x"), &a), "http://a:10/x"));
    assert_true(slice_eqs(mirrors_plain(m, 1, SLICE("https://b/pre/x"), &a), "http://a:1/x"));
    assert_true(slice_eqs(mirrors_plain(m, 1, SLICE("https://b/other"), &a), "https://b/other"));
    mirrors_key(m, SLICE("http://a:1/x?1"), &x);
    mirrors_key(m, SLICE("http://a:1/x/?2"), &y);
    assert_true(digest_eq(&x, &y));
    mirrors_key(m, SLICE("http://a:1/y"), &y);
    assert_false(digest_eq(&x, &y));
    arena_fini(&a);
    mirrors_close(&m);
}

/* Each has about its share, the order of the list does not matter, and one that is left out moves
 * only what it had. */
static void test_order(void **state)
{
    struct mirrors *three = open_list("http://a,http://b,http://c");
    struct mirrors *turned = open_list("http://c:80/,http://B,http://a");
    struct mirrors *two = open_list("http://a,http://c");
    unsigned share[3] = {0};

    (void)state;
    for (unsigned i = 0; i < 3000; i++) {
        struct digest key;
        unsigned at, then;

        key_of(i, &key);
        at = mirrors_choose(three, &key, 0, MIRRORS_ALL, 0);
        share[at]++;
        assert_int_equal(mirrors_choose(turned, &key, 0, MIRRORS_ALL, 0), 2 - at);
        then = mirrors_choose(two, &key, 0, MIRRORS_ALL, 0) * 2;
        if (at != 1) {
            assert_int_equal(then, at);
        } else {
            assert_int_equal(then, mirrors_choose(three, &key, 2, MIRRORS_ALL, 0));
        }
    }
    for (unsigned i = 0; i < 3; i++) {
        assert_in_range(share[i], 850, 1150); /* the hash has no chance in it */
    }
    mirrors_close(&three);
    mirrors_close(&turned);
    mirrors_close(&two);
}

static void test_rest(void **state)
{
    struct mirrors *m = open_list("http://a,http://b,http://c");
    struct digest key;
    unsigned first, second, third;

    (void)state;
    key_of(1, &key);
    first = mirrors_choose(m, &key, 0, MIRRORS_ALL, 0);
    second = mirrors_choose(m, &key, 1U << first, MIRRORS_ALL, 0);
    third = 3 - first - second;
    assert_int_equal(mirrors_choose(m, &key, 1U << first | 1U << second, MIRRORS_ALL, 0), third);
    assert_int_equal(mirrors_choose(m, &key, 7, MIRRORS_ALL, 0), MIRROR_NONE);

    mirrors_failed(m, first, 1000);
    mirrors_failed(m, first, 2000); /* the same outage */
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 2000), second);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 5999), second);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 6000), first);
    mirrors_failed(m, first, 6000); /* twice as long */
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 15999), second);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 16000), first);
    mirrors_worked(m, first);
    mirrors_failed(m, first, 20000);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 25000), first);

    mirrors_lied(m, first, 30000);
    mirrors_failed(m, second, 30000);
    mirrors_failed(m, third, 30001);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_FRESH, 30001), MIRROR_NONE);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 30001), second);
    assert_int_equal(mirrors_choose(m, &key, 1U << second, MIRRORS_ALL, 30001), third);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_FRESH, 89999), second);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_FRESH, 90000), first);
    mirrors_close(&m);
}

/* A mirror that has rested gets one request, and no other before that one has ended. */
static void test_probe(void **state)
{
    struct mirrors *m = open_list("http://a,http://b");
    struct digest key;
    unsigned first, other;

    (void)state;
    key_of(1, &key);
    first = mirrors_choose(m, &key, 0, MIRRORS_ALL, 0);
    other = 1 - first;
    mirrors_failed(m, first, 1000);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 6000), first);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 6001), other);
    assert_true(mirrors_any_fresh(m, 6001));
    mirrors_worked(m, first);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 6002), first);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 6002), first);

    mirrors_failed(m, first, 7000);
    mirrors_worked(m, first); /* a request from before: it rests all the same */
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 7001), other);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 12000), first);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 21999), other);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 22000), first); /* that one got lost */
    mirrors_failed(m, first, 23000);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 32999), other);
    mirrors_failed(m, other, 33000);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_ALL, 33000), first);
    assert_false(mirrors_any_fresh(m, 33000));
    mirrors_close(&m);
}

/* It is asked whatever became of it, as without a list. */
static void test_a_single_one_never_rests(void **state)
{
    struct mirrors *m = open_list("http://a");
    struct digest key;

    (void)state;
    key_of(1, &key);
    mirrors_failed(m, 0, 1000);
    mirrors_lied(m, 0, 1000);
    assert_int_equal(mirrors_choose(m, &key, 0, MIRRORS_FRESH, 1000), 0);
    assert_int_equal(mirrors_choose(m, &key, 1, MIRRORS_ALL, 1000), MIRROR_NONE);
    mirrors_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists), cmocka_unit_test(test_urls),
        cmocka_unit_test(test_order), cmocka_unit_test(test_rest),
        cmocka_unit_test(test_probe), cmocka_unit_test(test_a_single_one_never_rests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
