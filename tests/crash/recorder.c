/* recorder.c - preloaded into a program, writes down every change it makes below one folder. Read
 * by power.py.
 *
 * Names and bytes go to $RECORD_LOG in the order in which they happened, one record each; the
 * offset of a record is its time. fsync and fdatasync sync nothing: they take a moment, as a disk
 * would, and record when they began and ended. What began after another thread's fsync did is not
 * covered by it.
 *
 * sees     what the program and its libraries call in libc by name. stdio's own writes are not seen
 *          (RocksDB's LOG); a writable mapping of a file below the folder aborts. power.py compares
 *          its own picture with the real folder
 * env      RECORD_ROOT (a real path), RECORD_LOG, RECORD_SYNC_US: the longest an fsync takes
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FDS = 65536, LOG_FD = 1000 };

enum op { CREATE, MKDIR, LINK, UNLINK, RMDIR, RENAME, WRITE, TRUNCATE, ALLOCATE, SYNC };

struct record { /* power.py: "<IIQQQII" */
    uint32_t size;
    uint32_t op;
    uint64_t ino;
    uint64_t a; /* offset, length, or when the fsync began */
    uint64_t b;
    uint32_t n1; /* bytes of the first path; 0: none, an unnamed file */
    uint32_t n2; /* of the second; the rest is data */
};

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static char root[4096];
static size_t root_len;
static int log_fd = -1;
static uint64_t
    ino_of[FDS]; /* of what was opened below root; may be out of date, see still_ours() */
static unsigned sync_us;

/* The kernel itself: dlsym() would call malloc, and malloc comes here before any constructor has
 * run. */
#define real_openat(at, path, flags, mode)      (int)syscall(SYS_openat, at, path, flags, mode)
#define real_close(fd)                          (int)syscall(SYS_close, fd)
#define real_dup(fd)                            (int)syscall(SYS_dup, fd)
#define real_write(fd, p, n)                    syscall(SYS_write, fd, p, n)
#define real_pwrite(fd, p, n, off)              syscall(SYS_pwrite64, fd, p, n, off)
#define real_ftruncate(fd, size)                (int)syscall(SYS_ftruncate, fd, size)
#define real_fallocate(fd, mode, off, n)        (int)syscall(SYS_fallocate, fd, mode, off, n)
#define real_fsync(fd)                          (int)syscall(SYS_fsync, fd)
#define real_renameat(at, path, to_at, to)      (int)syscall(SYS_renameat2, at, path, to_at, to, 0)
#define real_linkat(at, path, to_at, to, flags) (int)syscall(SYS_linkat, at, path, to_at, to, flags)
#define real_unlinkat(at, path, flags)          (int)syscall(SYS_unlinkat, at, path, flags)
#define real_mkdirat(at, path, mode)            (int)syscall(SYS_mkdirat, at, path, mode)
#define real_mmap(at, n, prot, flags, fd, off)                                                     \
    (void *)syscall(SYS_mmap, at, n, prot, flags, fd, off)

__attribute__((constructor)) static void start(void)
{
    const char *folder = getenv("RECORD_ROOT");
    const char *log = getenv("RECORD_LOG");
    const char *us = getenv("RECORD_SYNC_US");
    int fd;

    if (folder == NULL || log == NULL) {
        return;
    }
    snprintf(root, sizeof root, "%s", folder);
    root_len = strlen(root);
    sync_us = us != NULL ? (unsigned)atoi(us) : 0;
    fd = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    log_fd = fd == -1 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, LOG_FD);
    if (log_fd == -1) {
        abort();
    }
    close(fd);
}

/* --- which file, where ------------------------------------------------------------------------ */

/* The path below root, without '.' and doubled '/'; false when it lies elsewhere. */
static bool below(int at, const char *path, char out[PATH_MAX])
{
    char whole[2 * PATH_MAX] = "";
    char link[64];
    char *rest = NULL;
    size_t n = 0;

    if (log_fd == -1) {
        return false;
    }
    if (path[0] != '/') {
        ssize_t got;
        snprintf(link, sizeof link, at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at);
        got = readlink(link, whole, PATH_MAX);
        if (got <= 0) {
            return false;
        }
        n = (size_t)got;
    }
    snprintf(whole + n, sizeof whole - n, "/%s", path);
    if (strncmp(whole + strspn(whole, "/") - 1, root, root_len) != 0) {
        return false;
    }
    n = 0;
    out[0] = '\0';
    for (char *part = strtok_r(whole + strspn(whole, "/") - 1 + root_len, "/", &rest); part != NULL;
         part = strtok_r(NULL, "/", &rest)) {
        if (strcmp(part, ".") != 0 && n + strlen(part) + 2 < PATH_MAX) {
            n += (size_t)sprintf(out + n, "%s%s", n == 0 ? "" : "/", part);
        }
    }
    return true;
}

