/* Shares of the descriptors: what is beyond one is closed again, and said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/os/descriptor.h"

enum { LIMIT = 80 };

static int at(int number)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int there = fcntl(fd, F_DUPFD_CLOEXEC, number);

    close(fd);
    return there;
}

static void each_stops_at_its_own(void **state)
{
    (void)state;
    assert_int_equal(descriptor_within(DESCRIPTORS_OF_CONNECTIONS, at(39)), 39);
    assert_int_equal(descriptor_within(DESCRIPTORS_OF_FILES, at(59)), 59);
    errno = 0;
    assert_int_equal(descriptor_within(DESCRIPTORS_OF_CONNECTIONS, at(40)), -1);
    assert_int_equal(errno, EMFILE);
    assert_int_equal(fcntl(40, F_GETFD), -1);
    assert_int_equal(descriptor_within(DESCRIPTORS_OF_FILES, at(60)), -1);
    assert_int_equal(fcntl(60, F_GETFD), -1);
    close(39);
    close(59);
}

static void what_failed_stays_so(void **state)
{
    (void)state;
    errno = ENOENT;
    assert_int_equal(descriptor_within(DESCRIPTORS_OF_FILES, -1), -1);
    assert_int_equal(errno, ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_stops_at_its_own),
        cmocka_unit_test(what_failed_stays_so),
    };

    if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){LIMIT, LIMIT}) == -1) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
