#include "server/ctl/bundle_in.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/os/newfile.h"

enum { BLOCK_BYTES = 1 << 20, SUMS_BYTES = BUNDLE_MANIFEST_BYTES, FOLDERS_MAX = 1 << 20 };

struct bundle_in {
    const char *name; /* for errors */
    struct bundle *bundle;
    struct bundle_item *item; /* under way */
    /* a folder: */
    int fd;
    struct bundle_item *at;
    enum { PASS_NONE, PASS_WORDS, PASS_FILES } pass;
    /* a tar: */
    struct archive *a;
    uint64_t left; /* of the entry's bytes */
    uint64_t folders;
    char *room;
};

/* --- folders ---------------------------------------------------------------------------------- */

/* Segment by segment: no link is followed, whoever put it there. */
static int open_below(const struct bundle_in *in, const char *path, int *out, struct err *e)
{
    struct slice rest = slice_str(path);
    int at = in->fd, why;

    while (rest.n != 0) {
        char name[256];
        struct slice s = slice_cut(&rest, '/');
        int fd;
        CHECK(s.n < sizeof name); /* bundle_read() saw to it */
        memcpy(name, s.p, s.n);
        name[s.n] = '\0';
        fd = openat(at, name,
                    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC |
                        (rest.n != 0 ? O_DIRECTORY : 0));
        why = errno;
        if (at != in->fd) {
            close(at);
        }
        if (fd == -1) {
            return why == ELOOP || why == ENOTDIR
                       ? err_set(e, E_INVALID, "\"%.160s\" in the bundle is not a regular file",
                                 path)
                   : why == ENOENT
                       ? err_set(e, E_NOTFOUND,
                                 "\"%.160s\" is missing from the bundle; export it again: the "
                                 "export continues where it stopped",
                                 path)
                       : err_set(e, err_from_errno(why), "%.160s: %s", path, strerror(why));
        }
        at = fd;
    }
    *out = at;
    return 0;
}

static int open_item(const struct bundle_in *in, const struct bundle_item *it, int *out,
                     struct err *e)
{
    struct stat st;
    int rc = open_below(in, it->path, out, e);

    if (rc != 0) {
        return rc;
    }
    if (fstat(*out, &st) != 0) {
        rc = err_sys(e, "%.160s", it->path);
    } else if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, E_INVALID, "\"%.160s\" in the bundle is not a regular file", it->path);
    } else if ((uint64_t)st.st_size != it->size_bytes) {
        rc = err_set(e, E_INVALID, "\"%.120s\" has %lld bytes, but %llu in the manifest", it->path,
                     (long long)st.st_size, (unsigned long long)it->size_bytes);
    }
    if (rc != 0) {
        close(*out);
    }
    return rc;
}

static int read_whole(int fd, size_t max, struct buf *out, struct err *e)
{
    struct stat st;
    char *p;
    int rc;

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        return err_set(e, E_INVALID, "not a regular file");
    }
    p = (uint64_t)st.st_size < max ? buf_room(out, (size_t)st.st_size + 1) : NULL;
    if (p == NULL) {
        return err_set(e, E_TOOBIG, "the file is too large");
    }
    rc = fd_pread_all(fd, p, (size_t)st.st_size, 0, e);
    if (rc == 0) {
        buf_grew(out, (size_t)st.st_size);
    }
    return rc;
}

static int folder_text(struct bundle_in *in, const char *name, struct buf *out, struct err *e)
{
    int fd, rc = open_below(in, name, &fd, e);

    if (rc == E_NOTFOUND) {
        return err_set(e, rc,
                       "%.160s has no %s: it is not a bundle, or its export was not "
                       "finished",
                       in->name, name);
    }
    if (rc == 0) {
        rc = read_whole(fd, out->max, out, e);
        close(fd);
        if (rc != 0) {
            err_prefix(e, "%s", name);
        }
    }
    return rc;
}

/* Once over the words, once over the files. */
static void folder_next(struct bundle_in *in)
{
    do {
        if (in->at == NULL && in->pass < PASS_FILES) {
            in->pass++;
            in->at = in->bundle->items;
        }
        in->item = in->at;
        if (in->at == NULL) {
            return;
        }
        in->at = in->at->hh.next;
    } while (in->item->left_out || (in->item->kind == ITEM_FILE) != (in->pass == PASS_FILES));
}

