#include "common/os/descriptor.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

enum { OTHERS = 512 };

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

void descriptor_allow(size_t n)
{
    rlim_t want = (rlim_t)n + OTHERS;
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < want) {
        r.rlim_cur = r.rlim_max < want ? r.rlim_max : want;
        (void)setrlimit(RLIMIT_NOFILE, &r); /* what cannot be opened says so */
    }
}
