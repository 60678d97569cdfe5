#include "agent/publish/memo.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum { LOCATION_MAX = 8 << 10, STALE_S = 2 * 24 * 3600 }; /* mirrors drop uploads after a day */

struct memo {
    int fd;
    char path[PATH_MAX];
    struct buf location;
};

static void name_of(struct slice to, const struct publish_files *files, char hex[DIGEST_HEX + 1])
{
    struct buf all = BUF_INIT(SIZE_MAX);
    struct digest d;

    buf_adds(&all, to);
    for (size_t i = 0; i < files->n; i++) {
        digest_format(&files->at[i].digest, hex);
        buf_byte(&all, '\0');
        buf_adds(&all, files->at[i].name);
        buf_byte(&all, '\0');
        buf_str(&all, hex);
    }
    digest_of(buf_slice(&all), &d);
    digest_format(&d, hex);
    buf_free(&all);
}

static void sweep(const char *dir)
{
    DIR *d = opendir(dir);
    const struct dirent *entry;
    struct stat st;

    while (d != NULL && (entry = readdir(d)) != NULL) {
        if (fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && st.st_mtime + STALE_S < (time_t)clock_unix_s()) {
            unlinkat(dirfd(d), entry->d_name, 0);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
}

/* One line, its end included: what was torn has none. */
static void read_location(struct memo *m)
{
    char text[LOCATION_MAX];
    ssize_t n = pread(m->fd, text, sizeof text, 0);

    if (n > 1 && text[n - 1] == '\n' && memchr(text, '\0', (size_t)n) == NULL) {
        buf_add(&m->location, text, (size_t)n - 1);
    }
}

struct memo *memo_open(const char *state_dir, struct slice to, const struct publish_files *files)
{
    struct memo *m = NEW(struct memo);
    char hex[DIGEST_HEX + 1];
    char dir[PATH_MAX];
    struct err why;

    m->fd = -1;
    m->location = (struct buf)BUF_INIT(LOCATION_MAX);
    name_of(to, files, hex);
    snprintf(dir, sizeof dir, "%.3900s/uploads", state_dir);
    snprintf(m->path, sizeof m->path, "%.3950s/%s", dir, hex);
    if (dir_make(dir, 0700, &why) != 0) {
        log_debug("publish.memo", "%s", why.text);
        memo_close(&m);
        return NULL;
    }
    sweep(dir);
    m->fd = open(m->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (m->fd == -1 || flock(m->fd, LOCK_EX | LOCK_NB) == -1) {
        memo_close(&m);
        return NULL;
    }
    read_location(m);
    return m;
}

struct slice memo_location(const struct memo *m)
{
    return m != NULL ? buf_slice(&m->location) : SLICE_NONE;
}

void memo_keep(struct memo *m, struct slice location)
{
    struct err why;

    if (m == NULL) {
        return;
    }
    buf_clear(&m->location);
    buf_adds(&m->location, location);
    buf_byte(&m->location, '\n');
    if (m->location.n > LOCATION_MAX || ftruncate(m->fd, 0) == -1 ||
        fd_pwrite_all(m->fd, m->location.p, m->location.n, 0, &why) != 0) {
        memo_forget(m);
    }
}

void memo_forget(struct memo *m)
{
    if (m != NULL) {
        unlink(m->path);
        buf_clear(&m->location);
    }
}

void memo_close(struct memo **mp)
{
    struct memo *m = *mp;

    if (m != NULL) {
        *mp = NULL;
        if (m->fd != -1) {
            close(m->fd);
        }
        buf_free(&m->location);
        free(m);
    }
}
