/* Which states of a fetch, a range request and its writes follow which: all pairs, legal or not. */
#include "server/cache/fetch_priv.h"

#include "tests/harness/states.h"

static void fetches(void **state)
{
    static const char *const drawn[FETCH_STATES] = {
        [FETCH_ASKING] = ".x..x",  [FETCH_STAGING] = "..x.x", [FETCH_RUNNING] = "...xx",
        [FETCH_SEALING] = "....x", [FETCH_ENDED] = ".....",
    };

    (void)state;
    assert_states(&fetch_states, FETCH_STATES, drawn);
}

static void aims(void **state)
{
    static const char *const drawn[AIMS] = {
        [AIM_RANGES] = ".xxx", [AIM_WHOLE] = "..xx", [AIM_ALONE] = ".x..", [AIM_NOTHING] = "x..."};

    (void)state;
    assert_states(&fetch_aims, AIMS, drawn);
}

static void fillers(void **state)
{
    static const char *const drawn[RANGE_REQUEST_STATES] = {
        [RANGE_REQUEST_DUE] = ".xxx",
        [RANGE_REQUEST_ASKED] = "x.xx",
        [RANGE_REQUEST_OVER] = "x..x",
        [RANGE_REQUEST_STOPPED] = "....",
    };

    (void)state;
    assert_states(&range_request_states, RANGE_REQUEST_STATES, drawn);
}

static void writes(void **state)
{
    static const char *const drawn[RANGE_REQUEST_WRITES] = {
        [RANGE_REQUEST_WRITES_NONE] = ".x.",
        [RANGE_REQUEST_WRITE_OUT] = "x.x",
        [RANGE_REQUEST_WRITE_HELD] = ".x.",
    };

    (void)state;
    assert_states(&range_request_writes, RANGE_REQUEST_WRITES, drawn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fetches),
        cmocka_unit_test(aims),
        cmocka_unit_test(fillers),
        cmocka_unit_test(writes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
