/* Which states of a connection, a request's body, an answer and an HTTP/2 stream follow which: all pairs, legal or not. */
#include "server/http/h2.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct step {
    unsigned from, to;
};

/* Of all pairs below `states` exactly these are legal. */
#define ASSERT_LEGAL(may, type, states, legal)                                                     \
    for (unsigned from = 0; from < (unsigned)(states); from++) {                                   \
        for (unsigned to = 0; to < (unsigned)(states); to++) {                                     \
            bool listed = false;                                                                   \
            for (size_t i = 0; i < ARRAY_LEN(legal); i++) {                                        \
                listed = listed || ((legal)[i].from == from && (legal)[i].to == to);               \
            }                                                                                      \
            if ((may)((enum type)from, (enum type)to) != listed) {                                 \
                fail_msg("%s: %u to %u", #type, from, to);                                         \
            }                                                                                      \
        }                                                                                          \
    }

static void connections(void **state)
{
    static const struct step legal[] = {{CONN_GREETING, CONN_HTTP1},
                                        {CONN_GREETING, CONN_HTTP2},
                                        {CONN_GREETING, CONN_LINGERING},
                                        {CONN_HTTP1, CONN_LINGERING},
                                        {CONN_HTTP2, CONN_LINGERING}};

    (void)state;
    ASSERT_LEGAL(conn_may_become, conn_state, CONN_STATES, legal);
}

static void requests(void **state)
{
    static const struct step legal[] = {
        {REQUEST_UNREAD, REQUEST_READING},  {REQUEST_UNREAD, REQUEST_DROPPED},
        {REQUEST_READING, REQUEST_PAUSED},  {REQUEST_READING, REQUEST_READ},
        {REQUEST_READING, REQUEST_DROPPED}, {REQUEST_DROPPED, REQUEST_READING},
        {REQUEST_PAUSED, REQUEST_READING},  {REQUEST_PAUSED, REQUEST_DROPPED}};

    (void)state;
    ASSERT_LEGAL(request_may_become, request_state, REQUEST_STATES, legal);
}

static void answers(void **state)
{
    static const struct step legal[] = {{ANSWER_AWAITED, ANSWER_READY},
                                        {ANSWER_READY, ANSWER_SENDING},
                                        {ANSWER_SENDING, ANSWER_STARVED},
                                        {ANSWER_STARVED, ANSWER_SENDING},
                                        {ANSWER_SENDING, ANSWER_SENT}};

    (void)state;
    ASSERT_LEGAL(answer_may_become, answer_state, ANSWER_STATES, legal);
}

static void streams(void **state)
{
    static const struct step legal[] = {
        {H2_STREAM_HEAD, H2_STREAM_OPEN},
        {H2_STREAM_HEAD, H2_STREAM_HALF_CLOSED_REMOTE},
        {H2_STREAM_HEAD, H2_STREAM_CLOSED},
        {H2_STREAM_OPEN, H2_STREAM_HALF_CLOSED_REMOTE},
        {H2_STREAM_OPEN, H2_STREAM_HALF_CLOSED_LOCAL},
        {H2_STREAM_OPEN, H2_STREAM_CLOSED},
        {H2_STREAM_HALF_CLOSED_REMOTE, H2_STREAM_CLOSED},
        {H2_STREAM_HALF_CLOSED_LOCAL, H2_STREAM_CLOSED},
    };

    (void)state;
    ASSERT_LEGAL(h2_stream_may_become, h2_stream_state, H2_STREAM_STATES, legal);
}

static void openings(void **state)
{
    static const struct step legal[] = {{H2_AWAITS_PREFACE, H2_AWAITS_SETTINGS},
                                        {H2_AWAITS_SETTINGS, H2_OPENED}};

    (void)state;
    ASSERT_LEGAL(h2_may_open, h2_opening, H2_OPENINGS, legal);
}

static void closings(void **state)
{
    static const struct step legal[] = {
        {H2_SERVING, H2_WARNING}, {H2_WARNING, H2_WARNED}, {H2_WARNED, H2_LAST_NAMED},
        {H2_SERVING, H2_OVER},    {H2_WARNING, H2_OVER},   {H2_WARNED, H2_OVER},
        {H2_LAST_NAMED, H2_OVER},
    };

    (void)state;
    ASSERT_LEGAL(h2_may_close, h2_closing, H2_CLOSINGS, legal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections), cmocka_unit_test(requests), cmocka_unit_test(answers),
        cmocka_unit_test(streams),     cmocka_unit_test(openings), cmocka_unit_test(closings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