/* --- tars ------------------------------------------------------------------------------------- */

static int bundle_read_error(const struct bundle_in *in, struct err *e)
{
    const char *why = archive_error_string(in->a);

    return err_set(e, E_INVALID, "%.100s is not a valid tar, or is truncated: %.100s", in->name,
                   why != NULL ? why : "unexpected end of file");
}

/* The next plain file or hard link; *path NULL: it is over. */
static int next_entry(struct bundle_in *in, struct archive_entry **entry, const char **path,
                      struct err *e)
{
    for (;;) {
        int got = archive_read_next_header(in->a, entry);
        *path = NULL;
        if (got == ARCHIVE_EOF) {
            return 0;
        }
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN) {
            return bundle_read_error(in, e);
        }
        *path = archive_entry_pathname(*entry);
        *path = *path != NULL ? *path : archive_entry_pathname_utf8(*entry);
        if (*path == NULL) {
            return err_set(e, E_INVALID, "%.100s has an entry without a name", in->name);
        }
        while (strncmp(*path, "./", 2) == 0) {
            *path += 2;
        }
        if (archive_entry_filetype(*entry) == AE_IFDIR && in->folders++ < FOLDERS_MAX) {
            continue;
        }
        in->left = (uint64_t)archive_entry_size(*entry);
        if (archive_entry_hardlink(*entry) == NULL &&
            (archive_entry_filetype(*entry) != AE_IFREG || !archive_entry_size_is_set(*entry) ||
             archive_entry_size(*entry) < 0)) {
            return err_set(e, E_INVALID, "\"%.160s\" is not a regular file in the tar", *path);
        }
        return 0;
    }
}

/* The next bytes of the entry, up to BLOCK_BYTES in in->room. */
static int entry_bytes(struct bundle_in *in, const char *path, size_t *n, struct err *e)
{
    size_t most = (size_t)min_u64(BLOCK_BYTES, in->left);
    la_ssize_t got = most != 0 ? archive_read_data(in->a, in->room, most) : 0;

    if (got < 0 || (got == 0 && most != 0)) {
        bundle_read_error(in, e);
        return err_prefix(e, "\"%.60s\"", path);
    }
    *n = (size_t)got;
    in->left -= (uint64_t)got;
    return 0;
}

static int tar_text(struct bundle_in *in, const char *name, struct buf *out, struct err *e)
{
    struct archive_entry *entry;
    const char *path;
    int rc = next_entry(in, &entry, &path, e);

    if (rc != 0) {
        return rc;
    }
    if (path == NULL || strcmp(path, name) != 0 || archive_entry_hardlink(entry) != NULL) {
        return err_set(e, E_INVALID,
                       "%.60s does not begin with " BUNDLE_SUMS " and " BUNDLE_MANIFEST ", so "
                       "it is not a bundle; if another program packed it, unpack it and import "
                       "the folder",
                       in->name);
    }
    while (rc == 0 && in->left != 0) {
        size_t n = 0;
        rc = entry_bytes(in, name, &n, e);
        buf_add(out, in->room, n);
        rc = rc == 0 && out->rc != 0 ? err_set(e, E_TOOBIG, "%s is too large", name) : rc;
    }
    return rc;
}

static int check_all_seen(const struct bundle_in *in, struct err *e)
{
    for (const struct bundle_item *it = in->bundle->items; it != NULL; it = it->hh.next) {
        if (!it->left_out && !it->seen) {
            return err_set(e, E_INVALID, "%.60s is truncated: it ends without \"%.120s\"", in->name,
                           it->path);
        }
    }
    return 0;
}

