#include "common/os/log_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"

enum {
    GATHER_MS = 50,      /* a line waits this long for others */
    LOOK_MS = 100,       /* between two looks whether the other end reads, or the end has come */
    END_MS = 2000,       /* for what is left at the end */
    COMPLAIN_MS = 60000, /* between two words about a file that does not take lines */
};

/* Lines go into `filling`; the writer swaps it for its own empty one and writes without the
 * lock. */
struct log_writer {
    char *path; /* NULL: stderr */
    int fd;
    mode_t kind; /* of fd: S_IFREG, S_IFSOCK (the journal's, under systemd), S_IFIFO ... */
    size_t room_bytes;
    pthread_t writer;
    struct lock lock; /* over what follows, but for `writing` while its owner writes */
    struct cond more;
    struct buf filling, writing;
    bool urgent, reopen;
    bool torn; /* the file ends in the middle of a line; the writer's own */
    _Atomic bool stop, busy;
    _Atomic uint64_t dropped;
    uint64_t stopped_ms; /* set before `stop` */
    uint64_t complained_ms;
};

/* --- whoever has a line --- */

static uint64_t lines_in(struct slice s)
{
    uint64_t n = 0;

    for (size_t i = 0; i < s.n; i++) {
        n += s.p[i] == '\n';
    }
    return n;
}

bool log_writer_add(struct log_writer *s, struct slice lines, bool now)
{
    bool wake, taken;

    lock_take(&s->lock);
    wake = s->filling.n == 0 || (now && !s->urgent);
    taken = s->filling.n + lines.n <= s->room_bytes;
    if (taken) {
        wake = wake ||
               (s->filling.n < s->room_bytes / 2 && s->filling.n + lines.n >= s->room_bytes / 2);
        s->urgent = s->urgent || now;
        buf_adds(&s->filling, lines);
    }
    lock_drop(&s->lock);
    if (!taken) {
        atomic_fetch_add(&s->dropped, lines_in(lines));
    } else if (wake) {
        cond_signal(&s->more);
    }
    return taken;
}

void log_writer_reopen(struct log_writer *s)
{
    lock_take(&s->lock);
    s->reopen = true;
    lock_drop(&s->lock);
    cond_signal(&s->more);
}

uint64_t log_writer_dropped(const struct log_writer *s)
{
    return atomic_load(&s->dropped);
}

void log_writer_settle(struct log_writer *s, uint64_t at_most_ms)
{
    uint64_t until_ms = clock_now_ms() + at_most_ms;
    bool written = false;

    while (!written && clock_now_ms() < until_ms) {
        /* Not lock_take(): the caller may hold this very lock, and then only the time runs out. */
        if (pthread_mutex_trylock(&s->lock.mutex) == 0) {
            written = s->filling.n == 0 && !atomic_load(&s->busy);
            s->urgent = true;
            pthread_mutex_unlock(&s->lock.mutex);
            (void)pthread_cond_signal(&s->more.cond);
        }
        if (!written) {
            usleep(1000);
        }
    }
}

/* --- the writer --- */

static int open_log_file(const char *path, struct err *e)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);

    return fd >= 0 ? fd : err_sys(e, "%s", path);
}

static mode_t kind_of(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 ? st.st_mode & S_IFMT : 0;
}

/* Also what died, or had no room, before us may have left half a line. */
static bool ends_torn(const char *path)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    char last = '\n';

    if (fd != -1) {
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
            (void)!pread(fd, &last, 1, st.st_size - 1);
        }
        close(fd);
    }
    return last != '\n';
}

static void complain(struct log_writer *s, const char *what)
{
    uint64_t now_ms = clock_now_ms();

    if (s->path != NULL && (s->complained_ms == 0 || now_ms - s->complained_ms > COMPLAIN_MS)) {
        s->complained_ms = now_ms;
        log_error("log.trouble", "%s: log lines are lost until this is fixed", what);
    }
}

/* False: nobody reads the other end, and the end has come. */
static bool log_writer_has_room(struct log_writer *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};

    while (poll(&p, 1, LOOK_MS) == 0) {
        if (atomic_load(&s->stop) && clock_now_ms() - s->stopped_ms > END_MS) {
            return false;
        }
    }
    return true;
}

/* What can be written without waiting for a reader: all of it to a file, what a socket takes,
 * PIPE_BUF bytes to a pipe that says that it has room. stderr is not set to O_NONBLOCK: others have
 * it too. 0: nobody reads. */
