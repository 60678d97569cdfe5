#include "agent/preflight/preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/preflight/look.h"
#include "common/os/clock.h"
#include "common/os/forked.h"

/* --- checks in separate processes: each group has its own clock, and all groups run at the same
 * time.
 *
 * A process has no descriptor of ours except its pipe, and its own process group. If a check does
 * not answer within its limit, the group is killed and the check is reported as hanging. If a
 * process ends early, it is reported as crashed. The remaining checks get another process; after
 * two lost ones the rest is not checked. A process that cannot be killed (in an ioctl of a driver
 * that never returns) is left running, and reported.
 */

enum { LOST_MAX = 2, PIPE_FD = 3, REAP_MS = 2000, REAP_AT_LAST_MS = 60000 };

_Static_assert(sizeof(struct finding) <= PIPE_BUF, "a finding crosses the pipe in one piece");

struct probe_group {
    pid_t pid; /* 0: none runs */
    int fd;
    size_t check[CHECKS]; /* of this group, in order */
    size_t n, done;
    unsigned lost;
    uint64_t until_ms; /* of the check that is being looked at */
    uint64_t since_ms;
};

struct probe {
    const struct look *look;
    const struct probe_check *check;
    struct finding *finding;
    struct probe_group group[PROBE_GROUPS];
};

/* --- the process that looks ------------------------------------------------------------------- */

static void plain_signals(void)
{
    sigset_t none;

    for (int sig = 1; sig < NSIG; sig++) {
        signal(sig, SIG_DFL); /* SIGKILL and SIGSTOP refuse */
    }
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Whoever reads our output must not wait for a process that cannot be killed: it holds nothing of
 * ours. */
static void leave_files(int pipe_fd)
{
    int null = open("/dev/null", O_RDWR);

    for (int fd = 0; null != -1 && fd < 3; fd++) {
        dup2(null, fd);
    }
    if (pipe_fd != PIPE_FD) {
        dup2(pipe_fd, PIPE_FD);
    }
    closefrom(PIPE_FD + 1);
    fcntl(PIPE_FD, F_SETFD, FD_CLOEXEC);
}

NORETURN static void become_group(const struct probe *p, const struct probe_group *g, pid_t parent,
                                  int fd)
{
    struct look l = *p->look;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    plain_signals();
    leave_files(fd);
    for (size_t i = g->done; i < g->n; i++) {
        struct finding f = p->finding[g->check[i]];
        uint64_t began = clock_now_ms();

        p->check[g->check[i]].look(&l, &f);
        f.took_ms = (uint32_t)(clock_now_ms() - began);
        if (write(PIPE_FD, &f, sizeof f) != (ssize_t)sizeof f) {
            _exit(1);
        }
    }
    _exit(0); /* nothing is closed in order: libraries that hang would do so here */
}

/* --- watching it ------------------------------------------------------------------------------ */

static void next_check(const struct probe *p, struct probe_group *g)
{
    g->since_ms = clock_now_ms();
    g->until_ms = g->done < g->n ? g->since_ms + p->check[g->check[g->done]].limit_ms : UINT64_MAX;
}

static int start_group(struct probe *p, struct probe_group *g, struct err *e)
{
    pid_t me = getpid();
    pid_t pid;
    int fd;
    int rc = forked_start(&pid, &fd, e);

    if (rc != 0) {
        return rc;
    }
    if (pid == 0) {
        become_group(p, g, me, fd);
    }
    setpgid(pid, pid); /* in both: whoever comes first */
    g->pid = pid;
    g->fd = fd;
    next_check(p, g);
    return 0;
}

/* Waits in the kernel where no signal reaches it; on a busy machine others are only late. */
static bool is_stuck(pid_t pid)
{
    char path[64], text[512];
    const char *state;
    ssize_t n = -1;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd != -1) {
        n = read(fd, text, sizeof text - 1);
        close(fd);
    }
    text[n > 0 ? n : 0] = '\0';
    state = strrchr(text, ')'); /* "123 (name) D ..." */
    return state != NULL && strncmp(state, ") D", 3) == 0;
}