static int tar_next(struct bundle_in *in, struct bundle_item **as, struct err *e)
{
    struct archive_entry *entry;
    const char *path, *link;
    struct bundle_item *it;
    int rc = next_entry(in, &entry, &path, e);

    in->item = NULL;
    if (rc != 0 || path == NULL) {
        return rc != 0 ? rc : check_all_seen(in, e);
    }
    it = bundle_find(in->bundle, slice_str(path));
    if (it == NULL || it->left_out) {
        return err_set(e, E_INVALID, "\"%.160s\" is in the tar but not in its manifest", path);
    }
    if (it->seen) {
        return err_set(e, E_INVALID, "\"%.160s\" is in the tar twice", path);
    }
    link = archive_entry_hardlink(entry);
    if (link != NULL) {
        while (strncmp(link, "./", 2) == 0) {
            link += 2;
        }
        *as = bundle_find(in->bundle, slice_str(link));
        if (*as == NULL || !(*as)->seen || !digest_eq(&(*as)->sha256, &it->sha256)) {
            return err_set(e, E_INVALID, "\"%.160s\" is a link to a file with other content", path);
        }
        in->left = 0;
    } else if (in->left != it->size_bytes) {
        return err_set(e, E_INVALID, "\"%.120s\" has %llu bytes, but %llu in the manifest", path,
                       (unsigned long long)in->left, (unsigned long long)it->size_bytes);
    }
    it->seen = true;
    in->item = it;
    return 0;
}

static int use_tar(struct bundle_in *in, struct err *e)
{
    in->a = archive_read_new();
    in->room = mem_new(BLOCK_BYTES);
    return in->a != NULL && archive_read_support_format_tar(in->a) == ARCHIVE_OK
               ? 0
               : err_set(e, E_INTERNAL, "this libarchive cannot read tars");
}

/* --- both ------------------------------------------------------------------------------------- */

int bundle_in_open(const char *from, struct bundle_in **out, struct err *e)
{
    bool stdin_too = strcmp(from, "-") == 0;
    int fd = stdin_too ? dup(STDIN_FILENO) : open(from, O_RDONLY | O_CLOEXEC);
    struct bundle_in *in;
    struct stat st;
    int rc = 0;

    *out = NULL;
    if (fd == -1 || fstat(fd, &st) != 0) {
        rc = err_sys(e, "%s", from);
        if (fd != -1) {
            close(fd);
        }
        return rc;
    }
    in = NEW(struct bundle_in);
    in->name = stdin_too ? "standard input" : from;
    in->fd = fd;
    if (stdin_too || !S_ISDIR(st.st_mode)) {
        rc = use_tar(in, e);
        if (rc == 0 && archive_read_open_fd(in->a, fd, BLOCK_BYTES) != ARCHIVE_OK) {
            rc = bundle_read_error(in, e);
        }
    }
    if (rc != 0) {
        bundle_in_close(&in);
    }
    *out = in;
    return rc;
}

int bundle_in_open_bytes(struct slice tar, struct bundle_in **out, struct err *e)
{
    struct bundle_in *in = NEW(struct bundle_in);
    int rc;

    in->name = "the tar";
    in->fd = -1;
    rc = use_tar(in, e);
    if (rc == 0 && archive_read_open_memory(in->a, tar.p, tar.n) != ARCHIVE_OK) {
        rc = bundle_read_error(in, e);
    }
    if (rc != 0) {
        bundle_in_close(&in);
    }
    *out = in;
    return rc;
}

static int text(struct bundle_in *in, const char *name, struct buf *out, struct err *e)
{
    return in->a != NULL ? tar_text(in, name, out, e) : folder_text(in, name, out, e);
}

int bundle_in_manifest(struct bundle_in *in, const struct digest *sha256, struct bundle *out,
                       struct digest *digest, struct err *e)
{
    struct buf sums = BUF_INIT(SUMS_BYTES), manifest = BUF_INIT(BUNDLE_MANIFEST_BYTES);
    struct digest said;
    int rc = text(in, BUNDLE_SUMS, &sums, e);

    *out = (struct bundle){0};
    rc = rc != 0 ? rc : text(in, BUNDLE_MANIFEST, &manifest, e);
    if (rc == 0 && !bundle_sums_read(buf_slice(&sums), &said)) {
        rc = err_set(e, E_INVALID,
                     BUNDLE_SUMS " does not begin with " BUNDLE_MANIFEST ", so this is not a "
                                 "bundle");
    }
    if (rc == 0) {
        digest_of(buf_slice(&manifest), digest);
        if (!digest_eq(digest, &said)) {
            rc = err_set(e, E_CORRUPT,
                         BUNDLE_MANIFEST
                         " is damaged: its SHA-256 differs from the one in " BUNDLE_SUMS);
        } else if (sha256 != NULL && !digest_eq(digest, sha256)) {
            rc = err_set(e, E_CORRUPT,
                         "this is not the bundle that was exported: the SHA-256 of its manifest "
                         "differs from --digest");
        } else {
            rc = bundle_read(buf_slice(&manifest), out, e);
        }
    }
    in->bundle = rc == 0 ? out : NULL;
    buf_free(&sums);
    buf_free(&manifest);
    return rc;
}

