#include "common/os/newfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* More at once is slower: the page cache takes folios of that size, those above 32 KiB are not kept
 * on the CPU's own free lists, and on a virtual machine that reports its free memory to its host
 * each such folio has to be given back by the host first. Measured there, CPU of the kernel for a
 * pull of 512 MiB: 0.4 s with 32 KiB, 1.1 s with 64 KiB to 8 MiB. And never across a multiple of
 * it: pieces that lie crooked make small folios, and sendfile() then walks more of them, 5 % of its
 * time. */
enum { WRITE_BYTES = 32 << 10 };

struct newfile {
    char *path;
    char *temp;
    int fd;
    struct err first;
};

int newfile_open(const char *path, mode_t mode, struct newfile **out, struct err *e)
{
    struct newfile *f = NEW(struct newfile);
    size_t room = strlen(path) + sizeof ".XXXXXX~";

    *out = NULL;
    f->path = mem_strdup(path);
    f->temp = mem_new(room);
    snprintf(f->temp, room, "%s.XXXXXX~", path);
    f->fd = mkostemps(f->temp, 1, O_CLOEXEC);
    if (f->fd == -1 || fchmod(f->fd, mode) == -1) {
        int rc = err_sys(e, "%s", f->temp);
        newfile_abort(&f);
        return rc;
    }
    *out = f;
    return 0;
}

void newfile_write(struct newfile *f, const void *p, size_t n)
{
    if (f->first.code == 0 && fd_write_all(f->fd, p, n, &f->first) != 0) {
        err_prefix(&f->first, "%s", f->path);
    }
}

int newfile_fd(struct newfile *f)
{
    return f->fd;
}

int newfile_check(const struct newfile *f, struct err *e)
{
    if (f->first.code != 0 && e != NULL) {
        *e = f->first;
    }
    return f->first.code;
}

int dir_sync_above(const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash == NULL ? mem_strdup(".") : strndup(path, (size_t)(slash - path) + 1);
    int rc;

    CHECK(dir != NULL);
    rc = dir_sync(dir, e);
    free(dir);
    return rc;
}

static int commit(struct newfile **fp, bool sync, struct err *e)
{
    struct newfile *f = *fp;
    int rc = newfile_check(f, e);

    *fp = NULL;
    if (rc != 0) {
        goto out;
    }
    /* Data before name: after a power cut a name must never lead to missing bytes. */
    if (sync && fsync(f->fd) == -1) {
        rc = err_sys(e, "%s: fsync", f->path);
        goto out;
    }
    if (rename(f->temp, f->path) == -1) {
        rc = err_sys(e, "%s: rename", f->path);
        goto out;
    }
    free(f->temp);
    f->temp = NULL;
    rc = sync ? dir_sync_above(f->path, e) : 0;
out:
    newfile_abort(&f);
    return rc;
}

int newfile_commit(struct newfile **fp, struct err *e)
{
    return commit(fp, true, e);
}

int newfile_commit_unsynced(struct newfile **fp, struct err *e)
{
    return commit(fp, false, e);
}

void newfile_abort(struct newfile **fp)
{
    struct newfile *f = *fp;

    if (f == NULL) {
        return;
    }
    *fp = NULL;
    if (f->fd != -1) {
        close(f->fd);
        if (f->temp != NULL) {
            unlink(f->temp);
        }
    }
    free(f->temp);
    free(f->path);
    free(f);
}

int fd_write_all(int fd, const void *p, size_t n, struct err *e)
{
    const char *at = p;

    while (n > 0) {
        ssize_t put = write(fd, at, min_u64(n, WRITE_BYTES));
        if (put == -1 && errno == EINTR) {
            continue;
        }
        if (put == -1) {
            return err_sys(e, "write");
        }
        at += put;
        n -= (size_t)put;
    }
    return 0;
}

int fd_append(int fd, const void *p, size_t n, struct err *e)
{
    off_t end = lseek(fd, 0, SEEK_END);
    int rc = end == -1 ? err_sys(e, "lseek") : 0;

    if (rc == 0) {
        rc = fd_write_all(fd, p, n, e);
        if (rc != 0 && ftruncate(fd, end) == -1) {
            err_prefix(e, "some of the bytes remain in the file");
        }
    }
    return rc;
}

int fd_pwrite_all(int fd, const void *p, size_t n, uint64_t off, struct err *e)
{
    const char *at = p;

    while (n > 0) {
        ssize_t put = pwrite(fd, at, min_u64(n, WRITE_BYTES - off % WRITE_BYTES), (off_t)off);
        if (put == -1 && errno == EINTR) {
            continue;
        }
        if (put == -1) {
            return err_sys(e, "write");
        }
        at += put;
        off += (uint64_t)put;
        n -= (size_t)put;
    }
    return 0;
}

/* Nearly always the first words tell. */
static bool is_zero(const char *p, size_t n)
{
    static const char zeros[64];

    return memcmp(p, zeros, sizeof zeros) == 0 &&
           memcmp(p, p + sizeof zeros, n - sizeof zeros) == 0;
}

