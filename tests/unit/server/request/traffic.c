#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>

#include "server/request/traffic.h"

static void add(struct traffic *t, unsigned shard, unsigned repo, int status, unsigned state,
                uint64_t took_ns)
{
    const struct traffic_event ev = {
        .repo = repo,
        .status = status,
        .state = state,
        .bytes = 100,
        .took_ns = took_ns,
        .complete = status != 0,
    };
    traffic_add(t, shard, &ev);
}

static void sums(void **state)
{
    struct traffic *t = traffic_open(2);
    unsigned hf = traffic_repo(t, "hf"), pypi = traffic_repo(t, "pypi");
    struct traffic_sum sum, all = {0};

    (void)state;
    assert_int_equal(traffic_repo(t, "hf"), hf); /* the same after a reload */
    assert_int_not_equal(hf, pypi);
    assert_int_not_equal(hf, TRAFFIC_OWN);
    assert_string_equal(traffic_repo_name(t, pypi), "pypi");
    add(t, 0, hf, 200, CACHE_HIT, 1);
    add(t, 1, hf, 206, CACHE_HIT, 1);
    add(t, 1, hf, 404, CACHE_NEGATIVE, 1);
    add(t, 1, hf, 200, CACHE_MISS, 1);
    add(t, 0, hf, 0, TRAFFIC_UNCACHED, 1); /* broke off before an answer */
    add(t, 0, pypi, 200, TRAFFIC_UNCACHED, 1);
    traffic_sum(t, hf, &sum);
    assert_int_equal(sum.requests[1][CACHE_HIT], 2);
    assert_int_equal(sum.requests[3][CACHE_NEGATIVE], 1);
    assert_int_equal(sum.requests[4][TRAFFIC_UNCACHED], 1);
    assert_int_equal(sum.cut, 1);
    assert_int_equal(traffic_requests(&sum), 5);
    assert_int_equal(traffic_bytes(&sum), 500);
    assert_true(traffic_hit_ratio(&sum) == 0.75);
    traffic_join(&all, &sum);
    traffic_sum(t, pypi, &sum);
    assert_true(traffic_hit_ratio(&sum) < 0); /* nothing came from the cache yet */
    traffic_join(&all, &sum);
    assert_int_equal(traffic_requests(&all), 6);
    traffic_close(&t);
    assert_null(t);
}

static void durations(void **state)
{
    struct traffic *t = traffic_open(1);
    struct traffic_times times;

    (void)state;
    add(t, 0, TRAFFIC_OWN, 200, TRAFFIC_UNCACHED, 500000); /* 0.5 ms: bounds are inclusive */
    add(t, 0, TRAFFIC_OWN, 200, TRAFFIC_UNCACHED, 500001);
    add(t, 0, TRAFFIC_OWN, 200, TRAFFIC_UNCACHED, UINT64_MAX / 4);
    traffic_times(t, &times);
    assert_int_equal(times.bucket[0], 1);
    assert_int_equal(times.bucket[1], 1);
    assert_int_equal(times.bucket[TRAFFIC_BUCKETS], 1);
    assert_int_equal(times.count, 3);
    traffic_close(&t);
}

/* More repos than slots, over many reloads: the last slot takes the rest, nothing overflows. */
static void too_many_repos(void **state)
{
    struct traffic *t = traffic_open(1);
    char name[32];

    (void)state;
    for (unsigned i = 0; i < 3 * TRAFFIC_REPOS; i++) {
        snprintf(name, sizeof(name), "repo-%u", i);
        unsigned slot = traffic_repo(t, name);
        assert_true(slot < TRAFFIC_REPOS);
        add(t, 0, slot, 200, CACHE_HIT, 1);
    }
    assert_int_equal(traffic_repos(t), TRAFFIC_REPOS);
    assert_string_equal(traffic_repo_name(t, TRAFFIC_REPOS - 1), "*");
    traffic_close(&t);
}

static void *count_on(void *arg)
{
    for (unsigned i = 0; i < 20000; i++) {
        add(arg, 1, 1, 200, CACHE_HIT, i);
    }
    return NULL;
}

static void read_while_counted(void **state)
{
    struct traffic *t = traffic_open(2);
    struct traffic_sum sum;
    struct traffic_times times;
    pthread_t other;

    (void)state;
    (void)traffic_repo(t, "a");
    assert_int_equal(pthread_create(&other, NULL, count_on, t), 0);
    for (unsigned i = 0; i < 20000; i++) {
        add(t, 0, 1, 200, CACHE_MISS, i);
        if (i % 1000 == 0) {
            traffic_sum(t, 1, &sum);
            traffic_times(t, &times);
        }
    }
    pthread_join(other, NULL);
    traffic_sum(t, 1, &sum);
    assert_int_equal(traffic_requests(&sum), 40000);
    traffic_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums),
        cmocka_unit_test(durations),
        cmocka_unit_test(too_many_repos),
        cmocka_unit_test(read_while_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
