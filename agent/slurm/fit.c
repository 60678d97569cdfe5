#include "agent/slurm/fit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/preflight/preflight.h"
#include "agent/slurm/staging.h"
#include "common/base/log.h"
#include "common/os/clock.h"

struct answer { /* crosses the pipe whole: it is shorter than PIPE_BUF */
    bool drain;
    char why[FIT_TEXT];
};

/* --- in the process that looks ---------------------------------------------------------------- */

static bool is_room(const struct finding *f)
{
    return strcmp(f->code, "DISK_FREE") == 0 || strcmp(f->code, "DISK_INODES") == 0 ||
           strcmp(f->code, "MEMORY_LOW") == 0;
}

static const struct finding *sickness(const struct preflight_report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->finding[i].level == (uint8_t)LEVEL_CRIT && !is_room(&r->finding[i])) {
            return &r->finding[i];
        }
    }
    return NULL;
}

static void run_slurm_preflight(const struct fit_ask *ask, struct answer *out)
{
    struct agent a;
    struct preflight_params w = {.agent = &a};
    struct preflight_report got = {.worst = LEVEL_SKIP};
    const struct finding *bad;
    struct err why;
    int rc;

    agent_init(&a);
    a.conf_file = ask->conf_file;
    rc = agent_settle(&a, false, &why);
    a.mirror = SLICE_NONE;
    rc = rc != 0 ? rc : preflight_run(&w, &got, &why);
    agent_fini(&a);
    bad = sickness(&got);
    if (rc != 0) {
        log_error("slurm.preflight", "job=%s %s", ask->job, why.text);
    } else if (got.worst == LEVEL_CRIT) {
        log_error("slurm.sick", "job=%s drain=%s %s", ask->job,
                  bad != NULL && got.drain ? "yes" : "no", got.text);
    }
    if (rc == 0 && bad != NULL && got.drain) {
        out->drain = true;
        snprintf(out->why, sizeof out->why, "%.200s", bad->text);
    }
}

/* --- in the prolog ---------------------------------------------------------------------------- */

/* False: no answer, for time is up or it broke. */
static bool wait_for_fit_answer(int fd, uint64_t until_ms, struct answer *out)
{
    for (;;) {
        uint64_t now_ms = clock_now_ms();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n = poll(&p, 1, now_ms < until_ms ? (int)min_u64(until_ms - now_ms, 1000000) : 0);

        if (n > 0) {
            return read(fd, out, sizeof *out) == (ssize_t)sizeof *out;
        }
        if ((n == -1 && errno != EINTR) || (n == 0 && now_ms >= until_ms)) {
            return false;
        }
    }
}

NORETURN static void be_looker(const struct fit_ask *ask, pid_t parent, int to)
{
    struct answer a = {0};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    /* A prolog that is killed takes it along, and it what it started
     * (agent/preflight/preflight.h). */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == -1 || getppid() != parent) {
        _exit(1);
    }
    if (ask->shut != -1) {
        close(ask->shut);
    }
    for (int fd = 0; null != -1 && fd <= STDERR_FILENO;
         fd++) { /* slurmd waits for whoever has them */
        (void)dup2(null, fd);
    }
    run_slurm_preflight(ask, &a);
    (void)!write(to, &a, sizeof a);
    _exit(0);
}

bool fit_must_drain(const struct fit_ask *ask, char why[FIT_TEXT])
{
    struct answer a = {0};
    pid_t parent = getpid();
    int ends[2];
    pid_t pid;
    bool reported;

    if (pipe2(ends, O_CLOEXEC) == -1) {
        log_error("slurm.preflight", "job=%s pipe: %s", ask->job, strerror(errno));
        return false;
    }
    pid = fork();
    if (pid == 0) {
        be_looker(ask, parent, ends[1]);
    }
    close(ends[1]); /* without a child nobody has it, and there is no answer */
    reported = wait_for_fit_answer(ends[0], ask->until_ms, &a);
    close(ends[0]);
    if (!reported) {
        log_error(
            "slurm.preflight",
            "job=%s preflight gave no verdict before the prolog's deadline; the job is admitted; "
            "raise slurm { deadline } if it is too short",
            ask->job);
    }
    if (pid > 0) {
        kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, WNOHANG);
    }
    verdict_tame(a.why);
    memcpy(why, a.why, FIT_TEXT);
    return reported && a.drain;
}
