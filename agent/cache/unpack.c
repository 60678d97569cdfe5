#include "agent/cache/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/cache/confine.h"
#include "agent/cache/extract.h"
#include "agent/cache/place.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/hash/digest.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum {
    LOCK_WAIT_MS = 50,
    ANEW_WAIT_MS = 1000, /* for those who use a tree that was changed; TRIES times */
    TRIES = 5
};

/* --- an unpacked archive is left alone, or it is no longer what was unpacked: how that is seen.
 *
 * stamp_seal() takes the write bits off the folders (the files have none already) and writes
 * trees/<key>.stamp: how many entries, how many bytes, and a sum over each entry's name, kind,
 * size, mtime and ctime. One lstat() an entry, nothing is read. Modes do not bind root, and an
 * owner can give himself the bit back; a ctime nobody can set. It finds accidents: who writes on
 * the local cache on purpose can write a stamp as well (decision 0009).
 *
 * threads  any; blocks
 * errors   E_CHANGED: not as it was, or never sealed */

enum { STAMP_MAX = 256, WRITE_BITS = 0222 };

struct stamp {
    uint64_t entries, bytes;
    uint64_t
        sum[DIGEST_BYTES /
            sizeof(uint64_t)]; /* of the entries' digests: in whatever order a folder lists them */
};

static void stamp_path(const char *path, char out[PATH_MAX + 8])
{
    snprintf(out, PATH_MAX + 8, "%s.stamp", path);
}

/* The top folder's ctime is left out: it gets its name last. Inode numbers differ between mounts of
 * some file systems. */
