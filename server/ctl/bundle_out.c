#include "server/ctl/bundle_out.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/os/newfile.h"

/* --- into a folder --- */

enum {
    STEP_BYTES = 16 << 20,
    FOLDER_READ_BYTES = 1 << 20,
    SMALL_BYTES = 1 << 20, /* not synced one by one, so read again when they are found */
    PATH_ROOM = 8192,
};

static const char part_name[] = ".part";

struct folder {
    struct bundle_out o;
    int fd;
    char *path;
};

static struct folder *folder_of_bundle_out(struct bundle_out *o)
{
    return CONTAINER_OF(o, struct folder, o);
}

/* The folders above a path. */
static int make_above(const struct folder *f, const char *path, struct err *e)
{
    char above[PATH_ROOM];

    for (const char *at = strchr(path, '/'); at != NULL; at = strchr(at + 1, '/')) {
        snprintf(above, sizeof above, "%.*s", (int)(at - path), path);
        if (mkdirat(f->fd, above, 0777) != 0 && errno != EEXIST) {
            return err_sys(e, "%s/%s", f->path, above);
        }
    }
    return 0;
}

/* --- copying ---------------------------------------------------------------------------------- */

static int copy_plainly(int from, int to, uint64_t at, uint64_t n, struct err *e)
{
    char *room = mem_new(FOLDER_READ_BYTES);
    int rc = 0;

    while (rc == 0 && n > 0) {
        size_t k = (size_t)min_u64(FOLDER_READ_BYTES, n);
        rc = fd_pread_all(from, room, k, at, e);
        rc = rc != 0 ? rc : fd_pwrite_all(to, room, k, at, e);
        at += k;
        n -= k;
    }
    free(room);
    return rc;
}

/* [at, at + n) by the kernel alone, where it can. */
static int copy_stretch(int from, int to, uint64_t at, uint64_t n, bool *kernel, struct err *e)
{
    while (*kernel && n > 0) {
        loff_t in = (loff_t)at, out = (loff_t)at;
        ssize_t k = copy_file_range(from, &in, to, &out, (size_t)n, 0);
        if (k > 0) {
            at += (uint64_t)k;
            n -= (uint64_t)k;
        } else if (k == 0 || (errno != EINTR && errno != ENOSPC && errno != EDQUOT)) {
            *kernel = false; /* another file system, an old kernel: say why by the plain way */
        } else if (errno != EINTR) {
            return err_sys(e, "copying");
        }
    }
    return n == 0 ? 0 : copy_plainly(from, to, at, n, e);
}

/* Holes stay holes. */
static int copy_all(struct folder *f, int from, int to, uint64_t size_bytes, struct err *e)
{
    uint64_t at = 0;
    bool kernel = true;
    int rc = 0;

    if (ioctl(to, FICLONE, from) == 0) {
        f->o.on_bytes(f->o.arg, size_bytes);
        return 0;
    }
    if (ftruncate(to, (off_t)size_bytes) != 0) {
        return err_sys(e, "ftruncate");
    }
    while (rc == 0 && at < size_bytes) {
        off_t data = lseek(from, (off_t)at, SEEK_DATA), hole;
        if (data < 0 && errno == ENXIO) {
            f->o.on_bytes(f->o.arg, size_bytes - at);
            break;
        }
        uint64_t first = data < 0 ? at : (uint64_t)data;
        hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
        uint64_t end = hole < 0 ? size_bytes : min_u64((uint64_t)hole, size_bytes);
        end = min_u64(end, first + STEP_BYTES);
        rc = copy_stretch(from, to, first, end - first, &kernel, e);
        f->o.on_bytes(f->o.arg, end - at);
        at = end;
    }
    return rc;
}

/* --- one file --------------------------------------------------------------------------------- */

