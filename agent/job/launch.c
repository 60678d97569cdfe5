#include "agent/job/launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "agent/job/member.h"
#include "agent/job/notice.h"
#include "agent/job/ports.h"
#include "agent/job/restart.h"
#include "common/base/log.h"
#include "common/base/slice.h"
#include "common/os/clock.h"
#include "common/os/forked.h"

enum { CANNOT_START = 127 };

struct rank {
    pid_t pid; /* 0: gone */
};

/* Where this node's ranks are among all. */
struct world {
    const char *host, *id;
    unsigned generation; /* from 1 */
    unsigned nodes, node;
    unsigned first, size; /* rank 0 of this node, and how many ranks there are on all */
    unsigned port;
};

/* What the rendezvous has said that ends a generation on this node; a later one may follow an
 * earlier one, not the other way round. */
enum word {
    WORD_NONE,
    WORD_STOP, /* the generation has ended on another node */
    WORD_LOST, /* the rendezvous is lost */
    WORD_OVER, /* the job is over, as attempt.end says */
};

struct attempt {
    const struct launch_params *want;
    int signals;           /* a signalfd */
    struct member *member; /* NULL: this node is alone */
    struct world world;
    char host[RDZV_TEXT]; /* the world's, where the rendezvous said it */
    struct rank *rank;
    unsigned nranks;
    unsigned alive;
    int exit_code;
    bool failed; /* a rank did: the others are being ended */
    bool by_signal;
    bool sick; /* a rank found this node unfit */
    unsigned sick_rank;
    bool stopped;         /* by a signal to us */
    bool reported_to_end; /* by such a signal that was not the notice's: the next one kills */
    bool preempted;       /* the notice has come */
    bool begun;           /* the world is known */
    enum word word;       /* of this generation */
    struct rdzv_message end;
    uint64_t kill_at_ms; /* UINT64_MAX: nobody is */
    struct notice *notice;
};

static const int passed_on[] = {SIGHUP, SIGUSR1, SIGUSR2};

/* --- how many, and where they meet ------------------------------------------------------------ */

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

static void put_variable_number(const char *name, unsigned value)
{
    char text[16];

    snprintf(text, sizeof text, "%u", value);
    setenv(name, text, 1);
}

/* mpirun's variables are for the agent, not for its ranks: an MPI program would take itself for
 * the agent's MPI rank. */
static void drop_openmpi(void)
{
    bool again = true;

    while (again) {
        again = false;
        for (char **it = environ; *it != NULL && !again; it++) {
            struct slice name = slice_str(*it);
            if (slice_starts(name, SLICE("OMPI_COMM_WORLD_")) ||
                slice_starts(name, SLICE("PMIX_")) || slice_starts(name, SLICE("OMPI_UNIVERSE_"))) {
                char variable[256];
                name = slice_cut(&name, '=');
                snprintf(variable, sizeof variable, SLICE_FMT, SLICE_ARG(name));
                again = name.n < sizeof variable && unsetenv(variable) == 0;
            }
        }
    }
}

/* torchrun's contract: whatever is launched finds its place by these. */
static void put_environment(const struct attempt *a, unsigned local_rank)
{
    const struct world *w = &a->world;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    drop_openmpi();
    put_variable_number("RANK", w->first + local_rank);
    put_variable_number("LOCAL_RANK", local_rank);
    put_variable_number("WORLD_SIZE", w->size);
    put_variable_number("LOCAL_WORLD_SIZE", a->nranks);
    put_variable_number("GROUP_RANK", w->node);
    put_variable_number("GROUP_WORLD_SIZE", w->nodes);
    put_variable_number("ROLE_RANK", w->first + local_rank);
    put_variable_number("ROLE_WORLD_SIZE", w->size);
    put_variable_number("MASTER_PORT", w->port);
    setenv("MASTER_ADDR", w->host, 1);
    put_variable_number("TORCHELASTIC_RESTART_COUNT", w->generation - 1);
    put_variable_number("TORCHELASTIC_MAX_RESTARTS", a->want->restarts);
    setenv("TORCHELASTIC_RUN_ID", w->id, a->member != NULL);
    put_variable_number("TRAINAGENT_GENERATION", w->generation);
    if (a->nranks > 1 && getenv("OMP_NUM_THREADS") == NULL) {
        put_variable_number("OMP_NUM_THREADS",
                            cores > (long)a->nranks ? (unsigned)cores / a->nranks : 1);
    }
}

