#include "agent/slurm/detach.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/os/clock.h"

static const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};

static void end_well(int signo)
{
    (void)signo;
    _exit(0);
}

static void set_fatal(void (*to)(int))
{
    const struct sigaction act = {.sa_handler = to};

    for (size_t i = 0; i < ARRAY_LEN(fatal); i++) {
        (void)!sigaction(fatal[i], &act, NULL);
    }
}

void detach_bell(uint64_t after_ms)
{
    const struct itimerval bell = {.it_value = clock_timeval(after_ms + DETACH_SLACK_MS)};

    (void)!setitimer(ITIMER_REAL, &bell, NULL); /* of the monotonic clock, as Linux has it */
}

void detach_begin(void)
{
    set_fatal(end_well);
    (void)!close_range(STDERR_FILENO + 1, ~0U, 0);
    umask(022);
}

static bool shut_files(void)
{
    int null = open("/dev/null", O_RDWR);

    if (null == -1) {
        return false;
    }
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (dup2(null, fd) == -1) {
            return false;
        }
    }
    if (null > STDERR_FILENO) {
        close(null);
    }
    return true;
}

/* The child: a session leader that is gone at once, so that the worker can never get a terminal,
 * nor be anybody's child. */
NORETURN static void between(void (*work)(void *arg), void *arg, int reported)
{
    set_fatal(SIG_DFL);
    if (setsid() == -1 || !shut_files() || chdir("/") == -1 || write(reported, "", 1) != 1) {
        _exit(1);
    }
    if (fork() == 0) {
        work(arg);
    }
    _exit(0);
}

/* The other end says a byte when slurmd cannot reach it any more, and is closed when all is
 * done. */
static enum detach_end watch_detached_child(int fd, uint64_t until_ms)
{
    bool away = false;

    for (;;) {
        uint64_t now_ms = clock_now_ms();
        uint64_t end_ms = away ? until_ms : until_ms + DETACH_SLACK_MS;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char byte;
        int n;

        if (now_ms >= end_ms) {
            return DETACH_GOES_ON;
        }
        n = poll(&p, 1, (int)min_u64(end_ms - now_ms, 1000000));
        if (n > 0) {
            if (read(fd, &byte, 1) != 1) {
                return DETACH_ENDED;
            }
            away = true;
        } else if (n == -1 && errno != EINTR) {
            return DETACH_GOES_ON;
        }
    }
}

int detach(void (*work)(void *arg), void *arg, int fd, uint64_t until_ms, enum detach_end *out,
           struct err *e)
{
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) == -1) {
        return err_sys(e, "pipe");
    }
    pid = fork();
    if (pid == -1) {
        int rc = err_sys(e, "fork");
        close(ends[0]);
        close(ends[1]);
        return rc;
    }
    if (pid == 0) {
        close(ends[0]);
        between(work, arg, ends[1]); /* ends[1] and fd stay open in it */
    }
    close(ends[1]);
    if (fd != -1) {
        close(fd);
    }
    *out = watch_detached_child(ends[0], until_ms);
    close(ends[0]);
    (void)waitpid(pid, NULL, WNOHANG);
    return 0;
}