static bool is_whole(const struct folder *f, const char *path, const struct bundle_item *it,
                     bool read)
{
    int fd = openat(f->fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct digest d;
    struct stat st;
    bool yes = fd != -1 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
               (uint64_t)st.st_size == it->size_bytes;

    if (yes && read) {
        yes = digest_of_fd(fd, it->size_bytes, &d, NULL) == 0 && digest_eq(&d, &it->sha256);
    }
    if (fd != -1) {
        close(fd);
    }
    return yes;
}

static bool folder_has(struct bundle_out *o, const struct bundle_item *it)
{
    return is_whole(folder_of_bundle_out(o), it->path, it, o->deep || it->size_bytes < SMALL_BYTES);
}

static int name_bundle_item(struct folder *f, const struct bundle_item *it, struct err *e)
{
    return renameat(f->fd, part_name, f->fd, it->path) == 0
               ? 0
               : err_sys(e, "%s/%.160s", f->path, it->path);
}

static int folder_again(struct bundle_out *o, const struct bundle_item *it,
                        const struct bundle_item *as, struct err *e)
{
    struct folder *f = folder_of_bundle_out(o);
    int fd, rc = make_above(f, it->path, e);

    if (rc != 0) {
        return rc;
    }
    (void)unlinkat(f->fd, part_name, 0);
    if (linkat(f->fd, as->path, f->fd, part_name, 0) == 0) {
        rc = name_bundle_item(f, it, e);
        (void)unlinkat(f->fd, part_name, 0); /* renaming one link over another does nothing */
        o->on_bytes(o->arg, it->size_bytes);
        return rc;
    }
    fd = openat(f->fd, as->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd == -1) {
        return err_sys(e, "%s/%.160s", f->path, as->path);
    }
    rc = o->ops->file(o, it, fd, e);
    close(fd);
    return rc;
}

static int folder_write_file(struct bundle_out *o, const struct bundle_item *it, int from,
                             struct err *e)
{
    struct folder *f = folder_of_bundle_out(o);
    int to, rc = make_above(f, it->path, e);

    if (rc != 0) {
        return rc;
    }
    (void)unlinkat(f->fd, part_name, 0);
    to = openat(f->fd, part_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (to == -1) {
        return err_sys(e, "%s/%s", f->path, part_name);
    }
    rc = copy_all(f, from, to, it->size_bytes, e);
    /* Data before name: a name of that size is then a whole file, also after a power cut. */
    if (rc == 0 && it->size_bytes >= SMALL_BYTES && fsync(to) != 0) {
        rc = err_sys(e, "%s/%.160s: fsync", f->path, it->path);
    }
    close(to);
    if (rc == 0 && o->deep && !is_whole(f, part_name, it, true)) {
        rc = err_set(e, E_CORRUPT,
                     "%.160s reads back from the disk differently than it was "
                     "written; check the disk",
                     it->path);
    }
    rc = rc != 0 ? rc : name_bundle_item(f, it, e);
    if (rc != 0) {
        (void)unlinkat(f->fd, part_name, 0);
    }
    return rc;
}

/* --- beginning and end ------------------------------------------------------------------------ */

static int folder_begin(struct bundle_out *o, struct slice manifest, struct slice sums,
                        struct err *e)
{
    (void)o;
    (void)manifest;
    (void)sums;
    (void)e;
    return 0;
}

static int folder_put_text(const struct folder *f, const char *name, struct slice text,
                           struct err *e)
{
    char path[PATH_ROOM];
    struct newfile *nf;
    int rc;

    snprintf(path, sizeof path, "%s/%s", f->path, name);
    rc = newfile_open(path, 0644, &nf, e);
    if (rc != 0) {
        return rc;
    }
    newfile_write(nf, text.p, text.n);
    return newfile_commit(&nf, e);
}

static int folder_finish(struct bundle_out *o, struct slice manifest, struct slice sums,
                         struct err *e)
{
    struct folder *f = folder_of_bundle_out(o);
    int rc = syncfs(f->fd) == 0 ? 0 : err_sys(e, "%s: sync", f->path);

    rc = rc != 0 ? rc : folder_put_text(f, BUNDLE_SUMS, sums, e);
    return rc != 0 ? rc : folder_put_text(f, BUNDLE_MANIFEST, manifest, e);
}

static void close_folder(struct bundle_out *o)
{
    struct folder *f = folder_of_bundle_out(o);

    close(f->fd);
    free(f->path);
    free(f);
}

static int bundle_folder_open(const char *path, struct bundle_out **out, struct err *e)
{
    static const struct bundle_out_ops ops = {.begin = folder_begin,
                                              .has = folder_has,
                                              .again = folder_again,
                                              .file = folder_write_file,
                                              .finish = folder_finish,
                                              .close = close_folder};
    struct folder *f;
    int fd, rc = dir_make(path, 0777, e);

    if (rc != 0) {
        return rc;
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1) {
        return err_sys(e, "%s", path);
    }
    f = NEW(struct folder);
    *f = (struct folder){.o = {.ops = &ops}, .fd = fd, .path = mem_strdup(path)};
    *out = &f->o;
    return 0;
}

/* --- as a tar ---
 *
 * A bundle written as a tar: pax where names or sizes need it.
 */

enum { READ_BYTES = 1 << 20, BLOCK_BYTES = 64 << 10 };

struct tar {
    struct bundle_out o;
    struct newfile *file; /* NULL: standard output */
    struct archive *a;
    char *room;
};

static struct tar *tar_of(struct bundle_out *o)
{
    return CONTAINER_OF(o, struct tar, o);
}

static int trouble(const struct tar *t, struct err *e)
{
    int rc = err_from_errno(archive_errno(t->a));
    const char *why = archive_error_string(t->a);

    return err_set(e, rc != 0 ? rc : E_IO, "the tar cannot be written: %s",
                   why != NULL ? why : "unknown error");
}

/* The same bundle gives the same bytes: no owner, no time. */
static struct archive_entry *new_archive_entry(const char *path, uint64_t size_bytes)
{
    struct archive_entry *en = archive_entry_new();

    CHECK(en != NULL);
    archive_entry_set_pathname(en, path);
    archive_entry_set_filetype(en, AE_IFREG);
    archive_entry_set_perm(en, 0644);
    archive_entry_set_size(en, (la_int64_t)size_bytes);
    archive_entry_set_mtime(en, 0, 0);
    return en;
}

static int put_header(struct tar *t, struct archive_entry *en, struct err *e)
{
    int got = archive_write_header(t->a, en);

    archive_entry_free(en);
    return got == ARCHIVE_OK ? 0 : trouble(t, e);
}

static int put_bytes(struct tar *t, struct slice bytes, struct err *e)
{
    while (bytes.n > 0) {
        la_ssize_t n = archive_write_data(t->a, bytes.p, bytes.n);
        if (n <= 0) {
            return trouble(t, e);
        }
        bytes = slice_from(bytes, (size_t)n);
    }
    return 0;
}

static int put_tar_text(struct tar *t, const char *path, struct slice text, struct err *e)
{
    int rc = put_header(t, new_archive_entry(path, text.n), e);

    return rc != 0 ? rc : put_bytes(t, text, e);
}

static int begin_tar_bundle(struct bundle_out *o, struct slice manifest, struct slice sums,
                            struct err *e)
{
    int rc = put_tar_text(tar_of(o), BUNDLE_SUMS, sums, e);

    return rc != 0 ? rc : put_tar_text(tar_of(o), BUNDLE_MANIFEST, manifest, e);
}

static bool bundle_has_item(struct bundle_out *o, const struct bundle_item *it)
{
    (void)o;
    (void)it;
    return false;
}

static int again(struct bundle_out *o, const struct bundle_item *it, const struct bundle_item *as,
                 struct err *e)
{
    struct archive_entry *en = new_archive_entry(it->path, 0);

    archive_entry_set_hardlink(en, as->path);
    o->on_bytes(o->arg, it->size_bytes);
    return put_header(tar_of(o), en, e);
}

static int write_bundle_data(struct bundle_out *o, const struct bundle_item *it, int fd,
                             struct err *e)
{
    struct tar *t = tar_of(o);
    struct hasher *h = hasher_new_whole();
    struct digest d;
    int rc = put_header(t, new_archive_entry(it->path, it->size_bytes), e);

    for (uint64_t at = 0; rc == 0 && at < it->size_bytes;) {
        size_t n = (size_t)min_u64(READ_BYTES, it->size_bytes - at);
        rc = fd_pread_all(fd, t->room, n, at, e);
        if (rc == 0 && o->deep) {
            hasher_add(h, t->room, n);
        }
        rc = rc != 0 ? rc : put_bytes(t, slice_of(t->room, n), e);
        o->on_bytes(o->arg, n);
        at += n;
    }
    hasher_final(h, &d);
    if (rc == 0 && o->deep && !digest_eq(&d, &it->sha256)) {
        rc = err_set(e, E_CORRUPT,
                     "%.160s is damaged in the store; run `mirrorctl verify "
                     "--deep`",
                     it->path);
    }
    hasher_free(&h);
    return rc;
}

static int finish_tar_bundle(struct bundle_out *o, struct slice manifest, struct slice sums,
                             struct err *e)
{
    struct tar *t = tar_of(o);
    int rc = archive_write_close(t->a) == ARCHIVE_OK ? 0 : trouble(t, e);

    (void)manifest;
    (void)sums;
    if (rc == 0 && t->file != NULL) {
        rc = newfile_commit(&t->file, e);
    }
    return rc;
}

static void close_tar(struct bundle_out *o)
{
    struct tar *t = tar_of(o);

    (void)archive_write_fail(t->a); /* no end is written behind half a file */
    (void)archive_write_free(t->a);
    newfile_abort(&t->file);
    free(t->room);
    free(t);
}

static int open_archive(struct tar *t, struct err *e)
{
    int fd = t->file != NULL ? newfile_fd(t->file) : STDOUT_FILENO;

    t->a = archive_write_new();
    CHECK(t->a != NULL);
    if (archive_write_set_format_pax_restricted(t->a) != ARCHIVE_OK ||
        archive_write_set_options(t->a, "hdrcharset=BINARY") == ARCHIVE_FATAL ||
        archive_write_set_bytes_per_block(t->a, BLOCK_BYTES) != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(t->a, 512) != ARCHIVE_OK ||
        archive_write_open_fd(t->a, fd) != ARCHIVE_OK) {
        return trouble(t, e);
    }
    return 0;
}

static int bundle_tar_open(const char *path, bool force, struct bundle_out **out, struct err *e)
{
    static const struct bundle_out_ops ops = {.begin = begin_tar_bundle,
                                              .has = bundle_has_item,
                                              .again = again,
                                              .file = write_bundle_data,
                                              .finish = finish_tar_bundle,
                                              .close = close_tar};
    bool to_stdout = strcmp(path, "-") == 0;
    struct tar *t;
    struct stat st;
    int rc = 0;

    if (to_stdout && isatty(STDOUT_FILENO)) {
        return err_set(e, E_USAGE,
                       "a tar cannot be written to a terminal; use `--to FILE.tar` "
                       "or a pipe");
    }
    if (!to_stdout && !force && lstat(path, &st) == 0) {
        return err_set(e, E_EXISTS, "%s exists already; add --force to replace it", path);
    }
    t = NEW(struct tar);
    t->o.ops = &ops;
    t->room = mem_new(READ_BYTES);
    if (!to_stdout) {
        rc = newfile_open(path, 0644, &t->file, e);
    }
    rc = rc != 0 ? rc : open_archive(t, e);
    if (rc != 0) {
        close_tar(&t->o);
        return rc;
    }
    *out = &t->o;
    return 0;
}

bool bundle_is_tar(const char *path)
{
    return strcmp(path, "-") == 0 || slice_ends(slice_str(path), SLICE(".tar"));
}

int bundle_out_open(const char *to, bool force, struct bundle_out **out, struct err *e)
{
    *out = NULL;
    return bundle_is_tar(to) ? bundle_tar_open(to, force, out, e) : bundle_folder_open(to, out, e);
}

void bundle_out_close(struct bundle_out **op)
{
    if (*op != NULL) {
        (*op)->ops->close(*op);
        *op = NULL;
    }
}
