#include "server/http/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/os/descriptor.h"

struct pages_job {
    struct job job;
    int fd; /* a duplicate: the answer may be over before we are */
    uint64_t off;
    size_t n;
    int rc;
    void (*ready)(void *arg, int rc); /* NULL: cancelled */
    void *arg;
};

ssize_t pages_read(int fd, char *to, size_t n, uint64_t off)
{
    return pages_readv(fd, &(struct iovec){to, n}, 1, off);
}

ssize_t pages_readv(int fd, const struct iovec *to, int count, uint64_t off)
{
    ssize_t got;

    do {
        got = preadv2(fd, to, count, (off_t)off, RWF_NOWAIT);
        if (got == -1 && (errno == EOPNOTSUPP || errno == ENOSYS)) {
            got = preadv(fd, to, count, (off_t)off);
        }
    } while (got == -1 && errno == EINTR);
    if (got > 0) {
        return got;
    }
    return got == -1 && errno == EAGAIN ? E_AGAIN : E_IO;
}

ssize_t pages_present(int fd, uint64_t off, size_t n)
{
    size_t present = 0;

    /* One byte of each step, and no more: a probe of every 128 KiB, the kernel's readahead, costs 5 % of a sendfile. A hole
     * between two probes is one short wait of the loop. */
    while (present < n) {
        char byte;
        ssize_t got = pages_read(fd, &byte, 1, off + present);
        if (got < 0) {
            return present > 0 ? (ssize_t)present : got;
        }
        present += n - present < PAGES_STEP_BYTES ? n - present : PAGES_STEP_BYTES;
    }
    return (ssize_t)n;
}

static void work(struct job *job)
{
    struct pages_job *j = CONTAINER_OF(job, struct pages_job, job);

    /* One request to the disk for all of it, then wait for each piece. */
    posix_fadvise(j->fd, (off_t)j->off, (off_t)j->n, POSIX_FADV_WILLNEED);
    for (size_t at = 0; at < j->n; at += PAGES_STEP_BYTES) {
        char byte;
        if (pread(j->fd, &byte, 1, (off_t)(j->off + at)) != 1) {
            j->rc = at == 0 ? E_IO : 0;
            break;
        }
    }
    close(j->fd);
}

static void done(struct job *job)
{
    struct pages_job *j = CONTAINER_OF(job, struct pages_job, job);

    if (j->ready != NULL) {
        j->ready(j->arg, j->rc);
    }
    free(j);
}

struct pages_job *pages_fetch(struct pool *disk, uint64_t client, struct mailbox *reply, int fd,
                              uint64_t off, size_t n, void (*ready)(void *arg, int rc), void *arg)
{
    int copy = descriptor_within(DESCRIPTORS_OF_FILES, fcntl(fd, F_DUPFD_CLOEXEC, 0));
    struct pages_job *j;

    if (copy == -1) {
        return NULL;
    }
    j = NEW(struct pages_job);
    *j = (struct pages_job){.job = {.work = work, .done = done, .reply = reply},
                            .fd = copy,
                            .off = off,
                            .n = n,
                            .ready = ready,
                            .arg = arg};
    pool_submit(disk, &j->job, client);
    return j;
}

void pages_cancel(struct pages_job **jp)
{
    if (*jp != NULL) {
        (*jp)->ready = NULL;
        *jp = NULL;
    }
}
