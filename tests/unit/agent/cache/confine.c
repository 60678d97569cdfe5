#include "agent/cache/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Is a call refused by us to a child that is confined? With arguments that no call likes: it does
 * nothing when it is not. */
static bool refused(long number)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        confine_to(".");
        errno = 0;
        _exit(syscall(number, -1L, -1L, -1L, -1L, -1L, -1L) == -1 && errno == EPERM ? 0 : 1);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status) == 0;
}

static void no_way_to_a_socket_or_a_program(void **state)
{
    (void)state;
    assert_true(refused(SYS_socket));
    assert_true(refused(SYS_connect));
    assert_true(refused(SYS_execve));
    assert_true(refused(SYS_ptrace));
    assert_false(refused(SYS_write));
}

/* Landlock says nothing of these. */
static void no_change_to_others_by_their_paths(void **state)
{
    (void)state;
    assert_true(refused(SYS_truncate));
    assert_true(refused(SYS_fchmodat));
    assert_true(refused(SYS_fchownat));
    assert_true(refused(SYS_setxattr));
    assert_true(refused(SYS_mknodat));
    assert_false(refused(SYS_ftruncate));
    assert_false(refused(SYS_fchmod));
    assert_false(refused(SYS_utimensat));
}

/* A ring's work is done by the kernel and passes no filter. */
static void no_ring_that_does_it_instead(void **state)
{
    (void)state;
    assert_true(refused(SYS_io_uring_setup));
    assert_true(refused(SYS_io_uring_enter));
}

/* What is below the folder may be read, nothing else: not even what everybody may. */
static void no_file_of_others(void **state)
{
    int status = 0;
    pid_t pid;

    (void)state;
    if (syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) < 2) {
        skip(); /* this kernel has no Landlock, or an old one */
    }
    pid = fork();
    if (pid == 0) {
        int own, other;
        if (chdir("/proc/self/net") == -1) {
            _exit(2);
        }
        confine_to(".");
        own = open("tcp", O_RDONLY | O_CLOEXEC);
        other = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
        _exit(own != -1 && other == -1 && errno == EACCES ? 0 : 1);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#ifdef __x86_64__
/* The same calls have second numbers, of the x32 interface; a kernel may know them. */
static void no_second_number(void **state)
{
    const long x32 = 0x40000000;

    (void)state;
    assert_true(refused(x32 | SYS_socket));
    assert_true(refused(x32 | 520)); /* its execve */
    assert_true(refused(x32 | SYS_getpid));
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_way_to_a_socket_or_a_program),
        cmocka_unit_test(no_change_to_others_by_their_paths),
        cmocka_unit_test(no_ring_that_does_it_instead),
        cmocka_unit_test(no_file_of_others),
#ifdef __x86_64__
        cmocka_unit_test(no_second_number),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
