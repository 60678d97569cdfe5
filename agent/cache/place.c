#include "agent/cache/place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/os/newfile.h"

struct placer {
    struct local_cache *cache;
    char *dir;
    bool copy;
    bool fleeting;
    int folder;     /* of the name before; -1: none */
    struct buf way; /* to it, below dir */
};

int place_folder(const char *dir, bool fleeting, struct err *e)
{
    return fleeting ? dir_make_unsynced(dir, 0755, e) : dir_make(dir, 0755, e);
}

/* Opens the folder of `name` below dir, making what is missing; *base is the last segment. */
static int open_place_folder(const char *dir, struct slice name,
                             char base[LOCAL_CACHE_SEGMENT_MAX + 1], int *out, struct err *e)
{
    int fd = open(dir, O_DIRECTORY | O_RDONLY | O_CLOEXEC);

    if (fd == -1) {
        return err_sys(e, "%s", dir);
    }
    for (;;) {
        struct slice seg = slice_cut(&name, '/');
        int next;

        memcpy(base, seg.p, seg.n);
        base[seg.n] = '\0';
        if (name.n == 0) {
            *out = fd;
            return 0;
        }
        if (mkdirat(fd, base, 0755) == -1 && errno != EEXIST) {
            next = -1;
        } else {
            next = openat(fd, base, O_DIRECTORY | O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        }
        if (next == -1) {
            int rc = err_sys(e, "%s: cannot open or create the folder %s", dir, base);
            close(fd);
            return rc;
        }
        close(fd);
        fd = next;
    }
}

static int copy_bytes(int from, int to, struct err *e)
{
    enum { STEP = 1 << 20 };
    char *p;
    int rc = 0;
    ssize_t n;

    if (ioctl(to, FICLONE, from) == 0) {
        return 0;
    }
    while ((n = copy_file_range(from, NULL, to, NULL, (size_t)1 << 30, 0)) > 0) {
    }
    if (n == 0) {
        return 0;
    }
    /* Another file system, or one without the call: by hand, from the start. */
    if (lseek(from, 0, SEEK_SET) == -1 || lseek(to, 0, SEEK_SET) == -1 || ftruncate(to, 0) == -1) {
        return err_sys(e, "copy");
    }
    p = mem_new(STEP);
    while (rc == 0 && (n = read(from, p, STEP)) != 0) {
        if (n > 0) {
            rc = fd_write_all(to, p, (size_t)n, e);
        } else if (errno != EINTR) {
            rc = err_sys(e, "copy");
        }
    }
    free(p);
    return rc;
}

static int make_copy(int blob, int folder, const char *temp, bool sync, struct err *e)
{
    int fd = openat(folder, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    int rc;

    if (fd == -1) {
        return err_sys(e, "%s", temp);
    }
    rc = copy_bytes(blob, fd, e);
    if (rc == 0 && sync && fdatasync(fd) == -1) {
        rc = err_sys(e, "%s: sync", temp);
    }
    close(fd);
    return rc;
}

/* A clone shares the bytes, but later changes do not reach the blob. Where the file system has no
 * clones, a hard link is as quick. As read-only as that would be. */
static int make_clone(struct local_cache *s, int blob, int folder, const char *temp)
{
    int fd = *local_cache_no_clone(s)
                 ? -1
                 : openat(folder, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    int rc;

    if (fd == -1) {
        return -1;
    }
    rc = ioctl(fd, FICLONE, blob);
    close(fd);
    if (rc == -1) {
        *local_cache_no_clone(s) = true; /* nor for the next thousand files */
        unlinkat(folder, temp, 0);
    }
    return rc;
}

static int make_any(struct placer *p, const char *path, int blob, const char *temp, struct err *e)
{
    if (!p->copy && (make_clone(p->cache, blob, p->folder, temp) == 0 ||
                     linkat(AT_FDCWD, path, p->folder, temp, 0) == 0)) {
        return 0;
    }
    return make_copy(blob, p->folder, temp, !p->fleeting, e);
}

/* Made under another name, then renamed over what is there. */
static int replace(struct placer *p, const char *path, int blob, const char *base, struct err *e)
{
    char temp[LOCAL_CACHE_SEGMENT_MAX + 16];
    int rc;

    snprintf(temp, sizeof temp, ".%s.%d~", base, (int)getpid());
    unlinkat(p->folder, temp, 0);
    rc = make_any(p, path, blob, temp, e);
    if (rc == 0 && renameat(p->folder, temp, p->folder, base) == -1) {
        rc = err_sys(e, "%s", base);
    }
    if (rc != 0) {
        unlinkat(p->folder, temp, 0);
    }
    return rc;
}

/* --- one behind the other --------------------------------------------------------------------- */

struct placer *placer_open(struct local_cache *s, const char *dir, bool copy, bool fleeting)
{
    struct placer *p = NEW(struct placer);

    p->cache = s;
    p->dir = mem_strdup(dir);
    p->copy = copy;
    p->fleeting = fleeting;
    p->folder = -1;
    p->way = BUF_INIT(LOCAL_CACHE_NAME_MAX);
    return p;
}

void placer_close(struct placer **pp)
{
    struct placer *p = *pp;

    if (p != NULL) {
        *pp = NULL;
        if (p->folder != -1) {
            close(p->folder);
        }
        buf_free(&p->way);
        free(p->dir);
        free(p);
    }
}

static int go_to_folder(struct placer *p, struct slice name, char base[LOCAL_CACHE_SEGMENT_MAX + 1],
                        struct err *e)
{
    const char *slash = memrchr(name.p, '/', name.n);
    struct slice way = slice_first(name, slash != NULL ? (size_t)(slash - name.p) : 0);
    struct slice last = slice_from(name, slash != NULL ? way.n + 1 : 0);

    if (p->folder != -1 && slice_eq(way, buf_slice(&p->way))) {
        memcpy(base, last.p, last.n);
        base[last.n] = '\0';
        return 0;
    }
    if (p->folder != -1) {
        close(p->folder);
        p->folder = -1;
    }
    buf_clear(&p->way);
    buf_adds(&p->way, way);
    return open_place_folder(p->dir, name, base, &p->folder, e);
}

/* Whatever is there now, and whatever the file system can do. */
static int put_over(struct placer *p, const char *path, const char *base, struct err *e)
{
    struct stat mine, theirs;
    bool there;
    int blob = open(path, O_RDONLY | O_CLOEXEC);
    int rc = 0;

    if (blob == -1 || fstat(blob, &mine) == -1) {
        rc = local_cache_lost(path, e);
        goto out;
    }
    there = fstatat(p->folder, base, &theirs, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && !p->copy && theirs.st_ino == mine.st_ino && theirs.st_dev == mine.st_dev) {
        goto out; /* rename() of a link onto itself would leave the other behind */
    }
    rc = replace(p, path, blob, base, e);
out:
    if (blob != -1) {
        close(blob);
    }
    return rc;
}

int placer_put(struct placer *p, const struct digest *d, struct slice name, struct err *e)
{
    char path[PATH_MAX];
    char base[LOCAL_CACHE_SEGMENT_MAX + 1];
    int rc;

    if (!local_cache_name_ok(name)) {
        return err_set(e, E_INVALID, "invalid file name");
    }
    local_cache_blob_path(p->cache, d, path);
    rc = go_to_folder(p, name, base, e);
    if (rc == 0 && (p->copy || !*local_cache_no_clone(p->cache) ||
                    linkat(AT_FDCWD, path, p->folder, base, 0) == -1)) {
        rc = put_over(p, path, base, e);
    }
    if (rc != 0) {
        err_prefix(e, "%s/" SLICE_FMT, p->dir, SLICE_ARG(name));
    }
    return rc;
}

int place_blob(struct local_cache *s, const struct digest *d, const char *dir, struct slice name,
               bool copy, struct err *e)
{
    struct placer *p = placer_open(s, dir, copy, false);
    int rc = placer_put(p, d, name, e);

    placer_close(&p);
    return rc;
}

int place_copy_file(const char *from, const char *to, mode_t mode, struct err *e)
{
    int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int out = in != -1 ? open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode) : -1;
    int rc =
        in == -1 || out == -1 ? err_sys(e, "%s", in == -1 ? from : to) : copy_bytes(in, out, e);

    if (in != -1) {
        close(in);
    }
    if (out != -1) {
        close(out);
    }
    return rc;
}