/* What it ended by; -1: it does not end. */
static int end_process(struct probe_group *g)
{
    uint64_t began = clock_now_ms(), waited = 0;
    int status = 0;
    pid_t got;

    kill(-g->pid, SIGKILL);
    while ((got = waitpid(g->pid, &status, WNOHANG)) == 0 && waited < REAP_AT_LAST_MS &&
           (waited < REAP_MS || !is_stuck(g->pid))) {
        poll(NULL, 0, 2);
        waited = clock_now_ms() - began;
    }
    close(g->fd);
    g->pid = 0;
    return got == 0 ? -1 : status;
}

static void lose_probe_child(struct probe *p, struct probe_group *g, bool hung)
{
    size_t i = g->check[g->done];
    struct finding *f = &p->finding[i];
    double limit_s = (double)p->check[i].limit_ms / 1000;
    int status;

    /* Its end shows in the pipe before waitpid() knows how. */
    for (int tries = 0; !hung && tries < REAP_AT_LAST_MS; tries++) {
        siginfo_t seen = {0};
        if (waitid(P_PID, (id_t)g->pid, &seen, WEXITED | WNOHANG | WNOWAIT) == -1 ||
            seen.si_pid != 0) {
            break;
        }
        poll(NULL, 0, 1);
    }
    status = end_process(g);
    f->took_ms = (uint32_t)(clock_now_ms() - g->since_ms);
    if (hung && status == -1) {
        finding_bad(f, "STUCK",
                    "reboot the node: a driver or a file server blocks the process permanently",
                    "the check did not end within %g s, and its process cannot be killed", limit_s);
    } else if (hung && !p->check[i].asks_driver) {
        finding_warn(f, "HANGS",
                     "check whether the machine is busy; timeout = 30s allows more time",
                     "the check did not end within %g s", limit_s);
    } else if (hung) {
        finding_bad(f, "HANGS", "check the kernel's log; timeout = 30s allows more time",
                    "the check did not end within %g s", limit_s);
    } else if (WIFSIGNALED(status)) {
        finding_bad(f, "CRASHED", "check the kernel's log and the driver's libraries",
                    "the check was killed: %s", strsignal(WTERMSIG(status)));
    } else {
        finding_bad(f, "CRASHED", "check the kernel's log and the driver's libraries",
                    "the check exited without a result (exit code %d)", WEXITSTATUS(status));
    }
    g->done++;
    g->lost++;
}

/* What hung twice hangs again: the rest is not asked for, so that the whole has an end. */
static int continue_probe(struct probe *p, struct probe_group *g, struct err *e)
{
    if (g->done < g->n && g->lost < LOST_MAX) {
        return start_group(p, g, e);
    }
    for (; g->done < g->n; g->done++) {
        finding_skip(&p->finding[g->check[g->done]],
                     "not run: %u earlier checks of its group gave no result", g->lost);
    }
    return 0;
}

static int receive_probe_output(struct probe *p, struct probe_group *g, struct err *e)
{
    struct finding f;
    ssize_t n = read(g->fd, &f, sizeof f);

    if (n == -1 && (errno == EINTR || errno == EAGAIN)) {
        return 0;
    }
    if (n == (ssize_t)sizeof f) {
        p->finding[g->check[g->done++]] = f;
        next_check(p, g);
        if (g->done == g->n) {
            end_process(g); /* it has said all; whether it ends by itself is not waited for */
        }
        return 0;
    }
    lose_probe_child(p, g, false);
    return continue_probe(p, g, e);
}

