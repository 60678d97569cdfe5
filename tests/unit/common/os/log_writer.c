/* Who has a line never waits; what was taken comes out whole and in order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/os/lock.h"
#include "common/os/log_writer.h"
#include "common/os/newfile.h"

static char folder[] = "/tmp/log-writer-test-XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL || chdir(folder) != 0;
}

static int teardown(void **state)
{
    (void)state;
    return chdir("/") != 0 || dir_remove_tree(folder, NULL) != 0;
}

static void add(struct log_writer *s, unsigned number, unsigned *taken)
{
    char line[40];
    int n = snprintf(line, sizeof line, "line %06u ..........................\n", number);

    *taken += log_writer_add(s, slice_of(line, (size_t)n), false);
}

static unsigned count_in_order(const char *path)
{
    struct buf text = BUF_INIT(8 << 20);
    struct slice rest;
    unsigned n = 0, last = 0, number;

    assert_int_equal(buf_read_file(&text, path, NULL), 0);
    rest = buf_slice(&text);
    while (rest.n > 0) {
        struct slice line = slice_cut(&rest, '\n');
        assert_int_equal(line.n, 38);
        assert_int_equal(sscanf(line.p, "line %u", &number), 1);
        assert_true(n == 0 || number > last);
        last = number;
        n++;
    }
    buf_free(&text);
    return n;
}

static void a_burst_larger_than_the_room_is_counted(void **state)
{
    struct log_writer *s = NULL;
    unsigned taken = 0;
    enum { LINES = 20000 };

    (void)state;
    assert_int_equal(log_writer_open("test", "burst.log", 64 << 10, &s, NULL), 0);
    for (unsigned i = 0; i < LINES; i++) {
        add(s, i, &taken);
    }
    assert_int_equal(taken + log_writer_dropped(s), LINES);
    log_writer_settle(s, 10000);
    assert_int_equal(count_in_order("burst.log"), taken);
    add(s, LINES, &taken);
    log_writer_close(&s);
    assert_null(s);
    assert_int_equal(count_in_order("burst.log"), taken);
}

/* A write is cut off in the middle of a line, as a full disk does: the next line still begins
 * one. */
static void what_follows_a_torn_line_stands_alone(void **state)
{
    struct rlimit was, small;
    struct buf text = BUF_INIT(1 << 20);
    struct log_writer *s = NULL;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(log_writer_open("test", "torn.log", 64 << 10, &s, NULL), 0);
    small = (struct rlimit){20, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_true(log_writer_add(s, SLICE("the first line\nthe second line\n"), true));
    log_writer_settle(s, 10000);
    assert_true(log_writer_add(s, SLICE("while it is full\n"), true));
    log_writer_settle(s, 10000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_true(log_writer_add(s, SLICE("the last line\n"), true));
    log_writer_settle(s, 10000);
    assert_true(log_writer_add(s, SLICE("and one\n"), true));
    log_writer_close(&s);
    assert_int_equal(buf_read_file(&text, "torn.log", NULL), 0);
    assert_string_equal(buf_cstr(&text), "the first line\nthe s\nthe last line\nand one\n");
    buf_free(&text);
}

static void so_does_what_follows_a_line_of_another_life(void **state)
{
    struct buf text = BUF_INIT(1 << 20);
    struct log_writer *s = NULL;
    FILE *f = fopen("life.log", "w");

    (void)state;
    assert_non_null(f);
    assert_true(fputs("whole\nhal", f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(log_writer_open("test", "life.log", 64 << 10, &s, NULL), 0);
    assert_true(log_writer_add(s, SLICE("next\n"), true));
    log_writer_close(&s);
    assert_int_equal(buf_read_file(&text, "life.log", NULL), 0);
    assert_string_equal(buf_cstr(&text), "whole\nhal\nnext\n");
    buf_free(&text);
}

struct reader {
    int fd;
    struct buf got;
};

static void *read_on(void *arg)
{
    struct reader *r = arg;
    ssize_t n = 1;

    while (n > 0) {
        char *room = buf_room(&r->got, 65536);
        n = read(r->fd, room, 65536);
        buf_grew(&r->got, n > 0 ? (size_t)n : 0);
    }
    return NULL;
}

static uint64_t sum_of(const char *text, const char *name)
{
    uint64_t n = 0;

    while ((text = strstr(text, name)) != NULL) {
        text += strlen(name);
        n += strtoull(text, NULL, 10);
    }
    return n;
}

/* Nobody reads stderr for a while: nobody waits, and what was lost is told when it goes on. */
static void goes_on_beside(int fds[2])
{
    struct reader r = {.got = BUF_INIT(16 << 20)};
    int was = dup(STDERR_FILENO);
    uint64_t lost;
    pthread_t thread;

    assert_int_equal(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
    close(fds[1]);
    r.fd = fds[0];
    log_begin();
    /* More than the ring holds twice: the writer may have taken one that was full. */
    for (unsigned i = 0; i < 300000; i++) {
        log_info("test.line", "number=%u", i);
    }
    lost = log_dropped();
    thread = thread_start("reader", read_on, &r);
    for (unsigned i = 0; i < 100;
         i++) { /* each waits a while at most, while there is something left */
        log_settle();
    }
    log_info("test.later", "number=1");
    log_end();
    assert_int_equal(dup2(was, STDERR_FILENO), STDERR_FILENO);
    close(was);
    pthread_join(thread, NULL);
    close(fds[0]);
    assert_true(lost > 0); /* a failure is told on stderr, which was full until now */
    assert_non_null(strstr(buf_cstr(&r.got), "test.line number=0\n"));
    assert_non_null(strstr(buf_cstr(&r.got), "test.later number=1\n"));
    assert_non_null(strstr(buf_cstr(&r.got), "log.dropped lines="));
    assert_int_equal(sum_of(r.got.p, "dropped lines="), lost);
    buf_free(&r.got);
}

static void a_pipe_that_is_full_holds_nobody_up(void **state)
{
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    goes_on_beside(fds);
}

/* As a unit of systemd has it. */
static void a_socket_that_is_full_holds_nobody_up(void **state)
{
    int fds[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    goes_on_beside(fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_larger_than_the_room_is_counted),
        cmocka_unit_test(what_follows_a_torn_line_stands_alone),
        cmocka_unit_test(so_does_what_follows_a_line_of_another_life),
        cmocka_unit_test(a_pipe_that_is_full_holds_nobody_up),
        cmocka_unit_test(a_socket_that_is_full_holds_nobody_up),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
