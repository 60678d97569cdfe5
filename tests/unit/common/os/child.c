/* What a program says, how it ended, and that nothing of it is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <event2/event.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/os/child.h"

struct seen {
    struct event_base *base;
    struct child *child;
    struct buf out, err;
    struct child_end end;
    unsigned ends;
    bool stop_at_word; /* child_stop() when the first byte comes */
};

static void on_out(void *arg, struct slice bytes)
{
    struct seen *s = arg;

    buf_adds(&s->out, bytes);
    if (s->stop_at_word) {
        child_stop(s->child);
    }
}

static void on_err(void *arg, struct slice bytes)
{
    buf_adds(&((struct seen *)arg)->err, bytes);
}

static void on_end(void *arg, const struct child_end *end)
{
    struct seen *s = arg;

    s->end = *end;
    s->ends++;
    child_close(&s->child);
}

static int setup(void **state)
{
    struct seen *s = NEW(struct seen);

    s->base = event_base_new();
    s->out = BUF_INIT(8 << 20);
    s->err = BUF_INIT(8 << 20);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct seen *s = *state;

    child_close(&s->child);
    event_base_free(s->base);
    buf_free(&s->out);
    buf_free(&s->err);
    free(s);
    return 0;
}

static int start(struct seen *s, struct child_params *w, const char *script, bool both,
                 struct err *e)
{
    const struct child_events ev = {on_out, both ? on_err : NULL, on_end};
    const char *argv[] = {"/bin/sh", "-c", script, NULL};

    w->argv = argv;
    return child_start(s->base, w, &ev, s, &s->child, e);
}

static void until_end(struct seen *s)
{
    while (s->ends == 0) {
        assert_int_not_equal(event_base_loop(s->base, EVLOOP_ONCE), -1);
    }
    assert_int_equal(s->ends, 1);
}

static void go(struct seen *s, struct child_params w, const char *script, bool both)
{
    assert_int_equal(start(s, &w, script, both, NULL), 0);
    until_end(s);
}

static void says_and_ends(void **state)
{
    struct seen *s = *state;
    const char *env[] = {"WORD=there", NULL};

    go(s, (struct child_params){.input = SLICE("in"), .env = env, .folder = "/"},
       "cat; cat /dev/stdin; echo $WORD; pwd; echo no >&2; exit 3", true);
    assert_string_equal(buf_cstr(&s->out), "ininthere\n/\n");
    assert_string_equal(buf_cstr(&s->err), "no\n");
    assert_int_equal(s->end.exit_code, 3);
    assert_false(s->end.by_signal || s->end.timed_out || s->end.stopped);
}

static void one_stream_of_both(void **state)
{
    struct seen *s = *state;

    go(s, (struct child_params){0}, "echo a; echo b >&2; cat", false);
    assert_string_equal(buf_cstr(&s->out), "a\nb\n");
    assert_int_equal(s->end.exit_code, 0);
}

static void much_comes_whole(void **state)
{
    struct seen *s = *state;

    go(s, (struct child_params){0}, "head -c 3000000 /dev/zero", false);
    assert_int_equal(s->out.n, 3000000);
}

static void by_a_signal(void **state)
{
    struct seen *s = *state;

    go(s, (struct child_params){0}, "kill -9 $$", false);
    assert_true(s->end.by_signal);
    assert_int_equal(s->end.exit_code, 128 + SIGKILL);
}

static void stopped_by_a_deaf_ear(void **state)
{
    struct seen *s = *state;

    s->stop_at_word = true;
    go(s, (struct child_params){.grace_ms = 50}, "trap '' TERM; echo up; while :; do sleep 1; done",
       false);
    assert_true(s->end.stopped && s->end.by_signal);
    assert_int_equal(s->end.exit_code, 128 + SIGKILL);
}

static void too_slow(void **state)
{
    struct seen *s = *state;

    go(s, (struct child_params){.timeout_ms = 50}, "sleep 600", false);
    assert_true(s->end.timed_out && !s->end.stopped);
    assert_int_equal(s->end.exit_code, 128 + SIGTERM);
}

static bool is_gone(pid_t pid)
{
    char path[64], state;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    if (f == NULL) {
        return true;
    }
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1) {
        state = 'Z';
    }
    fclose(f);
    return state == 'Z' || state == 'X'; /* nobody may be there to reap it */
}

static void until_gone(pid_t pid)
{
    assert_true(pid > 0);
    for (unsigned i = 0; i < 6000 && !is_gone(pid); i++) {
        usleep(10000);
    }
    assert_true(is_gone(pid));
}

static void what_it_left_in_its_group_goes(void **state)
{
    struct seen *s = *state;

    go(s, (struct child_params){0}, "sleep 600 & echo $!", false);
    until_gone(atoi(buf_cstr(&s->out)));
}

