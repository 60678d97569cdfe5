#include "agent/shelf/extract.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/shelf/confine.h"
#include "agent/shelf/place.h"
#include "common/os/forked.h"

enum { ENTRIES_MAX = 1000000, RATIO_MAX = 1000, BLOCK_BYTES = 1 << 20 };
#define UNPACKED_MAX    ((uint64_t)4 << 40)
#define UNPACKED_ALWAYS ((uint64_t)64 << 20) /* whatever the ratio */

struct extraction {
    struct archive *in;
    struct archive *out;
    uint64_t may_bytes;
    uint64_t bytes;
    uint64_t entries;
};

/* --- one entry: in the child -------------------------------------------------------------------------------------------- */

static struct slice plain_name(const char *name)
{
    struct slice s = slice_str(name);

    while (slice_starts(s, SLICE("./"))) {
        s = slice_from(s, 2);
        while (s.n > 0 && s.p[0] == '/') {
            s = slice_from(s, 1);
        }
    }
    while (s.n > 0 && s.p[s.n - 1] == '/') {
        s.n--;
    }
    return slice_eq(s, SLICE(".")) ? SLICE_NONE : s;
}

/* Does the link at `name` to `target` stay inside? Counted in folders, and '..' only where it begins: behind a name it
 * would mean the parent of wherever that name leads, which may be another link. */
static bool link_ok(struct slice name, struct slice target)
{
    size_t above = 0;
    bool named = false;

    if (target.n == 0 || target.p[0] == '/') {
        return false;
    }
    for (size_t i = 0; i < name.n; i++) {
        above += name.p[i] == '/';
    }
    while (target.n > 0) {
        struct slice seg = slice_cut(&target, '/');
        if (slice_eq(seg, SLICE(".."))) {
            if (named || above == 0) {
                return false;
            }
            above--;
        } else if (seg.n > 0 && !slice_eq(seg, SLICE("."))) {
            named = true;
        }
    }
    return true;
}

/* A hard link may be one to a symbolic link, which then stands, and points, elsewhere. */
static bool hard_link_ok(struct slice name, struct slice to)
{
    char path[PATH_MAX];
    char target[PATH_MAX];
    ssize_t n;

    if (!place_name_ok(to) || to.n >= sizeof path) {
        return false;
    }
    memcpy(path, to.p, to.n);
    path[to.n] = '\0';
    n = readlink(path, target, sizeof target);
    return n == -1 || ((size_t)n < sizeof target && link_ok(name, slice_of(target, (size_t)n)));
}

static int judge_entry(struct archive_entry *entry, struct slice name, struct err *e)
{
    const char *hard = archive_entry_hardlink(entry);
    const char *soft = archive_entry_symlink(entry);

    if (!place_name_ok(name)) {
        return err_set(e, E_INVALID, "an entry's name leads out of the folder");
    }
    if (hard != NULL) {
        return hard_link_ok(name, plain_name(hard))
                   ? 0
                   : err_set(e, E_INVALID, "a hard link leads out of the folder");
    }
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
        archive_entry_set_perm(entry, (archive_entry_perm(entry) & 0111) != 0 ? 0555 : 0444);
        return 0;
    case AE_IFDIR:
        archive_entry_set_perm(entry, 0755); /* until all is there: stamp_seal() */
        return 0;
    case AE_IFLNK:
        return soft != NULL && link_ok(name, slice_str(soft))
                   ? 0
                   : err_set(e, E_INVALID, "a symbolic link leads out of the folder");
    default:
        return err_set(e, E_INVALID, "an entry that is no file, folder or link");
    }
}

static int copy_data(struct extraction *u, struct err *e)
{
    const void *p;
    size_t n;
    la_int64_t at;
    uint64_t end = 0; /* holes count: a sparse petabyte is one, too */

    for (;;) {
        int got = archive_read_data_block(u->in, &p, &n, &at);
        if (got == ARCHIVE_EOF) {
            u->bytes += end;
            return 0;
        }
        if (got != ARCHIVE_OK) {
            return err_set(e, E_INVALID, "damaged: %s", archive_error_string(u->in));
        }
        if (at < 0 || !add_u64((uint64_t)at, n, &end) || end > u->may_bytes - u->bytes) {
            return err_set(e, E_TOOBIG, "more than %" PRIu64 " bytes come out of it", u->may_bytes);
        }
        if (archive_write_data_block(u->out, p, n, at) != ARCHIVE_OK) {
            return err_set(e, archive_errno(u->out) == ENOSPC ? E_NOSPACE : E_IO, "%s",
                           archive_error_string(u->out));
        }
    }
}