static void add_stamp_entry(struct stamp *x, const FTSENT *f, const char *name, struct buf *text)
{
    const struct stat *st = f->fts_statp;
    uint64_t part[ARRAY_LEN(x->sum)];
    struct digest d;

    buf_clear(text);
    buf_addf(text, "%s%c%o %" PRId64 " %" PRId64 ".%09ld", name, 0, (unsigned)st->st_mode,
             S_ISDIR(st->st_mode) ? 0 : (int64_t)st->st_size, (int64_t)st->st_mtim.tv_sec,
             st->st_mtim.tv_nsec);
    if (f->fts_level > 0) {
        buf_addf(text, " %" PRId64 ".%09ld", (int64_t)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
    }
    digest_of(buf_slice(text), &d);
    memcpy(part, d.b, sizeof part);
    for (size_t i = 0; i < ARRAY_LEN(part); i++) {
        x->sum[i] += part[i];
    }
    x->entries++;
    x->bytes += S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
}

static int take_write_bits(const FTSENT *f, struct err *e)
{
    mode_t mode = f->fts_statp->st_mode & 07777;

    if ((mode & WRITE_BITS) != 0 && (chmod(f->fts_path, mode & ~(mode_t)WRITE_BITS) == -1 ||
                                     lstat(f->fts_path, f->fts_statp))) {
        return err_sys(e, "%s", f->fts_path);
    }
    return 0;
}

static int stamp_one_file(struct stamp *x, const FTSENT *f, size_t skip, bool seal,
                          struct buf *text, struct err *e)
{
    int rc = 0;

    switch (f->fts_info) {
    case FTS_DP:
        return 0;
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        errno = f->fts_errno;
        return err_sys(e, "%s", f->fts_path);
    case FTS_D:
        rc = seal ? take_write_bits(f, e) : 0;
        break;
    default:
        break;
    }
    if (rc == 0) {
        add_stamp_entry(x, f, f->fts_path + skip, text);
    }
    return rc != 0 ? rc : text->rc;
}

static int stamp_unpacked_tree(const char *tree, bool seal, struct stamp *x, struct err *e)
{
    char *const roots[] = {mem_strdup(tree), NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    struct buf text = BUF_INIT(2 * PATH_MAX);
    FTSENT *f;
    int rc = walk == NULL ? err_sys(e, "%s", tree) : 0;

    *x = (struct stamp){0};
    while (rc == 0 && (f = fts_read(walk)) != NULL) {
        rc = stamp_one_file(x, f, strlen(tree), seal, &text, e);
    }
    if (rc == 0 && errno != 0) { /* set to 0 at the end of the walk */
        rc = err_sys(e, "%s", tree);
    }
    if (walk != NULL) {
        fts_close(walk);
    }
    buf_free(&text);
    free(roots[0]);
    return rc;
}

static void format(const struct stamp *x, struct buf *out)
{
    buf_addf(out, "stamp1 %" PRIu64 " %" PRIu64 " ", x->entries, x->bytes);
    for (size_t i = 0; i < ARRAY_LEN(x->sum); i++) {
        buf_addf(out, "%016" PRIx64, x->sum[i]);
    }
    buf_str(out, "\n");
}

static int stamp_seal(const char *tree, const char *path, struct err *e)
{
    char name[PATH_MAX + 8];
    struct buf text = BUF_INIT(STAMP_MAX);
    struct newfile *f = NULL;
    struct stamp x;
    int rc = stamp_unpacked_tree(tree, true, &x, e);

    stamp_path(path, name);
    rc = rc != 0 ? rc : newfile_open(name, 0444, &f, e);
    if (rc == 0) {
        format(&x, &text);
        newfile_write(f, text.p, text.n);
        rc = newfile_commit(&f, e);
    }
    buf_free(&text);
    return rc;
}

static int stamp_check(const char *path, struct err *e)
{
    char name[PATH_MAX + 8];
    struct buf was = BUF_INIT(STAMP_MAX);
    struct buf is = BUF_INIT(STAMP_MAX);
    struct stamp x;
    int rc;

    stamp_path(path, name);
    rc = buf_read_file(&was, name, e);
    if (rc == E_NOTFOUND || rc == E_TOOBIG) {
        rc = err_set(e, E_CHANGED, "%s: the record of its state is missing", path);
    }
    rc = rc != 0 ? rc : stamp_unpacked_tree(path, false, &x, e);
    if (rc == 0) {
        format(&x, &is);
        if (!slice_eq(buf_slice(&was), buf_slice(&is))) {
            rc = err_set(e, E_CHANGED, "%s: was changed after it was unpacked", path);
        }
    }
    buf_free(&is);
    buf_free(&was);
    return rc;
}

void stamp_remove(const char *path)
{
    char name[PATH_MAX + 8];

    stamp_path(path, name);
    unlink(name);
}

/* --- unpacking --- */

/* --- a tree of the local cache ---------------------------------------------------------------- */

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
static int wait_for_lock(struct local_cache *s, const struct digest *d, bool shared,
                         uint64_t at_most_ms, struct local_cache_lock **out, struct err *e)
{
    uint64_t began_ms = clock_now_ms();
    int rc;

    while ((rc = local_cache_try_lock(s, d, shared, out, e)) == E_BUSY &&
           clock_now_ms() - began_ms < at_most_ms) {
        usleep(LOCK_WAIT_MS * 1000);
    }
    return rc;
}

/* Under an exclusive lock. Renamed first: half a tree has no right name. */
static int throw_away(const char *path, const char *temp, struct err *e)
{
    int rc = dir_remove_tree(temp, e);

    log_warn("local_cache.changed",
             "path=%s the folder was changed after it was unpacked; the archive is unpacked again",
             path);
    if (rc == 0 && rename(path, temp) == -1) {
        rc = err_sys(e, "%s", path);
    }
    return rc != 0 ? rc : dir_remove_tree(temp, e);
}

static int fill_tree(struct local_cache *s, const struct digest *d, const char *path,
                     const char *temp, struct err *e)
{
    char blob_path[PATH_MAX];
    struct stat st;
    int blob;
    int rc;

    local_cache_blob_path(s, d, blob_path);
    blob = open(blob_path, O_RDONLY | O_CLOEXEC);
    if (blob == -1 || fstat(blob, &st) == -1) {
        rc = local_cache_lost(blob_path, e);
        goto out;
    }
    rc = dir_remove_tree(temp, e); /* of an unpacking that died */
    if (rc == 0 && mkdir(temp, 0755) == -1) {
        rc = err_sys(e, "%s", temp);
    }
    if (!confine_knows_files()) {
        log_warn(
            "local_cache.unconfined",
            "path=%s this kernel has no Landlock: the process that unpacks the archive can read "
            "other files",
            path);
    }
    rc = rc != 0 ? rc : extract_in_child(blob, (uint64_t)st.st_size, temp, e);
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
static int make_tree(struct local_cache *s, const struct digest *d, const char *path, bool changed,
                     struct err *e)
{
    char temp[PATH_MAX + 8];
    struct local_cache_lock *lock = NULL;
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
    local_cache_unlock(&lock);
    return rc;
}

int unpack_blob(struct local_cache *s, const struct digest *d, char path[PATH_MAX],
                struct local_cache_lock **hold, struct err *e)
{
    struct stat st;
    bool made = false;
    int rc = 0;

    local_cache_tree_path(s, d, path);
    for (unsigned i = 0; i < TRIES; i++) {
        bool there;
        rc = wait_for_lock(s, d, true, UINT64_MAX, hold, e);
        if (rc != 0) {
            return rc;
        }
        there = stat(path, &st) == 0;
        /* What we have made ourselves is not looked at: some file systems tell other times
         * later. */
        rc = there && !made ? stamp_check(path, e) : 0;
        if (rc != E_CHANGED && (there || rc != 0)) {
            break;
        }
        local_cache_unlock(hold);
        rc = make_tree(s, d, path, there, e);
        if (rc != 0 && rc != E_BUSY) {
            return rc;
        }
        made = rc == 0;
        rc = made ? err_set(e, E_CHANGED,
                            "%s: gc removes the unpacked folder repeatedly; run the command again",
                            path)
                  : err_set(
                        e, E_BUSY,
                        "%s: changed by a job that still uses it; run the command again after that "
                        "job has ended",
                        path);
    }
    if (rc != 0) {
        local_cache_unlock(hold);
    }
    return rc;
}

/* --- a tree for the user to keep -------------------------------------------------------------- */

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
               : err_set(
                     e, E_EXISTS,
                     "%s: exists and is not a folder, but the archive has a folder of that name; "
                     "remove it or choose another --to",
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
            rc =
                n < (int)sizeof path
                    ? copy_entry(f->fts_path, path, e)
                    : err_set(e, E_TOOBIG, "%.200s...: the path is too long for this system", path);
        }
    }
    if (walk != NULL) {
        fts_close(walk);
    }
    free(roots[0]);
    return rc;
}
