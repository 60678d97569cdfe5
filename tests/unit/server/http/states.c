/* Which states of a connection, a request's body, an answer and an HTTP/2 stream follow which: all
 * pairs, legal or not. */
#include "server/http/h2.h"

#include "tests/harness/states.h"

static void connections(void **state)
{
    static const char *const drawn[CONN_STATES] = {
        [CONN_HANDSHAKE] = ".xxx",
        [CONN_HTTP1] = "...x",
        [CONN_HTTP2] = "...x",
        [CONN_LINGERING] = "....",
    };

    (void)state;
    assert_states(&conn_states, CONN_STATES, drawn);
}

static void requests(void **state)
{
    static const char *const drawn[REQUEST_STATES] = {
        [REQUEST_UNREAD] = ".x..x", [REQUEST_READING] = "..xxx", [REQUEST_PAUSED] = ".x..x",
        [REQUEST_READ] = ".....",   [REQUEST_DROPPED] = ".x...",
    };

    (void)state;
    assert_states(&request_states, REQUEST_STATES, drawn);
}

static void answers(void **state)
{
    static const char *const drawn[ANSWER_STATES] = {
        [ANSWER_AWAITED] = ".x...", [ANSWER_READY] = "..x..", [ANSWER_SENDING] = "...xx",
        [ANSWER_STARVED] = "..x..", [ANSWER_SENT] = ".....",
    };

    (void)state;
    assert_states(&answer_states, ANSWER_STATES, drawn);
}

static void streams(void **state)
{
    static const char *const drawn[H2_STREAM_STATES] = {
        [H2_STREAM_HEAD] = ".xx.x",
        [H2_STREAM_OPEN] = "..xxx",
        [H2_STREAM_HALF_CLOSED_REMOTE] = "....x",
        [H2_STREAM_HALF_CLOSED_LOCAL] = "....x",
        [H2_STREAM_CLOSED] = ".....",
    };

    (void)state;
    assert_states(&h2_stream_states, H2_STREAM_STATES, drawn);
}

static void openings(void **state)
{
    static const char *const drawn[H2_OPENINGS] = {
        [H2_AWAITS_PREFACE] = ".x.", [H2_AWAITS_SETTINGS] = "..x", [H2_OPENED] = "..."};

    (void)state;
    assert_states(&h2_openings, H2_OPENINGS, drawn);
}

static void closings(void **state)
{
    static const char *const drawn[H2_CLOSINGS] = {
        [H2_SERVING] = ".x..x",    [H2_WARNING] = "..x.x", [H2_WARNED] = "...xx",
        [H2_LAST_NAMED] = "....x", [H2_OVER] = ".....",
    };

    (void)state;
    assert_states(&h2_closings, H2_CLOSINGS, drawn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections), cmocka_unit_test(requests), cmocka_unit_test(answers),
        cmocka_unit_test(streams),     cmocka_unit_test(openings), cmocka_unit_test(closings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
