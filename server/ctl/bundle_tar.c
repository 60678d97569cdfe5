/* bundle_tar.c - a bundle written as a tar: pax where names or sizes need it. */
#include <archive.h>
#include <archive_entry.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/os/newfile.h"
#include "server/ctl/bundle_out.h"

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

    return err_set(e, rc != 0 ? rc : E_IO, "writing the tar: %s", why != NULL ? why : "it failed");
}

/* The same bundle gives the same bytes: no owner, no time. */
static struct archive_entry *entry_of(const char *path, uint64_t size_bytes)
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

static int put_text(struct tar *t, const char *path, struct slice text, struct err *e)
{
    int rc = put_header(t, entry_of(path, text.n), e);

    return rc == 0 ? put_bytes(t, text, e) : rc;
}

static int begin(struct bundle_out *o, struct slice manifest, struct slice sums, struct err *e)
{
    int rc = put_text(tar_of(o), BUNDLE_SUMS, sums, e);

    return rc == 0 ? put_text(tar_of(o), BUNDLE_MANIFEST, manifest, e) : rc;
}

static bool has(struct bundle_out *o, const struct bundle_item *it)
{
    (void)o;
    (void)it;
    return false;
}

static int again(struct bundle_out *o, const struct bundle_item *it, const struct bundle_item *as,
                 struct err *e)
{
    struct archive_entry *en = entry_of(it->path, 0);

    archive_entry_set_hardlink(en, as->path);
    o->on_bytes(o->arg, it->size_bytes);
    return put_header(tar_of(o), en, e);
}

static int write_file(struct bundle_out *o, const struct bundle_item *it, int fd, struct err *e)
{
    struct tar *t = tar_of(o);
    struct hasher *h = hasher_new_whole();
    struct digest d;
    int rc = put_header(t, entry_of(it->path, it->size_bytes), e);

    for (uint64_t at = 0; rc == 0 && at < it->size_bytes;) {
        size_t n = (size_t)min_u64(READ_BYTES, it->size_bytes - at);
        rc = fd_pread_all(fd, t->room, n, at, e);
        if (rc == 0 && o->deep) {
            hasher_add(h, t->room, n);
        }
        rc = rc == 0 ? put_bytes(t, slice_of(t->room, n), e) : rc;
        o->on_bytes(o->arg, n);
        at += n;
    }
    hasher_final(h, &d);
    if (rc == 0 && o->deep && !digest_eq(&d, &it->sha256)) {
        rc = err_set(e, E_CORRUPT, "%.160s is damaged in the store, run `mirrorctl verify --deep`",
                     it->path);
    }
    hasher_free(&h);
    return rc;
}

static int finish(struct bundle_out *o, struct slice manifest, struct slice sums, struct err *e)
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

int bundle_tar_open(const char *path, bool force, struct bundle_out **out, struct err *e)
{
    static const struct bundle_out_ops ops = {.begin = begin,
                                              .has = has,
                                              .again = again,
                                              .file = write_file,
                                              .finish = finish,
                                              .close = close_tar};
    bool to_stdout = strcmp(path, "-") == 0;
    struct tar *t;
    struct stat st;
    int rc = 0;

    if (to_stdout && isatty(STDOUT_FILENO)) {
        return err_set(e, E_USAGE, "a tar is not for a terminal, write `--to FILE.tar`, or a pipe");
    }
    if (!to_stdout && !force && lstat(path, &st) == 0) {
        return err_set(e, E_EXISTS, "%s is there already, add --force to replace it", path);
    }
    t = NEW(struct tar);
    t->o.ops = &ops;
    t->room = mem_new(READ_BYTES);
    if (!to_stdout) {
        rc = newfile_open(path, 0644, &t->file, e);
    }
    rc = rc == 0 ? open_archive(t, e) : rc;
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