/* --- starting --------------------------------------------------------------------------------- */

NORETURN static void become_rank(const struct attempt *a, unsigned rank, pid_t parent, int tell)
{
    sigset_t none;
    int null = open("/dev/null", O_RDONLY);
    int saved;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(CANNOT_START); /* it died before we asked for that signal */
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (null != -1) {
        dup2(null, STDIN_FILENO); /* a background group that read the terminal would stop */
        close(null);
    }
    put_environment(a, rank);
    execvp(a->want->argv[0], a->want->argv);
    saved = errno;
    (void)!write(tell, &saved, sizeof saved);
    _exit(CANNOT_START);
}

static int start_rank(struct attempt *a, unsigned i, struct err *e)
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
        become_rank(a, i, me, fd);
    }
    setpgid(pid, pid); /* in both: whoever comes first */
    do {
        n = read(fd, &failed, sizeof failed); /* the end comes with exec() */
    } while (n == -1 && errno == EINTR);
    close(fd);
    if (n == (ssize_t)sizeof failed) {
        waitpid(pid, NULL, 0);
        errno = failed;
        return err_sys(e, "%s: the command cannot be started", a->want->argv[0]);
    }
    a->rank[i].pid = pid;
    a->alive++;
    return 0;
}

/* --- watching --------------------------------------------------------------------------------- */

static void signal_all(const struct attempt *a, int sig)
{
    for (unsigned i = 0; i < a->nranks; i++) {
        if (a->rank[i].pid != 0) {
            kill(-a->rank[i].pid, sig);
        }
    }
}

static uint64_t grace_ms(const struct launch_params *w)
{
    return w->grace_ms != 0 ? w->grace_ms : LAUNCH_GRACE_MS;
}

static void end_others(struct attempt *a)
{
    if (a->kill_at_ms == UINT64_MAX) {
        signal_all(a, SIGTERM);
        a->kill_at_ms = clock_now_ms() + grace_ms(a->want);
    }
}

/* At once: the ranks of other nodes wait for this one's, and may do so for long. */
static void say_failed(struct attempt *a)
{
    if (a->member != NULL && !a->stopped && a->word == WORD_NONE) {
        member_say(a->member,
                   &(struct rdzv_message){.type = RDZV_FAILED,
                                          .generation = a->world.generation,
                                          .code = a->sick ? EX_TEMPFAIL : (uint32_t)a->exit_code,
                                          .by_signal = a->by_signal});
    }
}

static void rank_ended(struct attempt *a, unsigned i, int status)
{
    bool by_signal = WIFSIGNALED(status);
    int code = by_signal ? 128 + WTERMSIG(status) : WEXITSTATUS(status);

    kill(-a->rank[i].pid, SIGKILL); /* what it started and left behind */
    a->rank[i].pid = 0;
    a->alive--;
    if (code == EX_OSERR && !a->sick) {
        a->sick = true;
        a->sick_rank = i;
    }
    if (code != 0 && !a->failed) {
        a->failed = true;
        a->exit_code = code;
        a->by_signal = by_signal;
        say_failed(a);
        if (a->alive > 0 && a->kill_at_ms == UINT64_MAX) {
            log_warn("launch.failed", "rank=%u code=%d the other ranks are stopped", i, code);
        }
        end_others(a);
    }
}

static void reap_attempt_child(struct attempt *a)
{
    for (unsigned i = 0; i < a->nranks; i++) {
        int status;
        if (a->rank[i].pid != 0 && waitpid(a->rank[i].pid, &status, WNOHANG) == a->rank[i].pid) {
            rank_ended(a, i, status);
        }
    }
}

