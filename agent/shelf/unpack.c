#include "agent/shelf/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/shelf/confine.h"
#include "agent/shelf/place.h"
#include "agent/shelf/stamp.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum {
    ENTRIES_MAX = 1000000,
    RATIO_MAX = 1000,
    BLOCK_BYTES = 1 << 20,
    LOCK_WAIT_MS = 50,
    ANEW_WAIT_MS = 1000, /* for those who use a tree that was changed; TRIES times */
    TRIES = 5
};
#define UNPACKED_MAX    ((uint64_t)4 << 40)
#define UNPACKED_ALWAYS ((uint64_t)64 << 20) /* whatever the ratio */

struct unpacking {
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

static int copy_data(struct unpacking *u, struct err *e)
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

static int take_entry(struct unpacking *u, struct archive_entry *entry, struct err *e)
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

static int unpack_here(int fd, uint64_t size_bytes, struct err *e)
{
    struct unpacking u = {.in = archive_read_new(), .out = archive_write_disk_new()};
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

NORETURN static void child(int blob, uint64_t size_bytes, const char *folder, int tell)
{
    struct err why = {0};

    if (chdir(folder) == -1) {
        err_sys(&why, "%s", folder);
    } else {
        (void)archive_version_number(); /* loaded (agent/late) before we give up our rights */
        confine_to(".");
        umask(022);
        (void)unpack_here(blob, size_bytes, &why);
    }
    (void)!write(tell, &why, sizeof why);
    _exit(why.code == 0 ? 0 : 1);
}

static int unpack_in_child(int blob, uint64_t size_bytes, const char *folder, struct err *e)
{
    int pipe_fd[2];
    struct err said = {0};
    int status = 0;
    ssize_t n;
    pid_t pid;

    if (pipe2(pipe_fd, O_CLOEXEC) == -1) {
        return err_sys(e, "pipe");
    }
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        close(pipe_fd[0]);
        child(blob, size_bytes, folder, pipe_fd[1]);
    }
    close(pipe_fd[1]);
    if (pid == -1) {
        close(pipe_fd[0]);
        return err_sys(e, "fork");
    }
    do {
        n = read(pipe_fd[0], &said, sizeof said);
    } while (n == -1 && errno == EINTR);
    close(pipe_fd[0]);
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

static int publish_tree(const char *temp, const char *path, struct err *e)
{
    int fd = open(temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char dir[PATH_MAX];

    /* Thousands of small files: one syncfs instead of an fsync each. */
    if (fd == -1 || syncfs(fd) == -1) {
        int rc = err_sys(e, "%s: sync", temp);
        if (fd != -1) {
            close(fd);
        }
        return rc;
    }
    close(fd);
    if (rename(temp, path) == -1) {
        return err_sys(e, "%s", path);
    }
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
    return dir_sync(dir, e);
}

/* E_BUSY once the time is over. */
static int wait_for_lock(struct shelf *s, const struct digest *d, bool shared, uint64_t at_most_ms,
                         struct shelf_lock **out, struct err *e)
{
    uint64_t began_ms = clock_now_ms();
    int rc;

    while ((rc = shelf_try_lock(s, d, shared, out, e)) == E_BUSY &&
           clock_now_ms() - began_ms < at_most_ms) {
        usleep(LOCK_WAIT_MS * 1000);
    }
    return rc;
}

/* Under an exclusive lock. Renamed first: half a tree has no right name. */
static int throw_away(const char *path, const char *temp, struct err *e)
{
    int rc = dir_remove_tree(temp, e);

    log_warn("shelf.changed", "path=%s not as it was unpacked; unpacked anew", path);
    if (rc == 0 && rename(path, temp) == -1) {
        rc = err_sys(e, "%s", path);
    }
    return rc != 0 ? rc : dir_remove_tree(temp, e);
}

static int fill_tree(struct shelf *s, const struct digest *d, const char *path, const char *temp,
                     struct err *e)
{
    char blob_path[PATH_MAX];
    struct stat st;
    int blob;
    int rc;

    shelf_blob_path(s, d, blob_path);
    blob = open(blob_path, O_RDONLY | O_CLOEXEC);
    if (blob == -1 || fstat(blob, &st) == -1) {
        rc = shelf_lost(blob_path, e);
        goto out;
    }
    rc = dir_remove_tree(temp, e); /* of an unpacking that died */
    if (rc == 0 && mkdir(temp, 0755) == -1) {
        rc = err_sys(e, "%s", temp);
    }
    rc = rc != 0 ? rc : unpack_in_child(blob, (uint64_t)st.st_size, temp, e);
    rc = rc != 0 ? rc : stamp_seal(temp, path, e);
    rc = rc != 0 ? rc : publish_tree(temp, path, e);
    if (rc != 0) {
        (void)!dir_remove_tree(temp, NULL);
    }
out:
    if (blob != -1) {
        close(blob);
    }
    return rc;
}

/* changed: it is there, and not to be used; E_BUSY: nor to be replaced yet. */
static int make_tree(struct shelf *s, const struct digest *d, const char *path, bool changed,
                     struct err *e)
{
    char temp[PATH_MAX + 8];
    struct shelf_lock *lock = NULL;
    struct stat st;
    int rc = wait_for_lock(s, d, false, changed ? ANEW_WAIT_MS : UINT64_MAX, &lock, e);

    snprintf(temp, sizeof temp, "%s.new~", path);
    if (rc != 0) {
        return rc;
    }
    if (stat(path, &st) ==
        0) { /* another one has been quicker, or it is the one that was changed */
        rc = stamp_check(path, e);
        if (rc == E_CHANGED) {
            rc = throw_away(path, temp, e);
            rc = rc != 0 ? rc : fill_tree(s, d, path, temp, e);
        }
    } else {
        rc = fill_tree(s, d, path, temp, e);
    }
    shelf_unlock(&lock);
    return rc;
}

int unpack_blob(struct shelf *s, const struct digest *d, char path[PATH_MAX],
                struct shelf_lock **hold, struct err *e)
{
    struct stat st;
    bool made = false;
    int rc = 0;

    shelf_tree_path(s, d, path);
    for (unsigned i = 0; i < TRIES; i++) {
        bool there;
        rc = wait_for_lock(s, d, true, UINT64_MAX, hold, e);
        if (rc != 0) {
            return rc;
        }
        there = stat(path, &st) == 0;
        /* What we have made ourselves is not looked at: some file systems tell other times later. */
        rc = there && !made ? stamp_check(path, e) : 0;
        if (rc != E_CHANGED && (there || rc != 0)) {
            break;
        }
        shelf_unlock(hold);
        rc = make_tree(s, d, path, there, e);
        if (rc != 0 && rc != E_BUSY) {
            return rc;
        }
        made = rc == 0;
        rc = made ? err_set(e, E_CHANGED, "%s: gc takes it again and again", path)
                  : err_set(e, E_BUSY,
                            "%s: a job that still uses it has changed it; run it again when that "
                            "has ended",
                            path);
    }
    if (rc != 0) {
        shelf_unlock(hold);
    }
    return rc;
}

/* --- a tree for the user to keep ------------------------------------------------------------------------------------------ */

/* One that is there is taken; a link there is not followed, it may lead anywhere. */
static int copy_folder(const char *to, struct err *e)
{
    struct stat st;

    if (mkdir(to, 0755) == 0) {
        return 0;
    }
    if (errno != EEXIST || lstat(to, &st) == -1) {
        return err_sys(e, "%s", to);
    }
    return S_ISDIR(st.st_mode)
               ? 0
               : err_set(e, E_EXISTS, "%s: is there and no folder, which the archive has there",
                         to);
}

static int copy_entry(const char *from, const char *to, struct err *e)
{
    char target[PATH_MAX];
    struct stat st;
    ssize_t n;

    if (lstat(from, &st) == -1) {
        return err_sys(e, "%s", from);
    }
    if (S_ISDIR(st.st_mode)) {
        return copy_folder(to, e);
    }
    if (unlink(to) == -1 && errno != ENOENT) {
        return err_sys(e, "%s", to);
    }
    if (S_ISLNK(st.st_mode)) {
        n = readlink(from, target, sizeof target - 1);
        if (n == -1) {
            return err_sys(e, "%s", from);
        }
        target[n] = '\0';
        return symlink(target, to) == -1 ? err_sys(e, "%s", to) : 0;
    }
    return place_copy_file(from, to, (st.st_mode & 0777) | 0200, e); /* theirs now */
}

int unpack_copy(const char *tree, const char *to, struct err *e)
{
    char *const roots[] = {mem_strdup(tree), NULL};
    FTS *walk = NULL;
    FTSENT *f;
    char path[PATH_MAX];
    int rc = dir_make(to, 0755, e);

    if (rc == 0 && (walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL)) == NULL) {
        rc = err_sys(e, "%s", tree);
    }
    while (rc == 0 && (f = fts_read(walk)) != NULL) {
        if (f->fts_level > 0 && f->fts_info != FTS_DP) {
            int n = snprintf(path, sizeof path, "%s%s", to, f->fts_path + strlen(tree));
            rc = n < (int)sizeof path
                     ? copy_entry(f->fts_path, path, e)
                     : err_set(e, E_TOOBIG, "%.200s...: a path too long for this system", path);
        }
    }
    if (walk != NULL) {
        fts_close(walk);
    }
    free(roots[0]);
    return rc;
}
