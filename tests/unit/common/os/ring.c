/* What is put comes out whole and in order, and one of the two sides always knows that there is
 * more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <semaphore.h>
#include <stdatomic.h>

#include "common/os/lock.h"
#include "common/os/ring.h"

static void fills_and_wraps(void **state)
{
    struct ring *r = ring_open(16);
    struct buf out = BUF_INIT(64);
    size_t waited;

    (void)state;
    assert_true(ring_put(r, SLICE("0123456789"), &waited));
    assert_int_equal(waited, 0);
    assert_true(ring_put(r, SLICE("abcdef"), &waited));
    assert_int_equal(waited, 10);
    assert_false(ring_put(r, SLICE("!"), &waited));
    assert_true(ring_put(r, SLICE(""), &waited));
    assert_false(ring_take(r, &out));
    assert_string_equal(buf_cstr(&out), "0123456789abcdef");
    buf_clear(&out);
    assert_true(ring_put(r, SLICE("12345678901"), &waited));
    assert_int_equal(waited, 0);
    assert_false(ring_take(r, &out));
    assert_true(ring_put(r, SLICE("across the end"), &waited));
    assert_false(ring_take(r, &out));
    assert_false(ring_take(r, &out));
    assert_string_equal(buf_cstr(&out), "12345678901across the end");
    buf_free(&out);
    ring_close(&r);
    assert_null(r);
    ring_close(&r);
}

enum { NUMBERS = 200000 };

struct pair {
    struct ring *ring;
    sem_t more;
    uint64_t refused; /* read when the producer has ended */
    _Atomic bool ended;
};

static void *count_up(void *arg)
{
    struct pair *p = arg;
    size_t waited;

    for (uint32_t i = 0; i < NUMBERS; i++) {
        if (!ring_put(p->ring, slice_of(&i, sizeof i), &waited)) {
            p->refused++;
        } else if (waited == 0) {
            sem_post(&p->more);
        }
    }
    atomic_store(&p->ended, true);
    sem_post(&p->more);
    return NULL;
}

/* The consumer sleeps whenever it was not told of more: a lost word would leave numbers behind, or
 * hang. */
static void two_threads(void **state)
{
    struct pair p = {.ring = ring_open(4096)};
    struct buf out = BUF_INIT(4096);
    uint64_t came = 0;
    uint32_t last = 0, number;
    pthread_t thread;
    bool more = true;

    (void)state;
    assert_int_equal(sem_init(&p.more, 0, 0), 0);
    thread = thread_start("producer", count_up, &p);
    while (more || !atomic_load(&p.ended)) {
        if (!more) {
            (void)sem_wait(&p.more);
        }
        more = ring_take(p.ring, &out);
        assert_int_equal(out.n % sizeof number, 0);
        for (size_t i = 0; i < out.n; i += sizeof number, came++) {
            memcpy(&number, out.p + i, sizeof number);
            assert_true(came == 0 || number > last);
            last = number;
        }
        buf_clear(&out);
        assert_int_equal(out.rc, 0);
    }
    pthread_join(thread, NULL);
    assert_false(ring_take(p.ring, &out));
    assert_int_equal(came + p.refused + out.n / sizeof number, NUMBERS);
    sem_destroy(&p.more);
    buf_free(&out);
    ring_close(&p.ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_and_wraps),
        cmocka_unit_test(two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