/* The notice and the first signal of somebody else are one request, in whichever order they come: a
 * node is often drained because of the notice. */
static void on_end_signal(struct attempt *a, pid_t from)
{
    if (!a->preempted && notice_came(a->notice)) {
        a->preempted = true;
        log_warn("launch.preempted",
                 "url=%s this machine is about to be preempted; the ranks are stopped",
                 a->want->preempt_url);
    }
    if (!notice_sent(a->notice, from)) {
        if (a->reported_to_end) {
            signal_all(a, SIGKILL);
        }
        a->reported_to_end = true;
    }
    a->stopped = true;
    end_others(a);
}

static void on_attempt_signal(struct attempt *a, int sig, pid_t from)
{
    if (sig == SIGTERM || sig == SIGINT) {
        on_end_signal(a, from);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(passed_on); i++) {
        if (sig == passed_on[i]) {
            signal_all(a, sig);
        }
    }
}

static void note_member_word(struct attempt *a, enum word word)
{
    a->word = word > a->word ? word : a->word;
    end_others(a);
}

/* What the other nodes' agents say. */
static void hear_others(struct attempt *a)
{
    struct rdzv_message m;

    while (a->member != NULL && member_event(a->member, clock_now_ms(), &m)) {
        if (m.type == RDZV_WORLD && !a->begun) {
            a->begun = true;
            snprintf(a->host, sizeof a->host, "%s", m.text);
            a->world = (struct world){.host = m.text[0] != '\0' ? a->host : a->want->nodes->host,
                                      .id = a->want->nodes->id,
                                      .generation = m.generation,
                                      .nodes = m.nodes,
                                      .node = m.node,
                                      .first = m.first,
                                      .size = m.world,
                                      .port = m.port};
        } else if (m.type == RDZV_STOP && a->begun && m.generation == a->world.generation) {
            log_warn("launch.stopped", "generation=%u %s", a->world.generation, m.text);
            note_member_word(a, WORD_STOP);
        } else if (m.type == RDZV_END) {
            a->end = m;
            note_member_word(a, WORD_OVER);
        } else if (m.type == RDZV_LOST &&
                   a->word != WORD_OVER) { /* what ended the job stays said */
            a->end = m;
            note_member_word(a, WORD_LOST);
        }
    }
    if (a->member != NULL) {
        member_tick(a->member, clock_now_ms());
    }
}

/* Until a signal or a message came, or the time is up. */
static void wait_and_hear(struct attempt *a, uint64_t until_ms)
{
    struct pollfd p[] = {{.fd = a->signals, .events = POLLIN},
                         {.fd = a->member != NULL ? member_fd(a->member) : -1, .events = POLLIN}};
    uint64_t now = clock_now_ms();
    struct signalfd_siginfo s;

    until_ms = min_u64(until_ms, now + 3600000);
    if (a->member != NULL) {
        until_ms = min_u64(until_ms, member_next_ms(a->member));
    }
    (void)poll(p, ARRAY_LEN(p), until_ms > now ? (int)(until_ms - now) : 0);
    while (read(a->signals, &s, sizeof s) == (ssize_t)sizeof s) {
        on_attempt_signal(a, (int)s.ssi_signo, (pid_t)s.ssi_pid);
    }
    hear_others(a);
}

static int run_attempt(struct attempt *a, struct err *e)
{
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < a->nranks; i++) {
        rc = start_rank(a, i, e);
    }
    if (rc != 0) {
        end_others(a);
    }
    while (a->alive > 0) {
        wait_and_hear(a, a->kill_at_ms);
        if (a->kill_at_ms <= clock_now_ms()) {
            signal_all(a, SIGKILL);
            a->kill_at_ms = clock_now_ms() + 1000;
        }
        reap_attempt_child(a);
    }
    return rc;
}

