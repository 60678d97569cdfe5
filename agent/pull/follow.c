#include "agent/pull/follow.h"

#include <stdlib.h>

#include "common/os/newfile.h"

enum { STEP_BYTES = 1 << 20 };

struct follow {
    struct job job;
    struct pool *pool;
    struct hasher *hasher;
    int fd;
    uint64_t end;     /* known to be there */
    uint64_t job_end; /* what the job under way reads up to */
    uint64_t at;      /* the loop's view of how far it is */
    bool busy;
    int rc;
    struct err why;
    void (*moved)(void *arg, int rc, const struct err *why);
    void *arg;
};

static void read_on(struct job *j)
{
    struct follow *f = CONTAINER_OF(j, struct follow, job);
    char *p = mem_new(STEP_BYTES);
    uint64_t at = hasher_count(f->hasher);

    while (f->rc == 0 && at < f->job_end) {
        size_t n = (size_t)min_u64(STEP_BYTES, f->job_end - at);
        f->rc = fd_pread_all(f->fd, p, n, at, &f->why);
        if (f->rc == 0) {
            hasher_add(f->hasher, p, n);
            at += n;
        }
    }
    free(p);
}

static void submit(struct follow *f)
{
    if (!f->busy && f->rc == 0 && f->end > f->at) {
        f->busy = true;
        f->job_end = f->end;
        pool_submit(f->pool, &f->job, CLIENT_PROGRAM);
    }
}

static void on_read(struct job *j)
{
    struct follow *f = CONTAINER_OF(j, struct follow, job);
    struct err why = f->why;
    int rc = f->rc;

    f->busy = false;
    f->at = hasher_count(f->hasher);
    submit(f); /* from here on the fields are the next job's, if there is one */
    f->moved(f->arg, rc, &why);
}

struct follow *follow_new(struct pool *pool, struct mailbox *reply, int fd,
                          void (*moved)(void *arg, int rc, const struct err *why), void *arg)
{
    struct follow *f = NEW(struct follow);

    f->job = (struct job){.work = read_on, .done = on_read, .reply = reply};
    f->pool = pool;
    f->hasher = hasher_new_whole();
    f->fd = fd;
    f->moved = moved;
    f->arg = arg;
    return f;
}

void follow_to(struct follow *f, uint64_t end)
{
    f->end = max_u64(f->end, end);
    submit(f);
}

bool follow_busy(const struct follow *f)
{
    return f->busy;
}

uint64_t follow_at(const struct follow *f)
{
    return f->at;
}

void follow_final(struct follow *f, struct digest *out)
{
    CHECK(!f->busy);
    hasher_final(f->hasher, out);
}

void follow_free(struct follow **fp)
{
    struct follow *f = *fp;

    if (f != NULL) {
        CHECK(!f->busy);
        *fp = NULL;
        hasher_free(&f->hasher);
        free(f);
    }
}
