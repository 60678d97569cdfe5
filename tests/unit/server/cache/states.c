/* Which states of a fill, a filler and its writes follow which: all pairs, legal or not. */
#include "server/cache/fill_priv.h"

#include "tests/harness/states.h"

static void fills(void **state)
{
    static const char *const drawn[FILL_STATES] = {
        [FILL_ASKING] = ".x..x",  [FILL_STAGING] = "..x.x", [FILL_RUNNING] = "...xx",
        [FILL_SEALING] = "....x", [FILL_ENDED] = ".....",
    };

    (void)state;
    assert_states(&fill_states, FILL_STATES, drawn);
}

static void aims(void **state)
{
    static const char *const drawn[AIMS] = {
        [AIM_RANGES] = ".xxx", [AIM_WHOLE] = "..xx", [AIM_ALONE] = ".x..", [AIM_NOTHING] = "x..."};

    (void)state;
    assert_states(&fill_aims, AIMS, drawn);
}

static void fillers(void **state)
{
    static const char *const drawn[FILLER_STATES] = {
        [FILLER_DUE] = ".xxx",
        [FILLER_ASKED] = "x.xx",
        [FILLER_OVER] = "x..x",
        [FILLER_STOPPED] = "....",
    };

    (void)state;
    assert_states(&filler_states, FILLER_STATES, drawn);
}

static void writes(void **state)
{
    static const char *const drawn[FILLER_WRITES] = {
        [FILLER_WRITES_NONE] = ".x.",
        [FILLER_WRITE_OUT] = "x.x",
        [FILLER_WRITE_HELD] = ".x.",
    };

    (void)state;
    assert_states(&filler_writes, FILLER_WRITES, drawn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills),
        cmocka_unit_test(aims),
        cmocka_unit_test(fillers),
        cmocka_unit_test(writes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
