#include "agent/slurm/ticket.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/shelf/pins.h"
#include "common/os/newfile.h"

static int path_of(const char *dir, const char *job, char out[PATH_MAX], struct err *e)
{
    if (!pins_job_ok(job)) {
        return err_set(e, E_INVALID, "SLURM_JOB_ID is no number");
    }
    snprintf(out, PATH_MAX, "%.4000s/%s", dir, job);
    return 0;
}

/* Until it is locked. */
static void new_path(const char *dir, const char *job, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%.4000s/.%s.new", dir, job);
}

static int make(const char *temp, const char *path, const char *job, int *out, struct err *e)
{
    char text[64];
    int n = snprintf(text, sizeof text, "{\"job\":\"%s\",\"state\":\"staging\"}\n", job);
    int fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = fd == -1 ? err_sys(e, "%s", temp) : 0;

    /* Before others may read it nobody else can hold it. */
    if (rc == 0 && (flock(fd, LOCK_EX | LOCK_NB) == -1 || fchmod(fd, 0644) == -1)) {
        rc = err_sys(e, "%s: lock", temp);
    }
    rc = rc != 0 ? rc : fd_write_all(fd, text, (size_t)n, e);
    if (rc == 0 && rename(temp, path) == -1) {
        rc = err_sys(e, "%s", path);
    }
    if (rc != 0 && fd != -1) {
        unlink(temp);
        close(fd);
        fd = -1;
    }
    *out = fd;
    return rc;
}

int ticket_new(const char *dir, const char *job, int *fd, struct err *e)
{
    char path[PATH_MAX];
    char temp[PATH_MAX];
    int rc = path_of(dir, job, path, e);

    *fd = -1;
    rc = rc != 0 ? rc : dir_make(dir, 0755, e);
    if (rc == 0) {
        new_path(dir, job, temp);
        unlink(temp);
        rc = make(temp, path, job, fd, e);
    }
    return rc;
}

int ticket_say(int fd, struct slice text, struct err *e)
{
    int rc = fd_pwrite_all(fd, text.p, text.n, 0, e);

    if (rc == 0 && ftruncate(fd, (off_t)text.n) == -1) {
        rc = err_sys(e, "a job's ticket");
    }
    return rc;
}

bool ticket_gone(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_nlink == 0;
}

void ticket_remove(const char *dir, const char *job)
{
    char path[PATH_MAX];

    if (path_of(dir, job, path, NULL) == 0) {
        unlink(path);
        new_path(dir, job, path);
        unlink(path);
    }
}

bool ticket_exists(const char *dir, const char *job)
{
    char path[PATH_MAX];

    return path_of(dir, job, path, NULL) == 0 && access(path, F_OK) == 0;
}

int ticket_look(const char *dir, const char *job, bool *held, struct buf *text, struct err *e)
{
    char path[PATH_MAX];
    int rc = path_of(dir, job, path, e);
    int fd;

    *held = false;
    if (rc != 0) {
        return rc;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd == -1) {
        return err_sys(e, "%s", path);
    }
    if (flock(fd, LOCK_SH | LOCK_NB) == -1) {
        *held = errno == EWOULDBLOCK;
        rc = *held ? 0 : err_sys(e, "%s: lock", path);
    }
    buf_clear(text);
    rc = rc != 0 ? rc : buf_read_file(text, path, e);
    close(fd);
    return rc;
}