static void closing_ends_all_of_it(void **state)
{
    struct seen *s = *state;
    struct child_params w = {0};

    assert_int_equal(start(s, &w, "sleep 600 & echo $!; wait", false, NULL), 0);
    while (s->out.n == 0) {
        event_base_loop(s->base, EVLOOP_ONCE);
    }
    child_close(&s->child);
    assert_null(s->child);
    until_gone(atoi(buf_cstr(&s->out)));
    assert_int_equal(s->ends, 0);
}

static void no_descriptor_of_ours(void **state)
{
    struct seen *s = *state;
    int fd = dup2(STDIN_FILENO, 77); /* without O_CLOEXEC */

    assert_int_equal(fd, 77);
    go(s, (struct child_params){0}, "test -e /proc/$$/fd/0 && ! test -e /proc/$$/fd/77", false);
    assert_int_equal(s->end.exit_code, 0);
    close(fd);
}

static void cannot_be_started(void **state)
{
    struct seen *s = *state;
    const struct child_events ev = {on_out, NULL, on_end};
    const char *argv[] = {"/nonexistent/program", NULL};
    struct child_params w = {.argv = argv};
    struct err e = {0};

    assert_int_equal(child_start(s->base, &w, &ev, s, &s->child, &e), E_NOTFOUND);
    assert_non_null(strstr(e.text, "/nonexistent/program"));
    argv[0] = "/etc/passwd";
    assert_int_equal(child_start(s->base, &w, &ev, s, &s->child, &e), E_DENIED);
    argv[0] = "true"; /* by PATH */
    assert_int_equal(child_start(s->base, &w, &ev, s, &s->child, &e), 0);
    until_end(s);
    assert_int_equal(s->end.exit_code, 0);
}

static void descriptors_of_the_caller(void **state)
{
    struct seen *s = *state;
    int in[2], out[2];
    char got[16];

    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(write(in[1], "hello", 5), 5);
    close(in[1]);
    go(s, (struct child_params){.in_fd = in[0], .out_fd = out[1]}, "cat", true);
    assert_int_equal(read(out[0], got, sizeof got), 5);
    assert_memory_equal(got, "hello", 5);
    close(in[0]);
    close(out[0]);
    close(out[1]);
}

/* Starts one as a process of its own would, whose end is none that it could see to. */
NORETURN static void start_and_wait(int tell)
{
    struct event_base *base = event_base_new();
    const struct child_events ev = {on_out, NULL, on_end};
    const char *argv[] = {"/bin/sh", "-c", "echo $$; exec sleep 600", NULL};
    struct child_params w = {.argv = argv, .out_fd = tell};
    struct child *c;

    if (child_start(base, &w, &ev, NULL, &c, NULL) == 0) {
        for (;;) {
            pause();
        }
    }
    _exit(1);
}

static void killing_us_kills_it(void **state)
{
    int tell[2];
    char text[32] = "";
    pid_t us;

    (void)state;
    assert_int_equal(pipe2(tell, O_CLOEXEC), 0);
    us = fork();
    assert_int_not_equal(us, -1);
    if (us == 0) {
        start_and_wait(tell[1]);
    }
    close(tell[1]);
    assert_true(read(tell[0], text, sizeof text - 1) > 1);
    kill(us, SIGKILL);
    assert_int_equal(waitpid(us, NULL, 0), us);
    until_gone(atoi(text));
    close(tell[0]);
}

static void signals_are_as_usual(void **state)
{
    struct seen *s = *state;
    sigset_t some, before;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&some);
    sigaddset(&some, SIGTERM);
    sigprocmask(SIG_BLOCK, &some, &before);
    go(s, (struct child_params){0}, "kill -PIPE $$; echo deaf", false);
    assert_int_equal(s->end.exit_code, 128 + SIGPIPE);
    s->ends = 0;
    go(s, (struct child_params){0}, "kill -TERM $$; echo deaf", false);
    assert_int_equal(s->end.exit_code, 128 + SIGTERM);
    sigprocmask(SIG_SETMASK, &before, NULL);
    signal(SIGPIPE, SIG_DFL);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(says_and_ends),
        CASE(one_stream_of_both),
        CASE(much_comes_whole),
        CASE(by_a_signal),
        CASE(stopped_by_a_deaf_ear),
        CASE(too_slow),
        CASE(what_it_left_in_its_group_goes),
        CASE(closing_ends_all_of_it),
        CASE(no_descriptor_of_ours),
        CASE(cannot_be_started),
        CASE(descriptors_of_the_caller),
        CASE(killing_us_kills_it),
        CASE(signals_are_as_usual),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