static int watch_probe(struct probe *p, struct err *e)
{
    for (;;) {
        struct pollfd fd[PROBE_GROUPS];
        struct probe_group *of[PROBE_GROUPS];
        uint64_t first = UINT64_MAX, now = clock_now_ms();
        nfds_t n = 0;
        int rc = 0;

        for (size_t i = 0; i < PROBE_GROUPS; i++) {
            struct probe_group *g = &p->group[i];
            if (g->pid != 0) {
                fd[n] = (struct pollfd){.fd = g->fd, .events = POLLIN};
                of[n++] = g;
                first = min_u64(first, g->until_ms);
            }
        }
        if (n == 0) {
            return 0;
        }
        if (poll(fd, n, first > now ? (int)min_u64(first - now + 1, 60000) : 0) == -1 &&
            errno != EINTR) {
            return err_sys(e, "poll");
        }
        now = clock_now_ms();
        for (nfds_t i = 0; rc == 0 && i < n; i++) {
            if (fd[i].revents != 0) {
                rc = receive_probe_output(p, of[i],
                                          e); /* what came in time counts, also when we come late */
            } else if (of[i]->until_ms <= now) {
                lose_probe_child(p, of[i], true);
                rc = continue_probe(p, of[i], e);
            }
        }
        if (rc != 0) {
            return rc;
        }
    }
}

int probe_run(const struct look *l, const struct probe_check *check, struct finding *finding,
              size_t n, struct err *e)
{
    struct probe p = {.look = l, .check = check, .finding = finding};
    int rc = 0;

    for (size_t i = 0; i < n; i++) {
        struct probe_group *g = &p.group[check[i].group];
        CHECK(check[i].group < PROBE_GROUPS && g->n < CHECKS);
        g->check[g->n++] = i;
    }
    for (size_t i = 0; rc == 0 && i < PROBE_GROUPS; i++) {
        rc = p.group[i].n > 0 ? start_group(&p, &p.group[i], e) : 0;
    }
    rc = rc != 0 ? rc : watch_probe(&p, e);
    for (size_t i = 0; i < PROBE_GROUPS; i++) {
        if (p.group[i].pid != 0) {
            end_process(&p.group[i]);
        }
    }
    return rc;
}

/* --- the checks, and what came of them --- */

#define NODE_FILE "/etc/trainagent/preflight.conf"

enum group { FILES, DISK, MIRROR, KERNEL, NVML, CUDA, NCCL, COPY, GEMM, WRITE, GROUPS };
enum cost { QUICK, FULL };

_Static_assert((int)GROUPS <= (int)PROBE_GROUPS, "each group is watched");

