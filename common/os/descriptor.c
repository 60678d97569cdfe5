#include "common/os/descriptor.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

/* The kernel gives the lowest number that is free: so many are open, at least. */
int descriptor_within(enum descriptor_share share, int fd)
{
    struct rlimit r;

    if (fd == -1 || getrlimit(RLIMIT_NOFILE, &r) == -1 || r.rlim_cur == RLIM_INFINITY ||
        (rlim_t)fd < r.rlim_cur / 8 * share) {
        return fd;
    }
    close(fd);
    errno = EMFILE;
    return -1;
}
