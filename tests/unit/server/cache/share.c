#include "server/cache/share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { QUOTA = 1000, NOW = 1000000, ONE = 1, TWO = 2 };

static struct digest digest_no(unsigned n)
{
    struct digest d = {{0}};

    memcpy(d.b, &n, sizeof n);
    return d;
}

static uint64_t left(struct share *s, uint64_t client, enum share_kind kind, uint64_t now_s)
{
    return share_left(s, client, kind, QUOTA, now_s);
}

static void an_hour_of_writes_counts(void **state)
{
    struct share *s = share_open();

    (void)state;
    assert_int_equal(left(s, ONE, SHARE_OBJECT, NOW), 500);
    share_wrote(s, ONE, SHARE_OBJECT, 300, NOW);
    share_wrote(s, ONE, SHARE_OBJECT, 100, NOW + 1800);
    assert_int_equal(left(s, ONE, SHARE_OBJECT, NOW + 3600), 100);
    assert_int_equal(left(s, ONE, SHARE_OBJECT, NOW + 4200), 400);
    assert_int_equal(left(s, ONE, SHARE_OBJECT, NOW + 9000), 500);
    share_wrote(s, ONE, SHARE_OBJECT, 700, NOW + 9000);
    assert_int_equal(left(s, ONE, SHARE_OBJECT, NOW + 9000), 0);
    assert_int_equal(left(s, TWO, SHARE_OBJECT, NOW + 9000), 500);
    share_wrote(s, 0, SHARE_OBJECT, 700, NOW);
    assert_int_equal(left(s, 0, SHARE_OBJECT, NOW), UINT64_MAX);
    share_limit(s, 900);
    assert_int_equal(left(s, ONE, SHARE_OBJECT, NOW + 9000), 200);
    share_close(&s);
}

static void ranges_count_apart_and_together(void **state)
{
    struct share *s = share_open();
    struct store_space space = {.quota_bytes = QUOTA};
    struct err e;

    (void)state;
    share_wrote(s, ONE, SHARE_RANGE, 60, NOW);
    assert_int_equal(left(s, ONE, SHARE_RANGE, NOW), 40);
    assert_int_equal(left(s, ONE, SHARE_OBJECT, NOW), 500);
    for (uint64_t client = 10; client < 14; client++) {
        share_wrote(s, client, SHARE_RANGE, 100, NOW);
    }
    assert_int_equal(left(s, TWO, SHARE_RANGE, NOW), 40);
    share_wrote(s, 20, SHARE_RANGE, 100, NOW);
    assert_int_equal(left(s, TWO, SHARE_RANGE, NOW), 0);
    assert_int_equal(share_refuse(s, SHARE_RANGE, &space, &e), E_NOSPACE);
    assert_non_null(strstr(e.text, "storage.quota"));
    assert_int_equal(share_refuse(s, SHARE_OBJECT, &space, &e), E_NOSPACE);
    assert_non_null(strstr(e.text, "storage.client_store"));
    space.by_disk = true;
    for (enum share_kind k = SHARE_OBJECT; k <= SHARE_RANGE; k++) {
        assert_int_equal(share_refuse(s, k, &space, &e), E_NOSPACE);
        assert_null(strstr(e.text, "storage.quota"));
        assert_true(strlen(e.text) + 1 < sizeof e.text);
    }
    share_close(&s);
}

static void who_brought_what(void **state)
{
    struct share *s = share_open();
    struct digest d[4], own[4];

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        d[i] = digest_no(i);
        share_contributed(s, ONE, &d[i], 10 + i);
    }
    share_contributed(s, TWO, &d[0], 10); /* it is somebody's */
    share_contributed(s, 0, &d[0], 10);
    assert_int_equal(share_own(s, TWO, own, 4), 0);
    assert_int_equal(share_own(s, ONE, own, 2), 2);
    assert_true(digest_eq(&own[0], &d[0]) && digest_eq(&own[1], &d[1]));
    assert_int_equal(share_own_bytes(s, ONE), 46);
    share_gone(s, &d[0]);
    share_gone(s, &d[0]);
    share_contributed(s, TWO, &d[0], 10); /* brought again */
    assert_int_equal(share_own_bytes(s, ONE), 36);
    assert_int_equal(share_own_bytes(s, TWO), 10);
    share_close(&s);
}

static void what_is_remembered_has_bounds(void **state)
{
    struct share *s = share_open();
    struct digest own[2];

    (void)state;
    for (unsigned i = 0; i < SHARE_OBJECTS + 3; i++) {
        struct digest d = digest_no(i);
        share_contributed(s, ONE, &d, 1);
    }
    assert_int_equal(share_own_bytes(s, ONE), SHARE_OBJECTS);
    assert_int_equal(share_own(s, ONE, own, 2), 2);
    assert_true(digest_eq(&own[0], &(struct digest){.b = {3}}));
    for (uint64_t client = 2; client < SHARE_CLIENTS + 3; client++) {
        share_wrote(s, client, SHARE_OBJECT, 1, NOW);
    }
    assert_int_equal(share_own_bytes(s, ONE), 0); /* it was the first to go */
    assert_int_equal(left(s, SHARE_CLIENTS + 2, SHARE_OBJECT, NOW), 499);
    share_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_hour_of_writes_counts),
        cmocka_unit_test(ranges_count_apart_and_together),
        cmocka_unit_test(who_brought_what),
        cmocka_unit_test(what_is_remembered_has_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
