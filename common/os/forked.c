#include "common/os/forked.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int forked_start(pid_t *pid, int *fd, struct err *e)
{
    int ends[2];
    int rc = 0;

    if (pipe2(ends, O_CLOEXEC) == -1) {
        return err_sys(e, "pipe");
    }
    fflush(NULL);
    *pid = fork();
    if (*pid == -1) {
        rc = err_sys(e, "fork");
        close(ends[0]);
        close(ends[1]);
        return rc;
    }
    *fd = *pid == 0 ? ends[1] : ends[0];
    close(*pid == 0 ? ends[0] : ends[1]);
    return 0;
}
