/* The child that unpacks has the archive open, and nothing else of the agent's. */
#include "agent/cache/extract.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT_MS = 60000, JUNK = 64 << 10 /* a pipe holds that */ };

static int ours[2], archive[2];

/* The child has its copies: those of ours that this process keeps would hide what becomes of
 * them. */
static void after_fork(void)
{
    close(ours[1]);
}

static void *unpack(void *folder)
{
    struct err e = {0};

    assert_int_not_equal(extract_in_child(archive[0], JUNK, folder, &e), 0);
    return NULL;
}

static void nothing_else_is_open(void **state)
{
    static const char junk[JUNK] = "no archive";
    char folder[] = "/tmp/extract-XXXXXX";
    struct pollfd ended;
    pthread_t thread;

    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(pipe(ours), 0); /* not O_CLOEXEC: that would not matter, nothing is executed */
    assert_int_equal(pipe(archive), 0);
    assert_int_equal(pthread_atfork(NULL, after_fork, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, unpack, folder), 0);
    /* While the child waits for its archive: has our pipe no writer any more? */
    ended = (struct pollfd){.fd = ours[0], .events = POLLIN};
    assert_int_equal(poll(&ended, 1, LIMIT_MS), 1);
    assert_true(ended.revents & POLLHUP);
    assert_int_equal(write(archive[1], junk, sizeof junk), sizeof junk);
    close(archive[1]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(archive[0]);
    close(ours[0]);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_else_is_open)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
