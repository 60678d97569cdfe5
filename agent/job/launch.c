#include "agent/job/launch.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/job/restart.h"
#include "common/base/log.h"
#include "common/base/slice.h"
#include "common/os/clock.h"
#include "common/os/forked.h"

enum { GRACE_MS = 25000, BACKOFF_MS = 1000, CANNOT_START = 127 };

struct rank {
    pid_t pid; /* 0: gone */
};

struct attempt {
    const struct launch_want *want;
    struct rank *rank;
    unsigned nranks;
    unsigned alive;
    int exit_code;
    bool failed; /* a rank did: the others are being ended */
    bool by_signal;
    uint64_t kill_at_ms; /* UINT64_MAX: nobody is */
};

static const int passed_on[] = {SIGHUP, SIGUSR1, SIGUSR2};

/* --- how many, and where they meet --------------------------------------------------------------------------------------- */

static unsigned visible_gpus(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    unsigned n = 0;
    DIR *d;

    if (visible != NULL) {
        for (struct slice rest = slice_str(visible); rest.n > 0; n++) {
            struct slice one = slice_cut(&rest, ',');
            if (slice_eq(one, SLICE("-1"))) {
                break;
            }
        }
        return n;
    }
    d = opendir("/proc/driver/nvidia/gpus");
    if (d != NULL) {
        for (struct dirent *it; (it = readdir(d)) != NULL;) {
            n += it->d_name[0] != '.';
        }
        closedir(d);
    }
    return n;
}

/* A port that was free a moment ago. */
static unsigned free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unsigned port = 29400;

    if (fd != -1 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
        getsockname(fd, (struct sockaddr *)&a, &n) == 0) {
        port = ntohs(a.sin_port);
    }
    if (fd != -1) {
        close(fd);
    }
    return port;
}

static void put_number(const char *name, unsigned value)
{
    char text[16];

    snprintf(text, sizeof text, "%u", value);
    setenv(name, text, 1);
}

/* What mpirun told the agent is not for its ranks: an MPI program would take itself for the agent's MPI rank. */
static void drop_openmpi(void)
{
    bool again = true;

    while (again) {
        again = false;
        for (char **it = environ; *it != NULL && !again; it++) {
            struct slice name = slice_str(*it);
            if (slice_starts(name, SLICE("OMPI_COMM_WORLD_")) || slice_starts(name, SLICE("PMIX_")) ||
                slice_starts(name, SLICE("OMPI_UNIVERSE_"))) {
                char variable[256];
                name = slice_cut(&name, '=');
                snprintf(variable, sizeof variable, SLICE_FMT, SLICE_ARG(name));
                again = name.n < sizeof variable && unsetenv(variable) == 0;
            }
        }
    }
}

/* torchrun's contract: whatever is launched finds its place by these. */
static void put_environment(const struct attempt *a, unsigned rank, unsigned port,
                            unsigned restarts)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    drop_openmpi();
    put_number("RANK", rank);
    put_number("LOCAL_RANK", rank);
    put_number("WORLD_SIZE", a->nranks);
    put_number("LOCAL_WORLD_SIZE", a->nranks);
    put_number("GROUP_RANK", 0);
    put_number("ROLE_RANK", rank);
    put_number("MASTER_PORT", port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    put_number("TORCHELASTIC_RESTART_COUNT", restarts);
    put_number("TORCHELASTIC_MAX_RESTARTS", a->want->restarts);
    setenv("TORCHELASTIC_RUN_ID", "trainagent", 0);
    put_number("TRAINAGENT_GENERATION", restarts + 1);
    if (a->nranks > 1 && getenv("OMP_NUM_THREADS") == NULL) {
        put_number("OMP_NUM_THREADS", cores > (long)a->nranks ? (unsigned)cores / a->nranks : 1);
    }
}

/* --- starting ------------------------------------------------------------------------------------------------------------ */

NORETURN static void become_rank(const struct attempt *a, unsigned rank, unsigned port,
                                 unsigned restarts, pid_t parent, int tell)
{
    sigset_t none;
    int null = open("/dev/null", O_RDONLY);
    int saved;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(CANNOT_START); /* it died before we asked to be told */
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (null != -1) {
        dup2(null, STDIN_FILENO); /* a background group that read the terminal would stop */
        close(null);
    }
    put_environment(a, rank, port, restarts);
    execvp(a->want->argv[0], a->want->argv);
    saved = errno;
    (void)!write(tell, &saved, sizeof saved);
    _exit(CANNOT_START);
}

static int start_rank(struct attempt *a, unsigned i, unsigned port, unsigned restarts,
                      struct err *e)
{
    pid_t me = getpid();
    int failed = 0;
    ssize_t n;
    pid_t pid;
    int fd;
    int rc = forked_start(&pid, &fd, e);

    if (rc != 0) {
        return rc;
    }
    if (pid == 0) {
        become_rank(a, i, port, restarts, me, fd);
    }
    setpgid(pid, pid); /* in both: whoever comes first */
    do {
        n = read(fd, &failed, sizeof failed); /* the end comes with exec() */
    } while (n == -1 && errno == EINTR);
    close(fd);
    if (n == (ssize_t)sizeof failed) {
        waitpid(pid, NULL, 0);
        errno = failed;
        return err_sys(e, "%s: cannot be started", a->want->argv[0]);
    }
    a->rank[i].pid = pid;
    a->alive++;
    return 0;
}

/* --- watching ------------------------------------------------------------------------------------------------------------ */

static void signal_all(const struct attempt *a, int sig)
{
    for (unsigned i = 0; i < a->nranks; i++) {
        if (a->rank[i].pid != 0) {
            kill(-a->rank[i].pid, sig);
        }
    }
}