/* Descriptors are also closed where we do not see it (closedir): the number may be another file's
 * by now. */
static bool still_ours(int fd)
{
    struct stat st;

    return fd >= 0 && fd < FDS && ino_of[fd] != 0 && fstat(fd, &st) == 0 && st.st_ino == ino_of[fd];
}

static void record(enum op op, uint64_t ino, uint64_t a, uint64_t b, const char *p1, const char *p2,
                   const void *data, size_t n)
{
    struct record r = {
        .size = (uint32_t)(sizeof r + strlen(p1) + strlen(p2) + n),
        .op = op,
        .ino = ino,
        .a = a,
        .b = b,
        .n1 = (uint32_t)strlen(p1),
        .n2 = (uint32_t)strlen(p2),
    };
    struct iovec v[4] = {{&r, sizeof r},
                         {(void *)(uintptr_t)p1, r.n1},
                         {(void *)(uintptr_t)p2, r.n2},
                         {(void *)(uintptr_t)data, n}};

    if (writev(log_fd, v, 4) != (ssize_t)r.size) {
        abort();
    }
}

/* --- names ------------------------------------------------------------------------------------ */

static int opened(int at, const char *path, int flags, mode_t mode)
{
    char name[PATH_MAX];
    struct stat st;
    bool was;
    int fd;

    if (!below(at, path, name)) {
        return real_openat(at, path, flags, mode);
    }
    pthread_mutex_lock(&one);
    was = fstatat(at, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && (flags & O_TMPFILE) != O_TMPFILE;
    fd = real_openat(at, path, flags, mode);
    if (fd != -1 && fd < FDS && fstat(fd, &st) == 0) {
        ino_of[fd] = st.st_ino;
        if (!was) {
            record(CREATE, st.st_ino, 0, 0, (flags & O_TMPFILE) == O_TMPFILE ? "" : name, "", NULL,
                   0);
        } else if ((flags & O_TRUNC) != 0) {
            record(TRUNCATE, st.st_ino, 0, 0, "", "", NULL, 0);
        }
    }
    pthread_mutex_unlock(&one);
    return fd;
}

#define OPEN_MODE(flags, mode)                                                                     \
    if (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE) {                              \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        mode = va_arg(ap, mode_t);                                                                 \
        va_end(ap);                                                                                \
    }

int open(const char *path, int flags, ...)
{
    mode_t mode = 0;

    OPEN_MODE(flags, mode)
    return opened(AT_FDCWD, path, flags, mode);
}

int openat(int at, const char *path, int flags, ...)
{
    mode_t mode = 0;

    OPEN_MODE(flags, mode)
    return opened(at, path, flags, mode);
}

int close(int fd)
{
    if (fd >= 0 && fd < FDS) {
        ino_of[fd] = 0;
    }
    return real_close(fd);
}

int dup(int fd)
{
    int copy = real_dup(fd);

    if (copy != -1 && copy < FDS) {
        ino_of[copy] = fd < FDS ? ino_of[fd] : 0;
    }
    return copy;
}

int mkdirat(int at, const char *path, mode_t mode)
{
    char name[PATH_MAX];
    struct stat st;
    int rc;

    if (!below(at, path, name)) {
        return real_mkdirat(at, path, mode);
    }
    pthread_mutex_lock(&one);
    rc = real_mkdirat(at, path, mode);
    if (rc == 0 && fstatat(at, path, &st, 0) == 0) {
        record(MKDIR, st.st_ino, 0, 0, name, "", NULL, 0);
    }
    pthread_mutex_unlock(&one);
    return rc;
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

int linkat(int at, const char *path, int to_at, const char *to, int flags)
{
    char name[PATH_MAX];
    struct stat st;
    int rc;

    if (!below(to_at, to, name)) {
        return real_linkat(at, path, to_at, to, flags);
    }
    pthread_mutex_lock(&one);
    rc = real_linkat(at, path, to_at, to, flags);
    if (rc == 0 && fstatat(to_at, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        record(LINK, st.st_ino, 0, 0, name, "", NULL, 0);
    }
    pthread_mutex_unlock(&one);
    return rc;
}

int link(const char *path, const char *to)
{
    return linkat(AT_FDCWD, path, AT_FDCWD, to, 0);
}

int unlinkat(int at, const char *path, int flags)
{
    char name[PATH_MAX];
    int rc;

    if (!below(at, path, name)) {
        return real_unlinkat(at, path, flags);
    }
    pthread_mutex_lock(&one);
    rc = real_unlinkat(at, path, flags);
    if (rc == 0) {
        record((flags & AT_REMOVEDIR) != 0 ? RMDIR : UNLINK, 0, 0, 0, name, "", NULL, 0);
    }
    pthread_mutex_unlock(&one);
    return rc;
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int renameat(int at, const char *path, int to_at, const char *to)
{
    char from[PATH_MAX];
    char name[PATH_MAX];
    int rc;

    if (!below(at, path, from) || !below(to_at, to, name)) {
        return real_renameat(at, path, to_at, to);
    }
    pthread_mutex_lock(&one);
    rc = real_renameat(at, path, to_at, to);
    if (rc == 0) {
        record(RENAME, 0, 0, 0, from, name, NULL, 0);
    }
    pthread_mutex_unlock(&one);
    return rc;
}

int rename(const char *path, const char *to)
{
    return renameat(AT_FDCWD, path, AT_FDCWD, to);
}

/* --- bytes ------------------------------------------------------------------------------------ */

ssize_t write(int fd, const void *p, size_t n)
{
    ssize_t put;

    if (!still_ours(fd)) {
        return real_write(fd, p, n);
    }
    pthread_mutex_lock(&one);
    put = real_write(fd, p, n);
    if (put > 0) {
        off_t end = lseek(fd, 0, SEEK_CUR);
        record(WRITE, ino_of[fd], (uint64_t)(end - put), 0, "", "", p, (size_t)put);
    }
    pthread_mutex_unlock(&one);
    return put;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t off)
{
    ssize_t put;

    if (!still_ours(fd)) {
        return real_pwrite(fd, p, n, off);
    }
    pthread_mutex_lock(&one);
    put = real_pwrite(fd, p, n, off);
    if (put > 0) {
        record(WRITE, ino_of[fd], (uint64_t)off, 0, "", "", p, (size_t)put);
    }
    pthread_mutex_unlock(&one);
    return put;
}

int ftruncate(int fd, off_t size)
{
    int rc;

    if (!still_ours(fd)) {
        return real_ftruncate(fd, size);
    }
    pthread_mutex_lock(&one);
    rc = real_ftruncate(fd, size);
    if (rc == 0) {
        record(TRUNCATE, ino_of[fd], (uint64_t)size, 0, "", "", NULL, 0);
    }
    pthread_mutex_unlock(&one);
    return rc;
}

int fallocate(int fd, int mode, off_t off, off_t n)
{
    int rc;

    if (!still_ours(fd)) {
        return real_fallocate(fd, mode, off, n);
    }
    pthread_mutex_lock(&one);
    rc = real_fallocate(fd, mode, off, n);
    if (rc == 0 && (mode & ~FALLOC_FL_KEEP_SIZE) != 0) {
        abort(); /* holes are not in the picture yet */
    }
    if (rc == 0 && mode == 0) {
        record(ALLOCATE, ino_of[fd], (uint64_t)(off + n), 0, "", "", NULL, 0);
    }
    pthread_mutex_unlock(&one);
    return rc;
}

int posix_fallocate(int fd, off_t off, off_t n)
{
    return fallocate(fd, 0, off, n) == 0 ? 0 : errno;
}

/* Whoever looks at the log's size after this returns knows that what was synced lies before it. */
static int synced(int fd)
{
    static unsigned seed = 1;
    off_t began = lseek(log_fd, 0, SEEK_END);
    unsigned us = sync_us == 0 ? 0 : (unsigned)rand_r(&seed) % sync_us;

    if (us != 0) {
        usleep(us);
    }
    pthread_mutex_lock(&one);
    record(SYNC, ino_of[fd], (uint64_t)began, 0, "", "", NULL, 0);
    pthread_mutex_unlock(&one);
    return 0;
}

int fsync(int fd)
{
    return still_ours(fd) ? synced(fd) : real_fsync(fd);
}

int fdatasync(int fd)
{
    return still_ours(fd) ? synced(fd) : real_fsync(fd);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
    if (fd != -1 && (prot & PROT_WRITE) != 0 && (flags & MAP_SHARED) != 0 && still_ours(fd)) {
        abort();
    }
    return real_mmap(at, n, prot, flags, fd, off);
}

#define ALSO(ret, name, args) ret name##64 args __attribute__((alias(#name)));
ALSO(int, open, (const char *, int, ...))
ALSO(int, openat, (int, const char *, int, ...))
ALSO(ssize_t, pwrite, (int, const void *, size_t, off_t))
ALSO(int, ftruncate, (int, off_t))
ALSO(int, fallocate, (int, int, off_t, off_t))
ALSO(int, posix_fallocate, (int, off_t, off_t))
ALSO(void *, mmap, (void *, size_t, int, int, int, off_t))
