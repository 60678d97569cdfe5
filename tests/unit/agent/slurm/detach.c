#include "agent/slurm/detach.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/os/clock.h"

struct pipes {
    int say[2], go[2];
};

/* Says what it is, then waits until it may end. */
static void work(void *arg)
{
    const struct pipes *p = arg;
    pid_t is[3] = {getpid(), getsid(0), getppid()};
    char c;

    (void)!write(p->say[1], is, sizeof is);
    (void)!read(p->go[0], &c, 1);
}

static void open_pipes(struct pipes *p)
{
    assert_int_equal(pipe(p->say), 0);
    assert_int_equal(pipe(p->go), 0);
}

static void close_pipes(struct pipes *p)
{
    close(p->say[0]);
    close(p->say[1]);
    close(p->go[0]);
}

static void test_it_goes_on_and_ends(void **state)
{
    struct pipes p;
    enum detach_end how;
    pid_t is[3];

    (void)state;
    open_pipes(&p);
    assert_int_equal(detach(work, &p, -1, clock_now_ms(), &how, NULL), 0);
    assert_int_equal(how, DETACH_GOES_ON);
    assert_int_equal(read(p.say[0], is, sizeof is), sizeof is);
    assert_true(is[0] != is[1] && is[1] != getsid(0) && is[2] != getpid());
    close(p.go[1]); /* the worker has a copy: it is ended by hand */
    kill(is[0], SIGKILL);
    close_pipes(&p);
}

static void nothing(void *arg)
{
    (void)arg;
}

static void test_one_that_ends_is_not_waited_for(void **state)
{
    enum detach_end how;

    (void)state;
    assert_int_equal(detach(nothing, NULL, -1, UINT64_MAX / 2, &how, NULL), 0);
    assert_int_equal(how, DETACH_ENDED);
}

/* Whatever breaks in a prolog, it ends with 0; its worker is another matter. */
static void test_it_ends_well(void **state)
{
    static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGALRM};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        int status = -1;
        pid_t pid = fork();
        if (pid == 0) {
            detach_begin();
            raise(signals[i]);
            _exit(1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_goes_on_and_ends),
        cmocka_unit_test(test_one_that_ends_is_not_waited_for),
        cmocka_unit_test(test_it_ends_well),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
