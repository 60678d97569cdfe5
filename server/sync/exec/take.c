/* take.c - the bytes of one file, read from the working tree piece by piece on the disk pool. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/sync/exec/exec_engine.h"
#include "server/sync/exec/walk.h"

enum { PIECE_BYTES = 256 << 10 };

struct take {
    struct list node;
    struct exec_engine *g;
    struct take_events ev;
    void *arg;
    struct job job;
    bool working; /* the job is under way */
    bool telling; /* inside an event */
    bool cancelled, begun;
    bool resumed; /* while it was telling */
    int fd;
    uint64_t size, at;
    int rc;
    struct err why;
    size_t n; /* of piece */
    char *piece;
    char path[];
};

static void take_free(struct take *t)
{
    list_remove_if(&t->node);
    if (t->fd != -1) {
        close(t->fd);
    }
    free(t->piece);
    free(t);
}

/* --- on the pool --- */

static int open_file(struct take *t)
{
    struct stat st;

    /* O_NONBLOCK: should it be a pipe by now, nobody waits for its writer. */
    t->fd = walk_open(t->g->top, t->path, O_RDONLY | O_NONBLOCK);
    if (t->fd == -1) {
        return err_sys(&t->why, "the working tree's file");
    }
    if (fstat(t->fd, &st) == -1) {
        return err_sys(&t->why, "the working tree's file");
    }
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != t->size) {
        return err_set(&t->why, E_CHANGED, "somebody else changes the working tree");
    }
    return 0;
}

static int read_piece(struct take *t)
{
    size_t want = (size_t)min_u64(PIECE_BYTES, t->size - t->at);

    t->n = 0;
    while (t->n < want) {
        ssize_t n = pread(t->fd, t->piece + t->n, want - t->n, (off_t)(t->at + t->n));
        if (n == -1 && errno != EINTR) {
            return err_sys(&t->why, "the working tree's file");
        }
        if (n == 0) {
            return err_set(&t->why, E_CHANGED, "somebody else changes the working tree");
        }
        t->n += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static void work(struct job *j)
{
    struct take *t = CONTAINER_OF(j, struct take, job);

    if (atomic_load(&t->g->close)) {
        return;
    }
    t->rc = t->fd == -1 ? open_file(t) : 0;
    if (t->rc == 0) {
        t->rc = read_piece(t);
    }
}

/* --- on the run's thread --- */

static void submit(struct take *t)
{
    t->working = true;
    t->g->jobs++;
    pool_submit(t->g->site->disk, &t->job, t->g->site->client);
}

static void end(struct take *t, int rc)
{
    struct take_got got = {.mtime_ns = SYNC_TIME_UNKNOWN};

    t->ev.on_done(t->arg, rc, &t->why, rc == 0 ? &got : NULL);
    take_free(t);
}

static int tell(struct take *t)
{
    int rc = 0;

    t->telling = true;
    t->resumed = false;
    if (!t->begun) {
        t->begun = true;
        rc = t->ev.on_begin(t->arg, 0, SLICE_NONE);
    }
    if (rc == 0 && t->n != 0 && !t->cancelled) {
        t->at += t->n;
        rc = t->ev.on_body(t->arg, slice_of(t->piece, t->n));
    }
    t->telling = false;
    return rc == TAKE_PAUSE && t->resumed ? 0 : rc;
}

static void go_on(struct take *t)
{
    if (t->at == t->size) {
        end(t, 0);
    } else {
        submit(t);
    }
}

static void done(struct job *j)
{
    struct take *t = CONTAINER_OF(j, struct take, job);
    int rc;

    t->working = false;
    t->g->jobs--;
    if (t->cancelled) {
        take_free(t);
        return;
    }
    rc = t->rc == 0 ? tell(t) : t->rc;
    if (t->cancelled) {
        take_free(t);
    } else if (rc == 0) {
        go_on(t);
    } else if (rc != TAKE_PAUSE) {
        if (t->why.code == 0) {
            err_set(&t->why, rc, "given up here");
        }
        end(t, rc);
    }
}

/* --- doors --- */

struct take *exec_take(struct engine *eg, const struct take_want *w, const struct take_events *ev,
                       void *arg)
{
    struct exec_engine *g = (struct exec_engine *)eg;
    size_t n = w->entry->path.n;
    struct take *t = mem_new(sizeof *t + n + 1);

    t->g = g;
    t->ev = *ev;
    t->arg = arg;
    t->fd = -1;
    t->size = w->entry->size_bytes;
    t->piece = mem_new(PIECE_BYTES);
    memcpy(t->path, w->entry->path.p, n);
    t->job = (struct job){.work = work, .done = done, .reply = g->site->box};
    list_push_back(&g->takes, &t->node);
    submit(t);
    return t;
}

void exec_resume(struct take *t)
{
    t->resumed = t->telling;
    if (!t->working && !t->telling) {
        go_on(t);
    }
}

void exec_cancel(struct take **tp)
{
    struct take *t = *tp;

    *tp = NULL;
    if (t == NULL) {
        return;
    }
    t->cancelled = true;
    if (!t->working && !t->telling) {
        take_free(t);
    }
}

void exec_takes_cancel(struct exec_engine *g)
{
    LIST_EACH (&g->takes, it) {
        struct take *t = LIST_ITEM(it, struct take, node);
        exec_cancel(&t);
    }
}