static void end_others(struct attempt *a)
{
    if (a->kill_at_ms == UINT64_MAX) {
        signal_all(a, SIGTERM);
        a->kill_at_ms = clock_now_ms() + (a->want->grace_ms != 0 ? a->want->grace_ms : GRACE_MS);
    }
}

static void rank_ended(struct attempt *a, unsigned i, int status)
{
    bool by_signal = WIFSIGNALED(status);
    int code = by_signal ? 128 + WTERMSIG(status) : WEXITSTATUS(status);

    kill(-a->rank[i].pid, SIGKILL); /* what it started and left behind */
    a->rank[i].pid = 0;
    a->alive--;
    if (code != 0 && !a->failed) {
        a->failed = true;
        a->exit_code = code;
        a->by_signal = by_signal;
        if (a->alive > 0) {
            log_warn("launch.failed", "rank=%u code=%d the other ranks are ended", i, code);
        }
        end_others(a);
    }
}

static void reap(struct attempt *a)
{
    for (unsigned i = 0; i < a->nranks; i++) {
        int status;
        if (a->rank[i].pid != 0 && waitpid(a->rank[i].pid, &status, WNOHANG) == a->rank[i].pid) {
            rank_ended(a, i, status);
        }
    }
}

static void on_signal(struct attempt *a, int sig, bool *stopped)
{
    if (sig == SIGTERM || sig == SIGINT) {
        if (*stopped) {
            signal_all(a, SIGKILL);
        }
        *stopped = true;
        end_others(a);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(passed_on); i++) {
        if (sig == passed_on[i]) {
            signal_all(a, sig);
        }
    }
}

/* -1 when the time was up. */
static int wait_signal(const sigset_t *set, uint64_t until_ms)
{
    uint64_t now = clock_now_ms();
    uint64_t left = until_ms == UINT64_MAX ? 3600000 : until_ms > now ? until_ms - now : 0;
    const struct timespec ts = {(time_t)(left / 1000), (long)(left % 1000) * 1000000};

    return sigtimedwait(set, NULL, &ts);
}

static int run_attempt(struct attempt *a, const sigset_t *set, unsigned restarts, bool *stopped,
                       struct err *e)
{
    unsigned port = free_port();
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < a->nranks; i++) {
        rc = start_rank(a, i, port, restarts, e);
    }
    if (rc != 0) {
        end_others(a);
    }
    while (a->alive > 0) {
        int sig = wait_signal(set, a->kill_at_ms);
        if (sig > 0) {
            on_signal(a, sig, stopped);
        }
        if (a->kill_at_ms <= clock_now_ms()) {
            signal_all(a, SIGKILL);
            a->kill_at_ms = clock_now_ms() + 1000;
        }
        reap(a);
    }
    return rc;
}

static bool pause_before_restart(const sigset_t *set, uint64_t wait_ms)
{
    uint64_t until = clock_now_ms() + wait_ms;

    while (clock_now_ms() < until) {
        int sig = wait_signal(set, until);
        if (sig == SIGTERM || sig == SIGINT) {
            return false;
        }
    }
    return true;
}

/* 0: the attempt is followed by another, when the pause is over. Else its failure is final; *e has a sentence where the exit
 * code alone does not tell why. */
static int judge(struct restart *r, const struct attempt *a, const struct progress *before,
                 uint64_t *wait_ms, struct err *e)
{
    struct failure f = {.code = a->exit_code, .by_signal = a->by_signal};
    struct err why;
    int rc;

    progress_since(a->want->progress, before, &f.at);
    rc = restart_judge(r, &f, wait_ms, &why);
    if (rc == E_AGAIN && r->limit > 0) {
        log_warn("launch.gave_up", "%s", why.text);
    } else if (rc == E_INTERNAL) {
        *e = why;
    } else if (rc == 0) {
        log_warn("launch.again", "code=%d restart=%u of=%u wait_ms=%" PRIu64, f.code, r->count,
                 r->limit, *wait_ms);
    }
    return rc;
}

int launch(const struct launch_want *w, struct launch_result *out, struct err *e)
{
    unsigned gpus = visible_gpus();
    struct attempt a = {.want = w, .nranks = w->ranks != 0 ? w->ranks : gpus != 0 ? gpus : 1};
    struct restart restart;
    sigset_t set, before;
    int rc;

    *out = (struct launch_result){0};
    restart_init(&restart, w->restarts, w->backoff_ms != 0 ? w->backoff_ms : BACKOFF_MS,
                 clock_now_ns() ^ (uint64_t)getpid() << 32);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    for (size_t i = 0; i < ARRAY_LEN(passed_on); i++) {
        sigaddset(&set, passed_on[i]);
    }
    sigprocmask(SIG_BLOCK, &set, &before);
    a.rank = mem_array(a.nranks, sizeof a.rank[0]);
    for (;;) {
        struct progress began;
        uint64_t wait_ms;

        progress_read(w->progress, &began);
        a.failed = a.by_signal = false;
        a.exit_code = 0;
        a.kill_at_ms = UINT64_MAX;
        rc = run_attempt(&a, &set, restart.total, &out->stopped, e);
        out->exit_code = a.exit_code;
        if (rc != 0 || !a.failed || out->stopped) {
            break;
        }
        rc = judge(&restart, &a, &began, &wait_ms, e);
        if (rc != 0) {
            rc = rc == E_INTERNAL ? rc : 0;
            break;
        }
        if (!pause_before_restart(&set, wait_ms)) {
            out->stopped = true;
            break;
        }
        rc = w->may_restart != NULL ? w->may_restart(w->arg, e) : 0;
        if (rc != 0) {
            break;
        }
    }
    out->restarts = restart.total;
    free(a.rank);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return rc;
}
