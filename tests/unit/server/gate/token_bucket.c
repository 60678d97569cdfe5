#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "server/gate/token_bucket.h"

static struct token_bucket_key key(uint32_t n)
{
    struct token_bucket_key k = {.b = {'a'}};
    memcpy(k.b + 1, &n, sizeof(n));
    return k;
}

static bool spend(struct token_buckets *bs, uint32_t client, const struct token_bucket_rate *r,
                  uint64_t now_ms, struct token_bucket_decision *v)
{
    struct token_bucket_key k = key(client);
    token_buckets_spend(bs, &k, r, now_ms, v);
    return v->pass;
}

static void burst_then_pace(void **state)
{
    struct token_buckets *bs = token_buckets_open(4, 64);
    const struct token_bucket_rate r = {10, 5}; /* one each 100 ms */
    struct token_bucket_decision v;

    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        assert_true(spend(bs, 1, &r, 1000, &v));
        assert_int_equal(v.remaining, 4 - i);
    }
    assert_false(spend(bs, 1, &r, 1000, &v));
    assert_int_equal(v.wait_us, 100000);
    assert_int_equal(v.reset_us, 500000);
    assert_false(spend(bs, 1, &r, 1099, &v));
    assert_true(spend(bs, 1, &r, 1100, &v));
    assert_false(spend(bs, 1, &r, 1100, &v));
    assert_true(spend(bs, 2, &r, 1100, &v));  /* another client's bucket is its own */
    assert_true(spend(bs, 1, &r, 60000, &v)); /* long after: full again, no more than the burst */
    assert_int_equal(v.remaining, 4);
    token_buckets_close(&bs);
    assert_null(bs);
}

/* What passes over a long time is the rate, whoever hammers: refused requests cost nothing. */
static void long_run(void **state)
{
    struct token_buckets *bs = token_buckets_open(1, 8);
    const struct token_bucket_rate r = {200, 400};
    struct token_bucket_decision v;
    unsigned passed = 0;

    (void)state;
    for (uint64_t ms = 0; ms < 60000; ms++) {
        for (unsigned i = 0; i < 3; i++) {
            passed += spend(bs, 1, &r, ms, &v);
        }
    }
    assert_in_range(passed, 400 + 200 * 60 - 2, 400 + 200 * 60 + 2);
    token_buckets_close(&bs);
}

static void slow_rates(void **state)
{
    struct token_buckets *bs = token_buckets_open(1, 8);
    const struct token_bucket_rate r = {1.0 / 3600, 1}; /* one an hour */
    struct token_bucket_decision v;

    (void)state;
    assert_true(spend(bs, 1, &r, 0, &v));
    assert_false(spend(bs, 1, &r, 3599000, &v));
    assert_true(spend(bs, 1, &r, 3600001, &v));
    token_buckets_close(&bs);
}

static void bounded(void **state)
{
    struct token_buckets *bs = token_buckets_open(1, 64);
    const struct token_bucket_rate r = {1, 1};
    struct token_bucket_decision v;
    struct token_bucket_key busy = key(7);

    (void)state;
    assert_true(token_buckets_connect(bs, &busy, 2));
    for (uint32_t i = 100; i < 10100; i++) {
        assert_true(spend(bs, i, &r, 5, &v));
    }
    assert_false(spend(bs, 10099, &r, 5, &v));        /* the latest are remembered, */
    assert_true(spend(bs, 100, &r, 5, &v));           /* the first forgotten, */
    assert_true(token_buckets_connect(bs, &busy, 2)); /* but not who is connected */
    assert_false(token_buckets_connect(bs, &busy, 2));
    token_buckets_close(&bs);
}

static void connections(void **state)
{
    struct token_buckets *bs = token_buckets_open(2, 8);
    struct token_bucket_key k = key(1);

    (void)state;
    assert_true(token_buckets_connect(bs, &k, 2));
    assert_true(token_buckets_connect(bs, &k, 2));
    assert_false(token_buckets_connect(bs, &k, 2));
    token_buckets_disconnect(bs, &k);
    token_buckets_forget(bs); /* a reload: connections are still there */
    assert_true(token_buckets_connect(bs, &k, 2));
    assert_false(token_buckets_connect(bs, &k, 2));
    for (unsigned i = 0; i < 5; i++) {
        token_buckets_disconnect(bs, &k);
    }
    assert_true(token_buckets_connect(bs, &k, 1));
    token_buckets_close(&bs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(burst_then_pace), cmocka_unit_test(long_run),
        cmocka_unit_test(slow_rates),      cmocka_unit_test(bounded),
        cmocka_unit_test(connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