static void begin_attempt(struct attempt *a)
{
    a->failed = a->by_signal = a->sick = a->begun = false;
    a->word = WORD_NONE;
    a->exit_code = 0;
    a->kill_at_ms = UINT64_MAX;
}

static int say_sick(const struct attempt *a, struct err *e)
{
    return err_set(
        e, E_SICK,
        "rank %u (rank %u of this node) exited with %d because its GPU or this node is faulty; "
        "see its output; nothing is restarted on this node",
        a->world.first + a->sick_rank, a->sick_rank, EX_OSERR);
}

/* --- one node alone --------------------------------------------------------------------------- */

/* 0: the attempt is followed by another, when the pause is over. Else its failure is final; *e has
 * a sentence where the exit code alone does not tell why. */
static int decide_restart(struct restart *r, struct attempt *a, const struct progress *before,
                          uint64_t *wait_ms, struct err *e)
{
    struct failure f = {.code = a->exit_code, .by_signal = a->by_signal};
    struct err why;
    int rc;

    progress_since(a->want->progress, before, &f.at);
    rc = restart_judge(r, &f, wait_ms, &why);
    a->exit_code = rc != 0 ? restart_exit_code(r, &f, rc) : a->exit_code;
    if (rc == E_AGAIN && r->limit > 0) {
        log_warn("launch.gave_up", "code=%d %s", a->exit_code, why.text);
    } else if (rc == E_INTERNAL) {
        *e = why;
    } else if (rc == 0) {
        log_warn("launch.again", "code=%d restart=%u of=%u wait_ms=%" PRIu64, f.code, r->count,
                 r->limit, *wait_ms);
    }
    return rc;
}

static uint64_t backoff_ms(const struct launch_params *w)
{
    return w->backoff_ms != 0 ? w->backoff_ms : LAUNCH_BACKOFF_MS;
}

static int launch_alone(struct attempt *a, struct launch_result *out, struct err *e)
{
    const struct launch_params *w = a->want;
    struct restart r;
    int rc;

    out->first = true;
    restart_init(&r, w->restarts, backoff_ms(w), clock_now_ns() ^ (uint64_t)getpid() << 32);
    for (;;) {
        struct progress began;
        uint64_t wait_ms, until_ms;

        progress_read(w->progress, &began);
        begin_attempt(a);
        a->world = (struct world){.host = "127.0.0.1",
                                  .id = "trainagent",
                                  .generation = r.total + 1,
                                  .nodes = 1,
                                  .size = a->nranks,
                                  .port = port_pick()};
        rc = run_attempt(a, e);
        out->exit_code = a->exit_code;
        out->restarts = r.total;
        if (rc == 0 && a->sick) {
            return say_sick(a, e);
        }
        if (rc != 0 || !a->failed || a->stopped) {
            return rc;
        }
        rc = decide_restart(&r, a, &began, &wait_ms, e);
        out->exit_code = a->exit_code;
        if (rc != 0) {
            return rc == E_INTERNAL ? rc : 0;
        }
        out->restarts = r.total;
        until_ms = clock_now_ms() + wait_ms;
        while (clock_now_ms() < until_ms && !a->stopped) {
            wait_and_hear(a, until_ms);
        }
        rc = a->stopped || w->may_restart == NULL ? 0 : w->may_restart(w->arg, e);
        if (rc != 0 || a->stopped) {
            return rc;
        }
    }
}

/* --- many nodes together ---------------------------------------------------------------------- */

static void send_attempt_leave(struct attempt *a, unsigned code, const char *text)
{
    struct rdzv_message m = {.type = RDZV_LEAVE, .code = code};

    snprintf(m.text, sizeof m.text, "%s", text);
    member_say(a->member, &m);
}

