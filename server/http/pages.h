/* pages.h - is this part of a file in memory? If not, a pool thread brings it in: loops never wait for a disk.
 *
 * A file system that cannot tell (no RWF_NOWAIT) counts as memory.
 */
#ifndef SERVER_HTTP_PAGES_H
#define SERVER_HTTP_PAGES_H

#include <sys/types.h>
#include <sys/uio.h>

#include "common/os/pool.h"

enum { PAGES_STEP_BYTES = 256 * 1024, PAGES_AHEAD_BYTES = 4 * 1024 * 1024 };

/* How many of the n bytes at off are in memory, from the first on. E_AGAIN: none; E_IO: the file ends before off. */
ssize_t pages_present(int fd, uint64_t off, size_t n);
/* As pread(), of what is in memory: > 0, E_AGAIN, or E_IO (also at the file's end). */
ssize_t pages_read(int fd, char *to, size_t n, uint64_t off);
ssize_t pages_readv(int fd, const struct iovec *to, int count,
                    uint64_t off); /* into several pieces */

struct pages_job;
/* Reads ahead on the pool; then arg's ready(arg, rc) on the loop behind `reply`, unless it was cancelled. */
struct pages_job *pages_fetch(struct pool *disk, uint64_t client, struct mailbox *reply, int fd,
                              uint64_t off, size_t n, void (*ready)(void *arg, int rc), void *arg);
void pages_cancel(struct pages_job **jp);

#endif
