/* What becomes of the memory of a request's body when others need it. */
#include "server/http/exchange.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/os/message_queue.h"
#include "server/http/h2.h"

static uint64_t held(struct body_memory *m)
{
    struct body_memory_stats stats;

    body_memory_stats(m, &stats);
    return stats.bytes;
}

/* The handler has let go of the body by its answer: what is sent of that goes on. */
static void an_answered_stream_is_not_reset(void **state)
{
    struct http_reply reply = {.status = 200};
    struct http_loop http_loop = {.memory = body_memory_open(1 << 20)};
    struct conn conn = {.http_loop = &http_loop};
    struct h2_stream stream = {.doom = H2_LIVES};
    struct exchange x = {.conn = &conn, .stream = &stream, .reply = &reply, .handler_sheds = true};

    (void)state;
    list_init(&http_loop.port.uses);
    assert_true(body_memory_hold(http_loop.memory, &http_loop.port, &x.use, 1, BODY_MAY_END, 1000));
    assert_true(held(http_loop.memory) != 0);
    exchange_end_use(&x.use);
    assert_int_equal(stream.doom, H2_LIVES);
    assert_int_equal(held(http_loop.memory), 0);
    body_memory_close(&http_loop.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answered_stream_is_not_reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