static int take_entry(struct extraction *u, struct archive_entry *entry, struct err *e)
{
    const char *raw = archive_entry_pathname(entry);
    struct slice name = plain_name(raw != NULL ? raw : "");
    char *text;
    int rc;

    if (name.n == 0 && archive_entry_filetype(entry) == AE_IFDIR) {
        return 0; /* "./" */
    }
    if (++u->entries > ENTRIES_MAX) {
        return err_set(e, E_TOOBIG, "more than %d entries", ENTRIES_MAX);
    }
    rc = judge_entry(entry, name, e);
    if (rc != 0) {
        return err_prefix(e, "%.100s", raw != NULL ? raw : "?");
    }
    text = strndup(name.p, name.n);
    CHECK(text != NULL);
    archive_entry_copy_pathname(entry, text);
    if (archive_entry_hardlink(entry) != NULL) {
        struct slice to = plain_name(archive_entry_hardlink(entry));
        char *target = strndup(to.p, to.n);
        CHECK(target != NULL);
        archive_entry_copy_hardlink(entry, target);
        free(target);
    }
    if (archive_write_header(u->out, entry) != ARCHIVE_OK) {
        rc = err_set(e, archive_errno(u->out) == ENOSPC ? E_NOSPACE : E_INVALID, "%.100s: %s", text,
                     archive_error_string(u->out));
    } else if (archive_entry_size(entry) > 0 && archive_entry_hardlink(entry) == NULL) {
        rc = copy_data(u, e);
    }
    free(text);
    return rc;
}

static int extract_here(int fd, uint64_t size_bytes, struct err *e)
{
    struct extraction u = {.in = archive_read_new(), .out = archive_write_disk_new()};
    struct archive_entry *entry;
    int rc = 0;
    int got;

    CHECK(u.in != NULL && u.out != NULL);
    if (!mul_u64(size_bytes, RATIO_MAX, &u.may_bytes)) {
        u.may_bytes = UNPACKED_MAX;
    }
    u.may_bytes = min_u64(max_u64(u.may_bytes, UNPACKED_ALWAYS), UNPACKED_MAX);
    archive_read_support_format_tar(u.in);
    archive_read_support_format_zip(u.in);
    archive_read_support_format_ar(u.in); /* a Debian package is one */
    archive_read_support_filter_gzip(u.in);
    archive_read_support_filter_bzip2(u.in);
    archive_read_support_filter_xz(u.in);
    archive_read_support_filter_zstd(u.in);
    archive_read_support_filter_lz4(u.in);
    archive_write_disk_set_options(
        u.out, ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_SECURE_NODOTDOT |
                   ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS);
    if (archive_read_open_fd(u.in, fd, BLOCK_BYTES) != ARCHIVE_OK) {
        rc = err_set(e, E_INVALID, "not a tar, zip or ar archive: %s", archive_error_string(u.in));
    }
    while (rc == 0 && (got = archive_read_next_header(u.in, &entry)) != ARCHIVE_EOF) {
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN) {
            rc = err_set(e, E_INVALID, "not a sound archive: %s", archive_error_string(u.in));
        } else {
            rc = take_entry(&u, entry, e);
        }
    }
    if (archive_write_close(u.out) != ARCHIVE_OK && rc == 0) {
        rc = err_set(e, E_IO, "%s", archive_error_string(u.out));
    }
    archive_read_free(u.in);
    archive_write_free(u.out);
    return rc;
}

/* --- the child and its parent -------------------------------------------------------------------------------------------- */

NORETURN static void child(int fd, uint64_t size_bytes, const char *folder, int tell)
{
    struct err why = {0};

    if (chdir(folder) == -1) {
        err_sys(&why, "%s", folder);
    } else {
        (void)archive_version_number(); /* loaded (agent/late) before we give up our rights */
        confine_to(".");
        umask(022);
        (void)extract_here(fd, size_bytes, &why);
    }
    (void)!write(tell, &why, sizeof why);
    _exit(why.code == 0 ? 0 : 1);
}

int extract_in_child(int fd, uint64_t size_bytes, const char *folder, struct err *e)
{
    struct err said = {0};
    int status = 0;
    ssize_t n;
    pid_t pid;
    int pipe_fd;
    int rc = forked_start(&pid, &pipe_fd, e);

    if (rc != 0) {
        return rc;
    }
    if (pid == 0) {
        child(fd, size_bytes, folder, pipe_fd);
    }
    do {
        n = read(pipe_fd, &said, sizeof said);
    } while (n == -1 && errno == EINTR);
    close(pipe_fd);
    while (waitpid(pid, &status, 0) == -1 && errno == EINTR) {
    }
    if (n == (ssize_t)sizeof said && said.code < 0) {
        said.text[sizeof said.text - 1] = '\0';
        return err_set(e, said.code, "%s", said.text);
    }
    if (n != (ssize_t)sizeof said || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return err_set(e, E_INVALID, "the archive broke its reader (signal %d)",
                       WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    return 0;
}
