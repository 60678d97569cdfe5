#include "agent/cache/spare.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "common/base/log.h"
#include "common/os/newfile.h"

enum { DEPTH_MAX = 64, STAMP_HEX = 16 };

/* --- the stamp -------------------------------------------------------------------------------- */

struct looking {
    uint64_t sum; /* whatever the order in which folders are listed */
};

struct seen { /* of an entry; no gaps */
    uint64_t folder, name;
    uint64_t mode, size, inode;
    int64_t mtime_s, mtime_ns;
};

static uint64_t add_spare_file(struct looking *l, uint64_t folder, const char *name,
                               const struct stat *st)
{
    struct seen x = {.folder = folder,
                     .name = XXH3_64bits(name, strlen(name)),
                     .mode = st->st_mode,
                     .size = S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size,
                     .inode = st->st_ino};

    if (!S_ISDIR(st->st_mode)) { /* what a folder's would tell, its entries do */
        x.mtime_s = st->st_mtim.tv_sec;
        x.mtime_ns = st->st_mtim.tv_nsec;
    }
    l->sum += XXH3_64bits(&x, sizeof x);
    return XXH3_64bits(&x, 2 * sizeof(uint64_t)); /* its place, for what is in it */
}

/* Takes fd. */
static int scan_spare_folder(struct looking *l, int fd, uint64_t folder, int depth, struct err *e)
{
    DIR *d = depth < DEPTH_MAX ? fdopendir(fd) : NULL;
    const struct dirent *it;
    struct stat st;
    int rc = 0;

    if (d == NULL) {
        rc = depth < DEPTH_MAX ? err_sys(e, "the folder of a job")
                               : err_set(e, E_TOOBIG, "the folder of a job is nested too deeply");
        close(fd);
        return rc;
    }
    while (rc == 0 && (errno = 0, it = readdir(d)) != NULL) {
        uint64_t place;
        int sub;
        if (strcmp(it->d_name, ".") == 0 || strcmp(it->d_name, "..") == 0) {
            continue;
        }
        if (fstatat(fd, it->d_name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
            rc = err_sys(e, "%s", it->d_name);
            break;
        }
        place = add_spare_file(l, folder, it->d_name, &st);
        if (S_ISDIR(st.st_mode)) {
            sub = openat(fd, it->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
            rc = sub == -1 ? err_sys(e, "%s", it->d_name)
                           : scan_spare_folder(l, sub, place, depth + 1, e);
        }
    }
    if (rc == 0 && errno != 0) {
        rc = err_sys(e, "the folder of a job");
    }
    closedir(d);
    return rc;
}

int spare_stamp(const char *at, uint64_t *stamp, struct err *e)
{
    struct looking l = {0};
    int fd = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    int rc = fd == -1 || fstat(fd, &st) == -1 ? err_sys(e, "%s", at) : 0;

    if (rc != 0) {
        if (fd != -1) {
            close(fd);
        }
        return rc;
    }
    (void)add_spare_file(&l, 0, "", &st);
    rc = scan_spare_folder(&l, fd, 0, 0, e);
    *stamp = l.sum;
    return rc;
}

/* --- handing on ------------------------------------------------------------------------------- */

static void folder_of_spare_key(const struct local_cache *s, const struct digest *key,
                                char out[PATH_MAX])
{
    char hex[DIGEST_HEX + 1];

    digest_format(key, hex);
    snprintf(out, PATH_MAX, "%s/spare/%s", local_cache_dir(s), hex);
}

/* "<16 hex>.<job>"; false: none of ours. */
static bool stamp_of(const char *name, uint64_t *stamp)
{
    char *end;

    if (strlen(name) <= STAMP_HEX || strspn(name, "0123456789abcdef") != STAMP_HEX ||
        name[STAMP_HEX] != '.') {
        return false;
    }
    *stamp = strtoull(name, &end, 16);
    return end == name + STAMP_HEX;
}

static bool take_one(int folder, const char *name, const char *at, uint64_t *stamp)
{
    uint64_t got;
    struct err why;

    /* Of two who want it, one gets it; at whatever is there already, nobody does. */
    if (!stamp_of(name, stamp) || renameat(folder, name, AT_FDCWD, at) == -1) {
        return false;
    }
    if (spare_stamp(at, &got, &why) == 0 && got == *stamp) {
        return true;
    }
    log_info("local_cache.spare",
             "path=%s the folder was changed after it was created; it is created again", at);
    if (dir_remove_tree(at, &why) != 0) {
        log_warn("local_cache.spare", "path=%s %s", at, why.text);
    }
    return false;
}

bool spare_take(struct local_cache *s, const struct digest *key, const char *at, uint64_t *stamp)
{
    char path[PATH_MAX];
    const struct dirent *it;
    bool got = false;
    DIR *d;

    folder_of_spare_key(s, key, path);
    d = opendir(path);
    while (d != NULL && !got && (it = readdir(d)) != NULL) {
        got = take_one(dirfd(d), it->d_name, at, stamp);
    }
    if (d != NULL) {
        closedir(d);
    }
    return got;
}

static unsigned count_stamps(const char *path)
{
    DIR *d = opendir(path);
    const struct dirent *it;
    uint64_t stamp;
    unsigned n = 0;

    while (d != NULL && (it = readdir(d)) != NULL) {
        n += stamp_of(it->d_name, &stamp);
    }
    if (d != NULL) {
        closedir(d);
    }
    return n;
}

void spare_give(struct local_cache *s, const struct digest *key, uint64_t stamp, const char *job,
                const char *at)
{
    char folder[PATH_MAX];
    char to[PATH_MAX + 64];

    folder_of_spare_key(s, key, folder);
    if (dir_make_unsynced(folder, 0755, NULL) == 0 && count_stamps(folder) < SPARES_MAX) {
        snprintf(to, sizeof to, "%s/%0*" PRIx64 ".%.40s", folder, STAMP_HEX, stamp, job);
        (void)!rename(at, to); /* gone, or another has that name: the caller removes it */
    }
}

/* --- sweeping --------------------------------------------------------------------------------- */

/* Under a name that nobody takes: whoever was faster has it whole, and nothing of it goes from
 * under him. */
static void sweep_one(int folder, const char *path, const char *name)
{
    char gone[NAME_MAX];
    char one[2 * PATH_MAX];
    uint64_t stamp;
    struct err why;

    if (stamp_of(name, &stamp)) {
        snprintf(gone, sizeof gone, "gone.%.200s", name);
        if (renameat(folder, name, folder, gone) == -1) {
            return;
        }
        name = gone;
    }
    snprintf(one, sizeof one, "%s/%s", path, name);
    if (dir_remove_tree(one, &why) != 0) {
        log_warn("local_cache.spare", "path=%s %s", one, why.text);
    }
}

static void sweep_key(const char *path, uint64_t before_unix_s)
{
    DIR *d = opendir(path);
    const struct dirent *it;
    struct stat st;

    while (d != NULL && (it = readdir(d)) != NULL) {
        /* The ctime is that of its last renaming. */
        if (it->d_name[0] != '.' && fstatat(dirfd(d), it->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            (uint64_t)st.st_ctim.tv_sec < before_unix_s) {
            sweep_one(dirfd(d), path, it->d_name);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    (void)!rmdir(path); /* when nothing is left */
}

void spare_sweep(struct local_cache *s, uint64_t before_unix_s)
{
    char path[PATH_MAX];
    char one[2 * PATH_MAX];
    const struct dirent *it;
    DIR *d;

    snprintf(path, sizeof path, "%s/spare", local_cache_dir(s));
    d = opendir(path);
    while (d != NULL && (it = readdir(d)) != NULL) {
        if (it->d_name[0] != '.') {
            snprintf(one, sizeof one, "%s/%s", path, it->d_name);
            sweep_key(one, before_unix_s);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
}
