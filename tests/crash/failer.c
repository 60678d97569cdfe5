/* failer.c - preloaded into a program, makes its disk calls fail while $FAIL_FILE is there.
 *
 * The file says which: "errno how call part"; errno 0: the call waits while the file is there, and
 * then does its work. part is what the file's path must hold, such as "/meta/" or ".sst"; call is
 * one of write, sync, open, any (of these), read (of a range). how is "on" (each such call fails
 * while the file is there) or a number: the Nth fails from now on, once, which takes the file away.
 * $FAIL_FILE.count grows by a byte with each that fails. Calls of libc by name, as in recorder.c.
 */
#undef _FORTIFY_SOURCE /* its inlines would stand in the way of the definitions below */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static atomic_uint seen; /* of those that the file means */

static void note(const char *file)
{
    char name[PATH_MAX];
    int fd;

    snprintf(name, sizeof name, "%s.count", file);
    fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    syscall(SYS_write, fd, "x", 1);
    syscall(SYS_close, fd);
}

static void wait_while(const char *file)
{
    const struct timespec step = {.tv_nsec = 10000000};

    while (syscall(SYS_access, file, F_OK) == 0) {
        nanosleep(&step, NULL);
    }
}

/* 0, or the errno with which this call fails. */
static int fails(const char *call, const char *path)
{
    const char *file = getenv("FAIL_FILE");
    char text[256], how[16], which[16], part[128];
    int fd, number;
    ssize_t n;

    fd = file != NULL ? (int)syscall(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC, 0) : -1;
    if (fd == -1) {
        return 0;
    }
    n = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    text[n > 0 ? n : 0] = '\0';
    if (sscanf(text, "%d %15s %15s %127s", &number, how, which, part) != 4 ||
        strstr(path, part) == NULL ||
        (strcmp(which, call) != 0 && (strcmp(which, "any") != 0 || strcmp(call, "read") == 0))) {
        return 0;
    }
    if (strcmp(how, "on") != 0 &&
        (atomic_fetch_add(&seen, 1) + 1 != (unsigned)atoi(how) || unlink(file) == -1)) {
        return 0;
    }
    note(file);
    if (number == 0) {
        wait_while(file);
    }
    return number;
}

static bool fd_fails(const char *call, int fd)
{
    char link[64], path[PATH_MAX];
    int was = errno, number;
    ssize_t n;

    if (getenv("FAIL_FILE") == NULL) {
        return false;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    number = n > 0 ? fails(call, path) : 0;
    errno = number != 0 ? number : was;
    return number != 0;
}

ssize_t write(int fd, const void *p, size_t n)
{
    return fd_fails("write", fd) ? -1 : syscall(SYS_write, fd, p, n);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t off)
{
    return fd_fails("write", fd) ? -1 : syscall(SYS_pwrite64, fd, p, n, off);
}

ssize_t pwrite64(int fd, const void *p, size_t n, off64_t off)
{
    return fd_fails("write", fd) ? -1 : syscall(SYS_pwrite64, fd, p, n, off);
}

ssize_t pread(int fd, void *p, size_t n, off_t off)
{
    return fd_fails("read", fd) ? -1 : syscall(SYS_pread64, fd, p, n, off);
}

ssize_t pread64(int fd, void *p, size_t n, off64_t off)
{
    return fd_fails("read", fd) ? -1 : syscall(SYS_pread64, fd, p, n, off);
}

ssize_t preadv(int fd, const struct iovec *to, int count, off_t off)
{
    return fd_fails("read", fd) ? -1 : syscall(SYS_preadv, fd, to, count, off, 0);
}

ssize_t preadv2(int fd, const struct iovec *to, int count, off_t off, int flags)
{
    return fd_fails("read", fd) ? -1 : syscall(SYS_preadv2, fd, to, count, off, 0, flags);
}

ssize_t sendfile(int out, int fd, off_t *off, size_t n)
{
    return fd_fails("read", fd) ? -1 : syscall(SYS_sendfile, out, fd, off, n);
}

int fsync(int fd)
{
    return fd_fails("sync", fd) ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return fd_fails("sync", fd) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

static int opened(const char *path, int flags, mode_t mode)
{
    int number = (flags & O_CREAT) != 0 ? fails("open", path) : 0;

    if (number != 0) {
        errno = number;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    mode_t mode;

    va_start(ap, flags);
    mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return opened(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list ap;
    mode_t mode;

    va_start(ap, flags);
    mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return opened(path, flags, mode);
}
