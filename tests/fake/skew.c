/* For LD_PRELOAD: the wall clock is wrong by the seconds in the file $SKEW (8 bytes in the order of
 * the machine), which may change at any time. The package faketime does the same, but it does not
 * work in programs with jemalloc. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *skew;

__attribute__((constructor)) static void map_skew(void)
{
    const char *path = getenv("SKEW");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = fd != -1 ? mmap(NULL, sizeof *skew, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

    skew = at != MAP_FAILED ? at : NULL;
    if (fd != -1) {
        close(fd);
    }
}

int clock_gettime(clockid_t id, struct timespec *out)
{
    int rc = (int)syscall(SYS_clock_gettime, id, out);

    if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) && skew != NULL) {
        out->tv_sec += *skew;
    }
    return rc;
}

time_t time(time_t *out)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) {
        *out = now.tv_sec;
    }
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
