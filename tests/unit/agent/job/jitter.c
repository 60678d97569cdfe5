#include "agent/job/jitter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void test_a_host_has_its_own(void **state)
{
    const uint64_t hour = 3600000;
    uint64_t seen = jitter_ms(SLICE("node-17"), hour);

    (void)state;
    assert_int_equal(seen, jitter_ms(SLICE("node-17"), hour));
    assert_int_not_equal(seen, jitter_ms(SLICE("node-18"), hour));
    assert_int_equal(jitter_ms(SLICE("node-17"), 0), 0);
    assert_int_equal(jitter_ms(SLICE("node-17"), 1), 0);
}

static void test_hosts_fill_the_span(void **state)
{
    enum { HOSTS = 1000, SLOTS = 10 };
    unsigned slot[SLOTS] = {0};

    (void)state;
    for (int i = 0; i < HOSTS; i++) {
        char host[32];
        uint64_t ms;
        snprintf(host, sizeof host, "gpu%03d.cluster", i);
        ms = jitter_ms(slice_str(host), SLOTS * 1000);
        assert_true(ms < SLOTS * 1000);
        slot[ms / 1000]++;
    }
    for (int i = 0; i < SLOTS; i++) {
        assert_in_range(slot[i], HOSTS / SLOTS / 2, HOSTS / SLOTS * 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_host_has_its_own),
        cmocka_unit_test(test_hosts_fill_the_span),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