static const struct {
    void (*look)(struct look *l, struct finding *f);
    enum group group;
    enum cost cost;
    enum level severity;
    unsigned limit_s;
} checks[CHECKS] = {
#define LOOK(name, text, group, cost, severity, limit_s, what)                                     \
    [CHECK_##name] = {check_##name, group, cost, LEVEL_##severity, limit_s},
#include "agent/preflight/checks.def"
#undef LOOK
};

static bool asks_driver(enum group g)
{
    return g == NVML || g == CUDA || g == COPY || g == GEMM;
}

/* --- what is expected ------------------------------------------------------------------------- */

static int read_node_file(const struct preflight_params *w, struct expect *x, struct err *e)
{
    const char *env = getenv("TRAINAGENT_PREFLIGHT");
    struct err why = {0};
    int rc;

    if (w->node_file != NULL) {
        return w->node_file[0] != '\0' ? expect_file(w->node_file, x, e) : 0;
    }
    if (env != NULL && env[0] != '\0') {
        return expect_file(env, x, e);
    }
    rc = expect_file(NODE_FILE, x, &why);
    if (rc == E_NOTFOUND) {
        return 0; /* a node without one has only what is expected by itself */
    }
    return rc != 0 ? err_set(e, rc, "%s", why.text) : 0;
}

static int merge_expectations(const struct preflight_params *w, struct expect *x, struct err *e)
{
    struct expect node = {0};
    int rc = read_node_file(w, &node, e);

    for (size_t i = 0; i < EXPECT_KEYS; i++) {
        node.is[i].node = node.is[i].set;
    }
    expect_init(x);
    expect_lay(x, &node);
    if (w->job != NULL) {
        expect_lay(x, w->job);
    }
    if (w->said != NULL) {
        expect_lay(x, w->said);
    }
    x->is[EXPECT_drain] = node.is[EXPECT_drain]; /* the node's own: no job decides that */
    return rc;
}

static bool wanted(const struct preflight_params *w, const struct expect *x, size_t i)
{
    uint64_t bit = UINT64_C(1) << i;

    if ((x->skip & bit) != 0) {
        return false;
    }
    /* What is named is made, whatever it costs. */
    return x->is[EXPECT_ONLY].set ? (x->only & bit) != 0 : checks[i].cost == QUICK || w->full;
}

/* --- the verdict ------------------------------------------------------------------------------ */

static void count_findings(struct preflight_report *r)
{
    bool looked = false;

    r->worst = LEVEL_OK;
    for (size_t i = 0; i < r->n; i++) {
        enum level l = (enum level)r->finding[i].level;
        r->count[l]++;
        if (l != LEVEL_SKIP) {
            looked = true;
            r->worst = l > r->worst ? l : r->worst;
        }
    }
    r->worst = looked ? r->worst : LEVEL_SKIP;
}

static void put_report_text(struct preflight_report *r)
{
    unsigned more = 0;

    if (r->worst == LEVEL_OK) {
        snprintf(r->text, sizeof r->text, "%u checks passed, %u skipped", r->count[LEVEL_OK],
                 r->count[LEVEL_SKIP]);
        return;
    }
    if (r->worst == LEVEL_SKIP) {
        snprintf(r->text, sizeof r->text, "no check could run");
        return;
    }
    more = r->count[r->worst] - 1;
    for (size_t i = 0; i < r->n; i++) {
        const struct finding *f = &r->finding[i];
        if (f->level == (uint8_t)r->worst) {
            int n = snprintf(r->text, sizeof r->text, "%s: %s", check_name(f->check), f->text);
            if (more > 0 && n < (int)sizeof r->text) {
                snprintf(r->text + n, sizeof r->text - (size_t)n, " (and %u more)", more);
            }
            return;
        }
    }
}

int preflight_run(const struct preflight_params *w, struct preflight_report *out, struct err *e)
{
    uint64_t began_ms = clock_now_ms(), limit_ms = 0;
    struct probe_check todo[CHECKS];
    struct look l = {.sight = {w->root != NULL ? w->root : ""}, .agent = w->agent, .out = w->out};
    int rc;

    *out = (struct preflight_report){.began_unix_s = clock_unix_s()};
    rc = merge_expectations(w, &l.expect, e);
    if (rc != 0) {
        return rc;
    }
    out->drain = l.expect.is[EXPECT_drain].n != 0;
    out->start_on = (enum level)l.expect.is[EXPECT_start_on].n;
    expect_u64(&l.expect, EXPECT_timeout, &limit_ms);
    for (size_t i = 0; i < CHECKS; i++) {
        if (wanted(w, &l.expect, i)) {
            todo[out->n] =
                (struct probe_check){checks[i].look, checks[i].group,
                                     limit_ms != 0 ? limit_ms : (uint64_t)checks[i].limit_s * 1000,
                                     asks_driver(checks[i].group)};
            out->finding[out->n++] = (struct finding){
                .check = (uint8_t)i,
                .worst_allowed = (l.expect.warn >> i & 1) != 0 ? (uint8_t)LEVEL_WARN
                                                               : (uint8_t)checks[i].severity};
        }
    }
    rc = probe_run(&l, todo, out->finding, out->n, e);
    out->took_ms = (uint32_t)(clock_now_ms() - began_ms);
    count_findings(out);
    put_report_text(out);
    return rc;
}
