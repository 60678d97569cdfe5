#include "agent/publish/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/cache/cache.h"

enum { FILES_MAX = 100000 };

static const struct slice checkpoint = {"checkpoint-", 11};

static bool stays_here(struct slice name)
{
    return slice_starts(name, SLICE(".")) || slice_ends(name, SLICE("~")) ||
           slice_ends(name, SLICE(".partial"));
}

/* The step of "checkpoint-<step>"; false for any other name. */
static bool step_of_file_name(const char *name, uint64_t *step)
{
    struct slice s = slice_str(name);

    return slice_starts(s, checkpoint) && slice_u64(slice_from(s, checkpoint.n), step);
}

static int compare_file_names(const void *a, const void *b)
{
    return slice_cmp(((const struct publish_file *)a)->name,
                     ((const struct publish_file *)b)->name);
}

/* Among the first n, which are sorted. */
static bool is_listed_file(const struct publish_files *f, size_t n, struct slice name)
{
    struct publish_file probe = {.name = name};

    return n > 0 && bsearch(&probe, f->at, n, sizeof f->at[0], compare_file_names) != NULL;
}

static int add_publish_file(struct publish_files *f, const char *path, struct slice name,
                            struct err *e)
{
    struct publish_file *x;
    struct stat st;
    int fd;
    int rc;

    if (f->n == FILES_MAX || !local_cache_name_ok(name)) {
        return f->n == FILES_MAX
                   ? err_set(e, E_TOOBIG, "the folder has more than %d files", FILES_MAX)
                   : err_set(e, E_INVALID,
                             "%s: the mirror does not accept this file name; rename the file",
                             path);
    }
    if (f->n == f->room) {
        f->room = f->room != 0 ? 2 * f->room : 64;
        f->at = realloc(f->at, f->room * sizeof f->at[0]);
        CHECK(f->at != NULL);
    }
    x = &f->at[f->n];
    *x = (struct publish_file){.path = arena_cstr(&f->arena, slice_str(path)),
                               .name = arena_copy(&f->arena, name)};
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd == -1 || fstat(fd, &st) == -1) {
        rc = err_sys(e, "%s", path);
    } else {
        x->size_bytes = (uint64_t)st.st_size;
        rc = digest_of_fd(fd, x->size_bytes, &x->digest, e);
    }
    if (fd != -1) {
        close(fd);
    }
    if (rc == 0) {
        f->n++;
        f->bytes += x->size_bytes;
    }
    return rc;
}

/* All plain files below dir. `top_only`: not those in folders, and none that is there already by
 * name. */
static int add_below(struct publish_files *f, const char *dir, bool top_only, struct err *e)
{
    char *const roots[] = {arena_cstr(&f->arena, slice_str(dir)), NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    FTSENT *x;
    size_t before = f->n; /* a folder has no name twice */
    int rc = walk == NULL ? err_sys(e, "%s", dir) : 0;

    if (top_only && before > 0) {
        qsort(f->at, before, sizeof f->at[0], compare_file_names);
    }
    while (rc == 0 && (x = fts_read(walk)) != NULL) {
        struct slice name;

        if (x->fts_level == 0) {
            errno = x->fts_errno;
            rc = x->fts_info == FTS_NS ? err_sys(e, "%s", dir)
                 : x->fts_info == FTS_D || x->fts_info == FTS_DP
                     ? 0
                     : err_set(e, E_NOTFOUND, "%s is not a folder; only folders can be published",
                               dir);
            continue;
        }
        if (x->fts_info == FTS_DNR || x->fts_info == FTS_ERR || x->fts_info == FTS_NS) {
            errno = x->fts_errno;
            rc = err_sys(e, "%s", x->fts_path);
            continue;
        }
        if (stays_here(slice_of(x->fts_name, x->fts_namelen)) ||
            (top_only && x->fts_info == FTS_D)) {
            fts_set(walk, x, FTS_SKIP);
            continue;
        }
        name = slice_str(x->fts_path + strlen(roots[0]));
        while (name.n > 0 && name.p[0] == '/') {
            name = slice_from(name, 1);
        }
        if (x->fts_info == FTS_SL || x->fts_info == FTS_SLNONE) {
            rc =
                err_set(e, E_INVALID,
                        "%s is a symbolic link and cannot be published; replace it with its target",
                        x->fts_path);
        } else if (x->fts_info == FTS_F && !(top_only && is_listed_file(f, before, name))) {
            rc = add_publish_file(f, x->fts_path, name, e);
        }
    }
    if (walk != NULL) {
        fts_close(walk);
    }
    return rc;
}

static const char *newest_checkpoint(struct publish_files *f, const char *dir)
{
    DIR *d = opendir(dir);
    const char *newest = NULL;
    uint64_t best = 0;

    for (struct dirent *it; d != NULL && (it = readdir(d)) != NULL;) {
        struct stat st;
        uint64_t step;
        if (step_of_file_name(it->d_name, &step) && (newest == NULL || step >= best) &&
            fstatat(dirfd(d), it->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
            best = step;
            f->step = (int64_t)step;
            newest = arena_fmt(&f->arena, "%s/%s", dir, it->d_name).p;
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return newest;
}

int publish_files_list(const char *dir, const int64_t *after, struct publish_files *f,
                       struct err *e)
{
    const char *newest;
    int rc;

    *f = (struct publish_files){.step = -1};
    newest = newest_checkpoint(f, dir);
    if (after != NULL && f->step <= *after) {
        return 0;
    }
    if (newest != NULL) {
        rc = add_below(f, newest, false, e);
        rc = rc != 0 ? rc : add_below(f, dir, true, e);
    } else {
        rc = add_below(f, dir, false, e);
    }
    if (rc == 0 && f->n == 0) {
        rc = err_set(e, E_NOTFOUND, "%s: there is no complete checkpoint or file to publish", dir);
    }
    if (rc != 0) {
        publish_files_fini(f);
    }
    return rc;
}

void publish_files_fini(struct publish_files *f)
{
    free(f->at);
    arena_fini(&f->arena);
    *f = (struct publish_files){0};
}