/* How many of the n bytes at `off` are whole blocks of zeros (*hole), or lie before the next such
 * block. */
static size_t run_of(const char *p, size_t n, uint64_t off, bool *hole)
{
    size_t at = (size_t)(-off % SPARSE_BLOCK);

    *hole = at == 0 && n >= SPARSE_BLOCK && is_zero(p, SPARSE_BLOCK);
    while (n - min_u64(at, n) >= SPARSE_BLOCK && is_zero(p + at, SPARSE_BLOCK) == *hole) {
        at += SPARSE_BLOCK;
    }
    return !*hole && n - min_u64(at, n) < SPARSE_BLOCK ? n : at;
}

int fd_pwrite_sparse(int fd, const void *p, size_t n, uint64_t off, struct err *e)
{
    const char *at = p;
    int rc = 0;

    while (n > 0 && rc == 0) {
        bool hole;
        size_t run = run_of(at, n, off, &hole);
        /* Punched, not left out: something else may have been written there before. */
        if (!hole || fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off,
                               (off_t)run) == -1) {
            rc = fd_pwrite_all(fd, at, run, off, e);
        }
        at += run;
        off += run;
        n -= run;
    }
    return rc;
}

int fd_pread_all(int fd, void *p, size_t n, uint64_t off, struct err *e)
{
    char *at = p;

    while (n > 0) {
        ssize_t got = pread(fd, at, n, (off_t)off);
        if (got == -1 && errno == EINTR) {
            continue;
        }
        if (got == -1) {
            return err_sys(e, "read");
        }
        if (got == 0) {
            return err_set(e, E_CORRUPT, "the file ends %zu bytes early", n);
        }
        at += got;
        off += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

/* Where one may write but not list, the name is as safe as the file system makes it by itself. */
static void sync_parent(char *path)
{
    char *slash = strrchr(path, '/');

    if (slash == NULL) {
        (void)!dir_sync(".", NULL);
    } else if (slash == path) {
        (void)!dir_sync("/", NULL);
    } else {
        *slash = '\0';
        (void)!dir_sync(path, NULL);
        *slash = '/';
    }
}

static int make_all(const char *path, mode_t mode, bool sync, struct err *e)
{
    char part[PATH_MAX];
    size_t n = strlen(path);

    if (n == 0 || n >= sizeof part) {
        return err_set(e, E_INVALID, "%.60s: the folder's name is empty or too long", path);
    }
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] == '/' || part[i] == '\0') {
            char keep = part[i];
            part[i] = '\0';
            if (mkdir(part, mode) == 0) {
                if (sync) {
                    sync_parent(part);
                }
            } else if (errno != EEXIST) {
                return err_sys(e, "mkdir %s", part);
            }
            part[i] = keep;
        }
    }
    return 0;
}

int dir_make(const char *path, mode_t mode, struct err *e)
{
    return make_all(path, mode, true, e);
}

int dir_make_unsynced(const char *path, mode_t mode, struct err *e)
{
    return make_all(path, mode, false, e);
}

int dir_sync(const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = 0;

    if (fd == -1) {
        return err_sys(e, "%s", path);
    }
    if (fsync(fd) == -1) {
        rc = err_sys(e, "%s: fsync", path);
    }
    close(fd);
    return rc;
}

/* In a folder of our own that may not be written, it is made so that it may. */
static int unlink_in(int dir, const char *name, int flags)
{
    if (unlinkat(dir, name, flags) == 0 || errno == ENOENT) {
        return 0;
    }
    return errno == EACCES && fchmod(dir, 0700) == 0 ? unlinkat(dir, name, flags) : -1;
}

static int remove_below(int dir_fd, struct err *e)
{
    DIR *d = fdopendir(dir_fd); /* owns dir_fd from here */
    struct dirent *ent;
    int rc = 0;

    if (d == NULL) {
        close(dir_fd);
        return err_sys(e, "opendir");
    }
    while (rc == 0 && (ent = readdir(d)) != NULL) {
        int fd;

        if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0) {
            continue;
        }
        fd = openat(dirfd(d), ent->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd != -1) {
            rc = remove_below(fd, e);
            if (rc == 0 && unlink_in(dirfd(d), ent->d_name, AT_REMOVEDIR) == -1) {
                rc = err_sys(e, "rmdir %s", ent->d_name);
            }
        } else if (unlink_in(dirfd(d), ent->d_name, 0) == -1) {
            rc = err_sys(e, "unlink %s", ent->d_name);
        }
    }
    closedir(d);
    return rc;
}

int dir_remove_tree(const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int rc;

    if (fd == -1) {
        return errno == ENOENT ? 0 : err_sys(e, "%s", path);
    }
    rc = remove_below(fd, e);
    if (rc == 0 && rmdir(path) == -1 && errno != ENOENT) {
        rc = err_sys(e, "%s", path);
    }
    return rc;
}
