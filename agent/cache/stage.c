#include "agent/cache/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/endian.h"
#include "common/base/log.h"
#include "common/os/newfile.h"

/* The kernel keeps the locks of a file in a list, and walks it for each claim: those of a thousand
 * files that are under way at once were a tenth of the CPU of their pull. So they are spread over
 * some. */
enum { LOCK_FILES = 16 };

struct stage {
    int locks[LOCK_FILES];
};

int stage_open(struct local_cache *s, struct stage **out, struct err *e)
{
    struct stage *st = NEW(struct stage);
    char path[PATH_MAX];
    int rc = 0;

    *out = NULL;
    for (int i = 0; i < LOCK_FILES; i++) {
        st->locks[i] = -1;
    }
    for (int i = 0; i < LOCK_FILES && rc == 0; i++) {
        snprintf(path, sizeof path, "%s/locks/small-%x", local_cache_dir(s), (unsigned)i);
        st->locks[i] = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        rc = st->locks[i] != -1 ? 0 : err_sys(e, "%s", path);
    }
    if (rc != 0) {
        stage_close(&st);
        return rc;
    }
    *out = st;
    return 0;
}

void stage_close(struct stage **sp)
{
    struct stage *st = *sp;

    if (st == NULL) {
        return;
    }
    *sp = NULL;
    for (int i = 0; i < LOCK_FILES; i++) {
        if (st->locks[i] != -1) {
            close(st->locks[i]);
        }
    }
    free(st);
}

/* Of the open file, not of the process: a close() elsewhere in it gives nothing back. Two digests
 * on one byte (2^-62 of pairs) wait for each other, no more. */
static int set_lock(const struct stage *st, const struct digest *d, short type)
{
    struct flock l = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)(be_get(d->b, 8) >> 2), .l_len = 1};

    return fcntl(st->locks[d->b[DIGEST_BYTES - 1] % LOCK_FILES], F_OFD_SETLK, &l);
}

int stage_claim(struct stage *st, const struct digest *d, struct err *e)
{
    if (set_lock(st, d, F_WRLCK) == 0) {
        return 0;
    }
    return errno == EAGAIN || errno == EACCES
               ? err_set(e, E_BUSY, "another process is downloading it")
               : err_sys(e, "locks/small-%x", d->b[DIGEST_BYTES - 1] % LOCK_FILES);
}

void stage_drop(struct stage *st, const struct digest *d)
{
    (void)!set_lock(st, d, F_UNLCK);
}

bool stage_find(struct local_cache *s, const struct digest *d, uint64_t size_bytes)
{
    char path[PATH_MAX];
    struct digest got;
    struct stat st;
    bool right;
    int fd;

    local_cache_partial_path(s, d, LOCAL_CACHE_STAGED, path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd == -1) {
        return false;
    }
    right = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == size_bytes &&
            digest_of_fd(fd, size_bytes, &got, NULL) == 0 && digest_eq(&got, d);
    if (!right) { /* a crash left half of it */
        unlink(path);
    }
    close(fd);
    return right;
}

static int open_new(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0444);
}

int stage_put(struct local_cache *s, const struct digest *d, struct slice bytes, struct err *e)
{
    char path[PATH_MAX];
    int fd;
    int rc;

    local_cache_partial_path(s, d, LOCAL_CACHE_STAGED, path);
    fd = open_new(path);
    if (fd == -1 && errno == EEXIST) { /* it was in nobody's way when it was looked for */
        unlink(path);
        fd = open_new(path);
    }
    if (fd == -1) {
        return err_sys(e, "%s", path);
    }
    rc = fd_write_all(fd, bytes.p, bytes.n, e);
    rc = rc != 0 ? rc : local_cache_mark(fd, e);
    if (rc != 0) {
        unlink(path);
    }
    close(fd);
    return rc;
}
