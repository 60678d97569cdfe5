#include "agent/preflight/preflight.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG_MS = 120000, SHORT_MS = 300 };

static void well(struct look *l, struct finding *f)
{
    (void)l;
    finding_ok(f, "well");
}

static void sick(struct look *l, struct finding *f)
{
    (void)l;
    finding_bad(f, "SICK", "rest", "not well");
}

static void hang(struct look *l, struct finding *f)
{
    (void)l;
    (void)f;
    signal(SIGTERM, SIG_IGN);
    for (;;) {
        pause();
    }
}

/* Whoever holds the pipe, or another process that it left, must not matter. */
static void leave_a_child(struct look *l, struct finding *f)
{
    if (fork() == 0) {
        hang(l, f);
    }
    hang(l, f);
}

static void crash(struct look *l, struct finding *f)
{
    (void)l;
    (void)f;
    kill(getpid(), SIGKILL);
    pause();
}

static void end(struct look *l, struct finding *f)
{
    (void)l;
    (void)f;
    _exit(7);
}

/* Files and signals of whoever asks are none of the check's. */
static void look_around(struct look *l, struct finding *f)
{
    sigset_t set;
    int open_fds = 0;

    (void)l;
    for (int fd = 4; fd < 256; fd++) {
        open_fds += fcntl(fd, F_GETFD) != -1;
    }
    sigprocmask(SIG_SETMASK, NULL, &set);
    if (open_fds > 0 || sigismember(&set, SIGTERM) || isatty(0) || getpgid(0) != getpid()) {
        finding_bad(f, "HOLDS", "", "%d files", open_fds);
    }
    printf("this goes nowhere\n");
    fflush(stdout);
    finding_ok(f, "alone");
}

static void run(const struct probe_check *check, struct finding *f, size_t n)
{
    const struct look l = {.sight = {""}};
    struct err why = {0};

    for (size_t i = 0; i < n; i++) {
        f[i] = (struct finding){.check = (uint8_t)i, .worst_allowed = LEVEL_CRIT};
    }
    assert_int_equal(probe_run(&l, check, f, n, &why), 0);
}

static void test_groups_tell(void **state)
{
    const struct probe_check check[] = {{well, 0, LONG_MS, true},
                                        {sick, 1, LONG_MS, true},
                                        {sick, 0, LONG_MS, true},
                                        {well, 1, LONG_MS, true}};
    struct finding f[4];

    (void)state;
    run(check, f, 4);
    assert_int_equal(f[0].level, LEVEL_OK);
    assert_string_equal(f[0].text, "well");
    assert_int_equal(f[1].level, LEVEL_CRIT);
    assert_string_equal(f[2].code, "SICK");
    assert_string_equal(f[2].hint, "rest");
    assert_int_equal(f[3].level, LEVEL_OK);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left */
    assert_int_equal(errno, ECHILD);
}

static void test_what_hangs_costs_itself(void **state)
{
    const struct probe_check check[] = {{well, 0, LONG_MS, true},
                                        {leave_a_child, 0, SHORT_MS, true},
                                        {well, 0, LONG_MS, true},
                                        {well, 1, LONG_MS, true}};
    struct finding f[4];

    (void)state;
    run(check, f, 4);
    assert_int_equal(f[0].level, LEVEL_OK);
    assert_int_equal(f[1].level, LEVEL_CRIT);
    assert_string_equal(f[1].code, "HANGS");
    assert_string_equal(f[1].text, "the check did not end within 0.3 s");
    assert_int_equal(f[2].level, LEVEL_OK);
    assert_int_equal(f[3].level, LEVEL_OK);
}

static void test_what_asks_no_driver_is_only_late(void **state)
{
    const struct probe_check check[] = {{hang, 0, SHORT_MS, false}, {well, 0, LONG_MS, false}};
    struct finding f[2];

    (void)state;
    run(check, f, 2);
    assert_int_equal(f[0].level, LEVEL_WARN);
    assert_string_equal(f[0].code, "HANGS");
    assert_int_equal(f[1].level, LEVEL_OK);
}

static void test_what_crashes_is_reported(void **state)
{
    const struct probe_check check[] = {
        {crash, 0, LONG_MS, true}, {well, 0, LONG_MS, true}, {end, 1, LONG_MS, true}};
    struct finding f[3];

    (void)state;
    run(check, f, 3);
    assert_string_equal(f[0].code, "CRASHED");
    assert_string_equal(f[0].text, "the check was killed: Killed");
    assert_int_equal(f[1].level, LEVEL_OK);
    assert_string_equal(f[2].text, "the check exited without a result (exit code 7)");
}

static void test_after_two_the_rest_is_left(void **state)
{
    const struct probe_check check[] = {{crash, 0, LONG_MS, true},
                                        {end, 0, LONG_MS, true},
                                        {well, 0, LONG_MS, true},
                                        {hang, 0, LONG_MS, true},
                                        {well, 2, LONG_MS, true}};
    struct finding f[5];

    (void)state;
    run(check, f, 5);
    assert_int_equal(f[1].level, LEVEL_CRIT);
    for (size_t i = 2; i < 4; i++) {
        assert_int_equal(f[i].level, LEVEL_SKIP);
        assert_string_equal(f[i].text, "not run: 2 earlier checks of its group gave no result");
    }
    assert_int_equal(f[4].level, LEVEL_OK);
}

static void test_it_holds_nothing(void **state)
{
    const struct probe_check check[] = {{look_around, 0, LONG_MS, true}};
    int fd = open("/dev/null", O_RDONLY); /* without O_CLOEXEC */
    struct finding f[1];
    sigset_t set, before;

    (void)state;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &before);
    run(check, f, 1);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(fd);
    assert_string_equal(f[0].text, "alone");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_tell),
        cmocka_unit_test(test_what_hangs_costs_itself),
        cmocka_unit_test(test_what_asks_no_driver_is_only_late),
        cmocka_unit_test(test_what_crashes_is_reported),
        cmocka_unit_test(test_after_two_the_rest_is_left),
        cmocka_unit_test(test_it_holds_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