static ssize_t write_some(struct log_writer *s, struct slice left)
{
    if (s->path != NULL || S_ISREG(s->kind)) {
        return write(s->fd, left.p, left.n);
    }
    if (!log_writer_has_room(s)) {
        return 0;
    }
    if (S_ISSOCK(s->kind)) {
        return send(s->fd, left.p, left.n, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    return write(s->fd, left.p, left.n < PIPE_BUF ? left.n : PIPE_BUF);
}

static int write_all(struct log_writer *s, struct slice *left, struct err *e)
{
    while (left->n > 0) {
        ssize_t n = write_some(s, *left);
        if (n > 0) {
            *left = slice_from(*left, (size_t)n);
        } else if (n == 0) {
            return err_set(e, E_TIMEOUT, "the log cannot be written: its reader is too slow");
        } else if (errno != EINTR && errno != EAGAIN) {
            return err_sys(e, "%s", s->path != NULL ? s->path : "stderr");
        }
    }
    return 0;
}

/* What was torn off in a line, by a full disk perhaps, is ended first: nobody would find the next
 * line at its end. */
static int write_log_lines(struct log_writer *s, struct slice *left, struct err *e)
{
    struct slice end = SLICE("\n");
    const char *from = left->p;
    int rc = s->torn && left->n > 0 ? write_all(s, &end, e) : 0;

    if (rc == 0) {
        s->torn = false;
        rc = write_all(s, left, e);
    }
    if (left->p > from) {
        s->torn = left->p[-1] != '\n';
    }
    return rc;
}

static void reopen_now(struct log_writer *s)
{
    struct err e = {0};
    int fd;

    if (s->path == NULL) {
        return;
    }
    fd = open_log_file(s->path, &e);
    if (fd < 0) {
        complain(s, e.text); /* and go on in the old one */
        return;
    }
    close(s->fd);
    s->fd = fd;
    s->torn = ends_torn(s->path);
}

/* Takes what there is; true: and opens the file anew. */
static bool take_lines(struct log_writer *s, bool *stop)
{
    struct buf full;
    bool reopen;

    lock_take(&s->lock);
    while (s->filling.n == 0 && !s->reopen && !s->stop) {
        atomic_store(&s->busy, false);
        cond_wait(&s->more, &s->lock);
    }
    while (!s->urgent && !s->reopen && !s->stop && s->filling.n < s->room_bytes / 2 &&
           cond_wait_ms(&s->more, &s->lock, GATHER_MS)) {
    }
    full = s->filling;
    s->filling = s->writing;
    s->writing = full;
    reopen = s->reopen;
    s->urgent = s->reopen = false;
    *stop = s->stop;
    atomic_store(&s->busy, true);
    lock_drop(&s->lock);
    return reopen;
}

static void *run_log_writer(void *arg)
{
    struct log_writer *s = arg;
    struct err e = {0};
    bool stop = false;

    while (!stop) {
        bool reopen = take_lines(s, &stop);
        struct slice left = buf_slice(&s->writing);
        if (write_log_lines(s, &left, &e) != 0) {
            atomic_fetch_add(&s->dropped, lines_in(left));
            complain(s, e.text);
        }
        buf_clear(&s->writing);
        if (reopen) {
            reopen_now(s);
        }
    }
    return NULL;
}

/* --- open and close --- */

int log_writer_try(const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/');
    int fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC);
    char *folder;
    int rc;

    if (fd != -1) {
        close(fd);
        return 0;
    }
    if (errno != ENOENT) {
        return err_sys(e, "%s", path);
    }
    folder = slash != NULL ? strndup(path, (size_t)(slash - path) + 1) : mem_strdup(".");
    CHECK(folder != NULL);
    rc = access(folder, W_OK | X_OK) == -1 ? err_sys(e, "%s", path) : 0;
    free(folder);
    return rc;
}

int log_writer_open(const char *name, const char *path, size_t room_bytes, struct log_writer **out,
                    struct err *e)
{
    struct log_writer *s;
    int fd = path != NULL ? open_log_file(path, e) : STDERR_FILENO;

    *out = NULL;
    if (fd < 0) {
        return fd;
    }
    s = NEW(struct log_writer);
    s->fd = fd;
    s->kind = kind_of(fd);
    s->path = path != NULL ? mem_strdup(path) : NULL;
    s->torn = path != NULL && ends_torn(path);
    s->room_bytes = room_bytes;
    s->filling = s->writing = BUF_INIT(room_bytes);
    lock_init(&s->lock, LOCK_LOG_WRITER);
    cond_init(&s->more);
    s->writer = thread_start(name, run_log_writer, s);
    *out = s;
    return 0;
}

void log_writer_close(struct log_writer **sp)
{
    struct log_writer *s = *sp;

    *sp = NULL;
    if (s == NULL) {
        return;
    }
    lock_take(&s->lock);
    s->stopped_ms = clock_now_ms();
    atomic_store(&s->stop, true);
    lock_drop(&s->lock);
    cond_signal(&s->more);
    pthread_join(s->writer, NULL);
    if (s->path != NULL) {
        close(s->fd);
    }
    cond_fini(&s->more);
    lock_fini(&s->lock);
    buf_free(&s->filling);
    buf_free(&s->writing);
    free(s->path);
    free(s);
}
