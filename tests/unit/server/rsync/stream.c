/* A client that sends a little now and then, and nothing that helps: it is given up all the
 * same. */
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

static const struct reader_rate_limit any_rate = {.bytes_per_s = 0};

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
    stream_init(&v->stream, v->fd[0], STALL_MS, &any_rate, &v->stop);
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
    assert_non_null(strstr(e.text, "stopped reading"));
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
    assert_non_null(strstr(e.text, "stopped sending"));
    buf_free(&line);
}

/* Frames, then bytes without any up to a mark, then frames: cut wherever the wire cuts them. */
static void what_comes_between_frames(void **state)
{
    struct visit *v = *state;
    struct stream *s = &v->stream;
    struct buf all = BUF_INIT(1000), name = BUF_INIT(8);
    uint64_t left = 100;
    char got[5] = "";

    mux_put(&all, MUX_DATA, SLICE("rule"));
    buf_adds(&all, SLICE("one\0much too long\0\0"));
    mux_put(&all, MUX_DATA, SLICE("next"));
    come(v); /* with no word of its own */
    for (size_t cut = 0; cut <= all.n; cut++) {
        *s = (struct stream){.fd = -1};
        stream_init(s, v->fd[0], STALL_MS * 10, &any_rate, &v->stop);
        s->stepwise = true;
        assert_int_equal(send(v->fd[1], all.p, cut, 0), (ssize_t)cut);
        if (cut < all.n / 2) { /* what is late, and what is already there */
            assert_int_equal(send(v->fd[1], all.p + cut, all.n - cut, 0), (ssize_t)(all.n - cut));
        }
        assert_int_equal(stream_frame(s, NULL), 0);
        if (cut >= 8) {
            assert_int_equal(stream_read(s, got, 4, NULL), 0);
            assert_string_equal(got, "rule");
        }
        if (cut >= all.n / 2) {
            assert_int_equal(send(v->fd[1], all.p + cut, all.n - cut, 0), (ssize_t)(all.n - cut));
        }
        if (cut < 8) {
            assert_int_equal(stream_read(s, got, 4, NULL), 0);
        }
        left = 100;
        assert_int_equal(stream_bare(s, true, NULL), 0);
        assert_int_equal(stream_until(s, '\0', &name, &left, NULL), 0);
        assert_true(slice_eq(buf_slice(&name), SLICE("one")));
        assert_int_equal(stream_until(s, '\0', &name, &left, NULL), 0);
        assert_int_equal(name.rc, E_TOOBIG);
        assert_int_equal(stream_until(s, '\0', &name, &left, NULL), 0);
        assert_true(name.n == 0 && name.rc == 0 && left == 100 - 19);
        assert_int_equal(stream_bare(s, false, NULL), 0);
        assert_int_equal(stream_read(s, got, 4, NULL), 0);
        assert_string_equal(got, "next");
        stream_fini(s);
    }
    stream_init(s, v->fd[0], STALL_MS, &any_rate, &v->stop);
    buf_free(&all);
    buf_free(&name);
}

static void what_has_no_end_ends(void **state)
{
    struct visit *v = *state;
    struct buf name = BUF_INIT(8);
    uint64_t left = 5;

    mux_put(&v->word, MUX_DATA, SLICE("ab"));
    assert_int_equal(stream_frame(&v->stream, NULL), 0);
    come(v);
    assert_int_equal(stream_until(&v->stream, '\0', &name, &left, NULL), E_TOOBIG);
    buf_free(&name);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(who_reads_nothing_in_frames), CASE(who_reads_nothing_before_frames),
        CASE(whose_line_never_ends),       CASE(what_comes_between_frames),
        CASE(what_has_no_end_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
