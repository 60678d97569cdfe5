#include "common/os/forked.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_what_a_child_tells_comes_and_then_the_end(void **state)
{
    char said[16] = "";
    pid_t pid;
    int fd, status;

    (void)state;
    assert_int_equal(forked_start(&pid, &fd, NULL), 0);
    if (pid == 0) {
        bool ok = (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 && write(fd, "here", 4) == 4;
        _exit(ok ? 7 : 1);
    }
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_int_equal(read(fd, said, sizeof said), 4);
    assert_memory_equal(said, "here", 4);
    assert_int_equal(read(fd, said, sizeof said), 0); /* nobody else has its end */
    close(fd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void test_without_a_pipe_there_is_no_child(void **state)
{
    struct rlimit was, none;
    struct err e;
    pid_t pid;
    int fd, rc;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = (struct rlimit){0, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    rc = forked_start(&pid, &fd, &e);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_true(rc < 0);
    assert_int_equal(strncmp(e.text, "pipe: ", 6), 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_child_tells_comes_and_then_the_end),
        cmocka_unit_test(test_without_a_pipe_there_is_no_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
