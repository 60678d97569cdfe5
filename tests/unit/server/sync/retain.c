#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/sync/retain.h"

enum { SUNDAY = 1795305600, HOUR = 3600, DAY = 86400, N = 2000 }; /* 2026-11-22 */

static struct retained snap[N];

/* One every two hours, back from Sunday noon. */
static size_t kept(const struct sync_conf *c)
{
    size_t n = 0;

    for (size_t i = 0; i < N; i++) {
        snap[i] =
            (struct retained){.seq = N - i, .created_unix_s = SUNDAY + DAY / 2 - i * 2 * HOUR};
    }
    snap[N - 1].must = true;
    retain_judge(c, snap, N);
    for (size_t i = 0; i < N; i++) {
        n += snap[i].keep;
    }
    return n - 1;
}

static void test_rules(void **state)
{
    (void)state;
    assert_int_equal(kept(&(struct sync_conf){.keep_last = 10}), 10);
    assert_true(snap[9].keep && !snap[10].keep && snap[N - 1].keep);
    assert_int_equal(kept(&(struct sync_conf){.keep_last = 1, .keep_hourly = 5}), 5);
    assert_int_equal(kept(&(struct sync_conf){.keep_last = 1, .keep_daily = 3}), 3);
    assert_true(snap[0].keep && snap[7].keep && snap[19].keep); /* the last of each day */
    assert_int_equal(kept(&(struct sync_conf){.keep_last = 1, .keep_weekly = 2}), 2);
    assert_true(snap[0].keep && snap[6 * 12 + 7].keep); /* the Sunday before, 22:00 */
    assert_int_equal(kept(&(struct sync_conf){.keep_last = 1, .keep_monthly = 3}), 3);
    /* One may be kept for several reasons. */
    assert_int_equal(kept(&(struct sync_conf){.keep_last = 2, .keep_hourly = 2, .keep_daily = 1}),
                     2);
    assert_int_equal(kept(&(struct sync_conf){.keep_last = 1, .keep_daily = 100000}), 167);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
