#include "common/os/newfile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"

enum { BLOCKS = 16, LENGTH = BLOCKS * SPARSE_BLOCK + 1000 };

static int scratch(void)
{
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);

    assert_int_not_equal(fd, -1);
    assert_int_equal(ftruncate(fd, LENGTH), 0);
    return fd;
}

static uint64_t on_disk(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void check(int fd, const char *want)
{
    static char got[LENGTH];
    struct err e;

    assert_int_equal(fd_pread_all(fd, got, LENGTH, 0, &e), 0);
    assert_memory_equal(got, want, LENGTH);
}

/* Bytes here and there, written in pieces of every kind of size, over what was there before. */
static void test_same_bytes(void **state)
{
    static const size_t steps[] = {LENGTH, SPARSE_BLOCK, SPARSE_BLOCK - 1, 3 * SPARSE_BLOCK + 17,
                                   5000};
    char *want = calloc(1, LENGTH);
    char *old = malloc(LENGTH);
    struct err e;

    (void)state;
    memset(old, 'o', LENGTH);
    want[0] = want[3 * SPARSE_BLOCK] = want[5 * SPARSE_BLOCK - 1] = want[LENGTH - 1] = 1;
    memset(want + 8 * SPARSE_BLOCK + 9, 'x', 2 * SPARSE_BLOCK);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        int fd = scratch();
        assert_int_equal(fd_pwrite_all(fd, old, LENGTH, 0, &e), 0);
        for (size_t at = 0; at < LENGTH; at += steps[i]) {
            assert_int_equal(
                fd_pwrite_sparse(fd, want + at, min_u64(steps[i], LENGTH - at), at, &e), 0);
        }
        check(fd, want);
        close(fd);
    }
    free(old);
    free(want);
}

static void test_zeros_take_no_room(void **state)
{
    char *zeros = calloc(1, LENGTH);
    int fd = scratch();
    struct err e;

    (void)state;
    assert_int_equal(fd_pwrite_sparse(fd, zeros, LENGTH, 0, &e), 0);
    check(fd, zeros);
    /* The last 1000 bytes are no whole block. A file system that has no holes is fine, too. */
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SPARSE_BLOCK) == 0) {
        assert_true(on_disk(fd) <= 64 * 1024);
    }
    close(fd);
    free(zeros);
}

/* A file that may not grow further takes a part, as a full disk does. */
static void test_appended_whole_or_not_at_all(void **state)
{
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    struct rlimit before, narrow;
    char got[9] = "";
    struct stat st;
    struct err e = {0};

    (void)state;
    assert_int_not_equal(fd, -1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    narrow = (struct rlimit){.rlim_cur = 6, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(fd_append(fd, "one\n", 4, &e), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &narrow), 0);
    assert_true(fd_append(fd, "torn\n", 5, &e) != 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, 4);
    assert_int_equal(fd_append(fd, "two\n", 4, &e), 0);
    assert_int_equal(fd_pread_all(fd, got, 8, 0, &e), 0);
    assert_string_equal(got, "one\ntwo\n");
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bytes),
                                       cmocka_unit_test(test_zeros_take_no_room),
                                       cmocka_unit_test(test_appended_whole_or_not_at_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
