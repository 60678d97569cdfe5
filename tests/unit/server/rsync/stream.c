/* A client that sends a little now and then, and nothing that helps: it is given up all the same. */
#include "server/rsync/stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/os/clock.h"

enum { STALL_MS = 300, MUCH = 1 << 20, LINE_ROOM = 1 << 20 };

struct visit {
    struct stream stream;
    atomic_bool stop;
    int fd[2]; /* ours, the client's */
    pthread_t client;
    struct buf word; /* it sends again and again */
    atomic_bool over;
};

static void *trickle(void *arg)
{
    struct visit *v = arg;

    while (!atomic_load(&v->over)) {
        (void)!send(v->fd[1], v->word.p, v->word.n, MSG_NOSIGNAL | MSG_DONTWAIT);
        usleep(1000);
    }
    return NULL;
}

static void come(struct visit *v)
{
    assert_int_equal(pthread_create(&v->client, NULL, trickle, v), 0);
}

static int setup(void **state)
{
    struct visit *v = NEW(struct visit);

    *state = v;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, v->fd) == -1) {
        return -1;
    }
    v->word = BUF_INIT(16);
    stream_init(&v->stream, v->fd[0], STALL_MS, &v->stop);
    return 0;
}

static int teardown(void **state)
{
    struct visit *v = *state;

    atomic_store(&v->over, true);
    pthread_join(v->client, NULL);
    stream_fini(&v->stream);
    buf_free(&v->word);
    close(v->fd[0]);
    close(v->fd[1]);
    free(v);
    return 0;
}

static void put_much(struct visit *v)
{
    char *room = mem_new(MUCH);

    buf_add(stream_draft(&v->stream), room, MUCH);
    free(room);
}

static void who_reads_nothing_in_frames(void **state)
{
    struct visit *v = *state;
    struct err e = {0};

    mux_put(&v->word, MUX_NOOP, SLICE_NONE);
    assert_int_equal(stream_frame(&v->stream, &e), 0);
    come(v);
    put_much(v);
    assert_int_equal(stream_flush(&v->stream, &e), E_TIMEOUT);
    assert_non_null(strstr(e.text, "takes nothing"));
}

static void who_reads_nothing_before_frames(void **state)
{
    struct visit *v = *state;
    struct err e = {0};

    buf_byte(&v->word, 'x');
    come(v);
    put_much(v);
    assert_int_equal(stream_flush(&v->stream, &e), E_TIMEOUT);
}

static void whose_line_never_ends(void **state)
{
    struct visit *v = *state;
    struct buf line = BUF_INIT(LINE_ROOM);
    struct err e = {0};

    buf_byte(&v->word, 'x');
    come(v);
    v->stream.deadline_ms = clock_now_ms() + STALL_MS;
    assert_int_equal(stream_line(&v->stream, &line, &e), E_TIMEOUT);
    assert_non_null(strstr(e.text, "says nothing"));
    buf_free(&line);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(who_reads_nothing_in_frames),
        CASE(who_reads_nothing_before_frames),
        CASE(whose_line_never_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
