/* For LD_PRELOAD: a process that was forked forks no more, as at a limit of processes. */
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>

pid_t fork(void)
{
    static int forked;
    pid_t (*real)(void);
    pid_t pid;

    if (forked) {
        errno = EAGAIN;
        return -1;
    }
    *(void **)(void *)&real = dlsym(RTLD_NEXT, "fork");
    pid = real();
    forked = pid == 0;
    return pid;
}
