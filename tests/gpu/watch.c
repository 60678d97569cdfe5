#include "tests/gpu/watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/check.h"

enum { ARGUMENTS_MAX = 24, END_MS = 5000, TICK_MS = 10 };

struct word {
    int row;
    enum range_answer verdict;
};

void watch_say(int fd, int row, enum range_answer v)
{
    const struct word w = {row, v};

    if (fd >= 0 && write(fd, &w, sizeof w) != (ssize_t)sizeof w) {
        exit(1);
    }
}

/* --- one child -------------------------------------------------------------------------------- */

struct child {
    pid_t pid;
    int fd;
    int row; /* that it is at, or will be at */
    bool begun;
};

static bool start(const struct watch *w, int from, struct child *c)
{
    char row[16], report[16], from_flag[] = "--from", report_flag[] = "--report";
    char *const more[] = {from_flag, row, report_flag, report, NULL};
    char *args[ARGUMENTS_MAX + ARRAY_LEN(more)];
    int n = 0, pair[2];

    if (pipe(pair) != 0) {
        return false;
    }
    snprintf(row, sizeof row, "%d", from);
    snprintf(report, sizeof report, "%d", pair[1]);
    for (; n < ARGUMENTS_MAX && w->argv[n] != NULL; n++) {
        args[n] = w->argv[n];
    }
    memcpy(args + n, more, sizeof more);
    fflush(stdout);
    *c = (struct child){.pid = fork(), .fd = pair[0], .row = from};
    if (c->pid == 0) {
        close(pair[0]);
        execv("/proc/self/exe", args);
        _exit(127);
    }
    close(pair[1]);
    return c->pid > 0;
}

/* Its status, or false: it neither ends nor can be ended (a call into a driver that is stuck). */
static bool reap(pid_t pid, int *status)
{
    const struct timespec tick = {.tv_nsec = TICK_MS * 1000000};

    for (int waited = 0; waited < END_MS; waited += TICK_MS) {
        if (waitpid(pid, status, WNOHANG) == pid) {
            return true;
        }
        nanosleep(&tick, NULL);
    }
    return false;
}

static void how_it_ended(int status, char *to, size_t room)
{
    if (WIFSIGNALED(status)) {
        snprintf(to, room, "its process ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else {
        snprintf(to, room, "its process ended with status %d", WEXITSTATUS(status));
    }
}

/* One word of the child's: 1, or 0 when it is gone, -1 when it says nothing in time. */
static int listen_to(const struct watch *w, const struct child *c, struct word *out)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    int ready;
    ssize_t n;

    do {
        ready = poll(&p, 1, 1000 * w->limit_s);
    } while (ready == -1 && errno == EINTR);
    if (ready == 0) {
        return -1;
    }
    do {
        n = read(c->fd, out, sizeof *out);
    } while (n == -1 && errno == EINTR);
    return n == (ssize_t)sizeof *out ? 1 : 0;
}

/* --- all of them ------------------------------------------------------------------------------ */

/* What all children together have come to. */
struct tally {
    int next;           /* the first row without a verdict */
    int failed, silent; /* silent: children in a row that began nothing */
    bool over, incomplete, nothing;
};

static void hear(struct tally *t, struct child *c, const struct word *said)
{
    switch (said->verdict) {
    case BEGUN:
        c->row = said->row;
        c->begun = true;
        t->silent = 0;
        break;
    case FAILS:
        t->failed++;
        t->next = said->row + 1;
        c->begun = false;
        break;
    case HOLDS:
        t->next = said->row + 1;
        c->begun = false;
        break;
    case NOTHING_HERE:
        t->over = t->nothing = true;
        break;
    case CANNOT_START:
        t->over = t->incomplete = true;
        break;
    }
}

/* Rows until the child is gone. One that ends behind a row is ordinary: it has found its device
 * broken. */
static void follow(const struct watch *w, struct child *c, struct tally *t)
{
    char why[160] = "";
    struct word said;
    int heard, status = 0;

    while ((heard = listen_to(w, c, &said)) == 1) {
        hear(t, c, &said);
    }
    if (heard == -1) {
        snprintf(why, sizeof why, "no answer within %d s", w->limit_s);
        kill(c->pid, SIGKILL);
    }
    close(c->fd);
    if (!reap(c->pid, &status)) {
        snprintf(why, sizeof why, "no answer, and its process cannot be ended: the device hangs");
        t->over = t->incomplete = true;
    } else if (heard == 0) {
        how_it_ended(status, why, sizeof why);
    }
    if (c->begun || (t->next < w->rows && t->next == c->row && !t->over) || heard == -1) {
        t->silent += !c->begun;
        w->lost(w->arg, t->next, why);
        t->failed++;
        t->next++;
    }
    if (t->silent > 1) {
        t->over = t->incomplete = true;
    }
}

int watch_run(const struct watch *w)
{
    struct tally t = {0};

    while (!t.over && t.next < w->rows) {
        struct child c;

        if (!start(w, t.next, &c)) {
            perror("gpu-check: a process of its own");
            return WATCH_INCOMPLETE;
        }
        follow(w, &c, &t);
    }
    return t.incomplete ? WATCH_INCOMPLETE : t.nothing ? WATCH_NOTHING : t.failed;
}