int bundle_in_next(struct bundle_in *in, struct bundle_item **out, struct bundle_item **as,
                   struct err *e)
{
    int rc = 0;

    *as = NULL;
    if (in->a != NULL) {
        rc = tar_next(in, as, e);
    } else {
        folder_next(in);
    }
    *out = rc == 0 ? in->item : NULL;
    return rc;
}

static int check_bundle_item(const struct bundle_item *it, const struct digest *d, struct err *e)
{
    return digest_eq(d, &it->sha256)
               ? 0
               : err_set(e, E_CORRUPT,
                         "\"%.120s\" is damaged: its SHA-256 differs from the one in the "
                         "manifest",
                         it->path);
}

int bundle_in_bytes(struct bundle_in *in, const struct bundle_item *it, struct buf *out,
                    struct err *e)
{
    struct digest d;
    int fd, rc = 0;

    if (it->size_bytes >= out->max) {
        return err_set(e, E_TOOBIG, "\"%.160s\" is too large", it->path);
    }
    if (in->a == NULL) {
        rc = open_item(in, it, &fd, e);
        if (rc == 0) {
            rc = read_whole(fd, out->max, out, e);
            close(fd);
        }
    }
    while (rc == 0 && in->a != NULL && in->left != 0) {
        size_t n = 0;
        rc = entry_bytes(in, it->path, &n, e);
        buf_add(out, in->room, n);
    }
    if (rc == 0) {
        digest_of(buf_slice(out), &d);
        rc = check_bundle_item(it, &d, e);
    }
    return rc;
}

int bundle_in_check(struct bundle_in *in, const struct bundle_item *it,
                    void (*on_bytes)(void *arg, uint64_t n), void *arg, struct err *e)
{
    struct hasher *h = hasher_new_whole();
    struct digest d;
    int fd, rc = 0;

    if (in->a == NULL) {
        rc = open_item(in, it, &fd, e);
        if (rc == 0) {
            rc = digest_of_fd(fd, it->size_bytes, &d, e);
            close(fd);
            on_bytes(arg, it->size_bytes);
        }
    } else {
        while (rc == 0 && in->left != 0) {
            size_t n = 0;
            rc = entry_bytes(in, it->path, &n, e);
            hasher_add(h, in->room, n);
            on_bytes(arg, n);
        }
        hasher_final(h, &d);
    }
    hasher_free(&h);
    return rc != 0 ? rc : check_bundle_item(it, &d, e);
}

int bundle_in_fd(struct bundle_in *in, const struct bundle_item *it, int *fd, struct err *e)
{
    *fd = -1;
    return in->a == NULL ? open_item(in, it, fd, e) : 0;
}

int bundle_in_pump(struct bundle_in *in, const struct bundle_item *it, int to, bool *left,
                   void (*on_bytes)(void *arg, uint64_t n), void *arg, struct err *e)
{
    int rc = 0;

    *left = false;
    while (rc == 0 && in->left != 0 && !*left) {
        size_t n = 0;
        struct err why;
        rc = entry_bytes(in, it->path, &n, e);
        if (rc == 0 && fd_write_all(to, in->room, n, &why) != 0) {
            *left = true; /* it has its reasons, and tells them elsewhere */
        }
        if (on_bytes != NULL) {
            on_bytes(arg, n);
        }
    }
    return rc;
}

void bundle_in_close(struct bundle_in **ip)
{
    struct bundle_in *in = *ip;

    *ip = NULL;
    if (in == NULL) {
        return;
    }
    if (in->a != NULL) {
        (void)archive_read_free(in->a);
    }
    if (in->fd != -1) {
        close(in->fd);
    }
    free(in->room);
    free(in);
}