/* A generation from its start to its end on this node, and what the others say of it. */
static int run_generation(struct attempt *a, struct err *e)
{
    int rc;

    begin_attempt(a);
    member_join(a->member, a->nranks);
    while (!a->begun && a->word == WORD_NONE && !a->stopped) {
        wait_and_hear(a, UINT64_MAX);
    }
    if (a->word != WORD_NONE || a->stopped) {
        return 0; /* it failed elsewhere before it began here */
    }
    rc = run_attempt(a, e);
    if (rc != 0) {
        a->exit_code = err_sysexit(rc);
        say_failed(a);
        return rc;
    }
    if (!a->failed) {
        member_say(a->member,
                   &(struct rdzv_message){.type = RDZV_DONE, .generation = a->world.generation});
    }
    while (a->word == WORD_NONE && !a->stopped) {
        wait_and_hear(a, UINT64_MAX);
    }
    return 0;
}

/* True: the job is over for this node, as *out says. */
static bool attempt_is_over(const struct attempt *a, struct launch_result *out)
{
    const struct nodes *n = a->want->nodes;

    if (a->stopped) {
        out->exit_code = a->exit_code != 0 ? a->exit_code : EX_TEMPFAIL;
        return true;
    }
    if (a->word == WORD_OVER) {
        out->exit_code = (int)a->end.code;
        if (a->end.code != 0) {
            log_warn("launch.over", "code=%" PRIu32 " %s", a->end.code, a->end.text);
        }
        return true;
    }
    if (a->word == WORD_LOST) {
        log_warn("launch.lost", "%s", a->end.text);
        out->exit_code = EX_TEMPFAIL;
        return !a->begun || (n->rank == 0 && !n->external) || n->min == n->max;
    }
    return false;
}

enum { LOOK_MS = 300000 }; /* preflight: each check has its limit, and all have this */

static int launch_together(struct attempt *a, struct launch_result *out, struct err *e)
{
    const struct launch_params *w = a->want;
    const struct service_params s = {.nodes = w->nodes,
                                     .restarts = w->restarts,
                                     .backoff_ms = backoff_ms(w),
                                     .grace_ms = grace_ms(w),
                                     .progress = w->progress};
    int rc = member_open(&s, a->signals, &a->member, e);

    while (rc == 0) {
        rc = run_generation(a, e);
        out->restarts = a->begun ? a->world.generation - 1 : out->restarts;
        out->first = a->begun ? a->world.node == 0 : out->first;
        if (rc == 0 && a->sick) {
            rc = say_sick(a, e);
            send_attempt_leave(a, EX_OSERR, e->text);
            break;
        }
        if (rc == 0 && attempt_is_over(a, out)) {
            if (a->stopped) {
                send_attempt_leave(a, (unsigned)out->exit_code, "a signal stopped the agent");
            }
            break;
        }
        member_pause(a->member, LOOK_MS);
        if (rc == 0 && w->may_restart != NULL) {
            rc = w->may_restart(w->arg, e);
            if (rc != 0) {
                send_attempt_leave(a, (unsigned)err_sysexit(rc), e->text);
            }
        }
    }
    member_close(&a->member);
    return rc;
}

int launch(const struct launch_params *w, struct launch_result *out, struct err *e)
{
    unsigned gpus = visible_gpus();
    struct attempt a = {.want = w, .nranks = w->ranks != 0 ? w->ranks : gpus != 0 ? gpus : 1};
    sigset_t set, before;
    int rc;

    *out = (struct launch_result){0};
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    for (size_t i = 0; i < ARRAY_LEN(passed_on); i++) {
        sigaddset(&set, passed_on[i]);
    }
    a.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a.signals == -1) {
        return err_sys(e, "signalfd");
    }
    sigprocmask(SIG_BLOCK, &set, &before);
    a.rank = mem_array(a.nranks, sizeof a.rank[0]);
    rc = notice_start(w->preempt_url, &a.notice, e);
    if (rc == 0) {
        rc = w->nodes != NULL && w->nodes->max > 1 ? launch_together(&a, out, e)
                                                   : launch_alone(&a, out, e);
        out->stopped = a.stopped;
        notice_stop(&a.notice);
    }
    free(a.rank);
    close(a.signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return rc;
}
