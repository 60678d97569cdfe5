#include "common/os/child.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/os/clock.h"

extern char **environ;

#ifdef __SANITIZE_THREAD__
/* ThreadSanitizer takes clone() for a fork, and stops watching in the child; but parent and child
 * share its state of the thread. So clone() is hidden from it, and it does not see what the child
 * does. */
int __clone(int (*fn)(void *), void *stack, int flags, void *arg, ...);
#    define clone     __clone
#    define UNWATCHED __attribute__((no_sanitize_thread))
#else
#    define UNWATCHED
#endif

enum {
    GRACE_MS = 5000,
    LOOK_MS = 50, /* how often we look where there are no pidfds */
    READ_BYTES = 16 << 10,
    DRAIN_READS = 64, /* of a pipe whose other end somebody outside the group keeps */
    STACK_BYTES =
        64 << 10, /* of a process until it is the program: looking through PATH takes some */
    CANNOT_START = 127,
};

struct spout { /* one of its outputs */
    struct child *child;
    int fd; /* or -1 */
    struct event *ev;
    void (*on_bytes)(void *arg, struct slice bytes);
};

struct child {
    struct child_events ev;
    void *arg;
    struct event_base *base;
    pid_t pid; /* 0: reaped */
    int pidfd; /* or -1 */
    struct event *watch, *alarm;
    struct spout out, err;
    uint64_t grace_ms;
    struct child_end end;
    bool termed; /* SIGTERM was sent */
};

static void close_fd(int *fd)
{
    if (*fd != -1) {
        close(*fd);
    }
    *fd = -1;
}

/* --- what it says --- */

enum heard { SOME, NOT_YET, NO_MORE };

static enum heard receive_child_output(struct spout *s)
{
    char bytes[READ_BYTES];
    ssize_t n = read(s->fd, bytes, sizeof bytes);

    if (n > 0) {
        s->on_bytes(s->child->arg, slice_of(bytes, (size_t)n));
        return SOME;
    }
    return n == -1 && (errno == EAGAIN || errno == EINTR) ? NOT_YET : NO_MORE;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct spout *s = arg;

    (void)fd;
    (void)what;
    if (receive_child_output(s) == NO_MORE) {
        event_del(s->ev);
    }
}

static void drain(struct spout *s)
{
    for (int i = 0; s->fd != -1 && i < DRAIN_READS && receive_child_output(s) == SOME; i++) {
    }
}

static void spout_close(struct spout *s)
{
    if (s->ev != NULL) {
        event_free(s->ev);
    }
    s->ev = NULL;
    close_fd(&s->fd);
}

/* *theirs: the end that the program writes to. */
static int spout_open(struct spout *s, struct child *c,
                      void (*on_bytes)(void *arg, struct slice bytes), int *theirs, struct err *e)
{
    int fd[2];

    if (pipe2(fd, O_CLOEXEC) == -1) {
        return err_sys(e, "pipe");
    }
    *theirs = fd[1];
    s->child = c;
    s->fd = fd[0];
    s->on_bytes = on_bytes;
    if (fcntl(fd[0], F_SETFL, O_NONBLOCK) == -1) {
        return err_sys(e, "pipe");
    }
    s->ev = event_new(c->base, fd[0], EV_READ | EV_PERSIST, on_readable, s);
    CHECK(s->ev != NULL);
    event_add(s->ev, NULL);
    return 0;
}

/* --- how it ends --- */

static void on_ended(struct child *c)
{
    int status = 0;

    /* Not yet reaped, so the group's number is still nobody else's. */
    kill(-c->pid, SIGKILL);
    drain(&c->out);
    drain(&c->err);
    while (waitpid(c->pid, &status, 0) == -1 && errno == EINTR) {
    }
    c->pid = 0;
    event_del(c->watch);
    event_del(c->alarm);
    c->end.by_signal = WIFSIGNALED(status);
    c->end.exit_code = c->end.by_signal ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    c->ev.on_end(c->arg, &c->end);
}

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
    struct child *c = arg;
    siginfo_t seen = {0};

    (void)fd;
    (void)what;
    if (waitid(P_PID, (id_t)c->pid, &seen, WEXITED | WNOHANG | WNOWAIT) == 0 && seen.si_pid != 0) {
        on_ended(c);
    }
}

static void begin_to_end(struct child *c)
{
    struct timeval tv = clock_timeval(c->grace_ms);

    c->termed = true;
    kill(-c->pid, SIGTERM);
    event_add(c->alarm, &tv);
}

static void on_alarm(evutil_socket_t fd, short what, void *arg)
{
    struct child *c = arg;

    (void)fd;
    (void)what;
    if (c->termed) {
        kill(-c->pid, SIGKILL);
        return;
    }
    c->end.timed_out = true;
    begin_to_end(c);
}

void child_stop(struct child *c)
{
    if (c->pid != 0 && !c->termed) {
        c->end.stopped = true;
        begin_to_end(c);
    }
}

void child_close(struct child **cp)
{
    struct child *c = *cp;

    *cp = NULL;
    if (c == NULL) {
        return;
    }
    if (c->pid != 0) {
        kill(-c->pid, SIGKILL);
        while (waitpid(c->pid, NULL, 0) == -1 && errno == EINTR) {
        }
    }
    if (c->watch != NULL) {
        event_free(c->watch);
    }
    if (c->alarm != NULL) {
        event_free(c->alarm);
    }
    spout_close(&c->out);
    spout_close(&c->err);
    close_fd(&c->pidfd);
    free(c);
}

/* --- the start --- */

struct ends { /* the program's descriptors 0, 1, 2; ours to close again where `ours` says so */
    int fd[3];
    bool ours[3];
};

/* A file in memory: it can be opened again as /dev/stdin, and nobody must be written to piece by
 * piece. */
static int input_open(const struct child_params *w, struct ends *x, struct err *e)
{
    struct slice rest = w->input;

    if (w->in_fd != 0) {
        x->fd[0] = w->in_fd;
        return 0;
    }
    x->ours[0] = true;
    x->fd[0] =
        rest.n == 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : memfd_create("input", MFD_CLOEXEC);
    if (x->fd[0] == -1) {
        return err_sys(e, "stdin of %s", w->argv[0]);
    }
    while (rest.n > 0) {
        ssize_t n = write(x->fd[0], rest.p, rest.n);
        if (n == -1) {
            return err_sys(e, "stdin of %s", w->argv[0]);
        }
        rest = slice_from(rest, (size_t)n);
    }
    if (w->input.n != 0 && lseek(x->fd[0], 0, SEEK_SET) == -1) {
        return err_sys(e, "stdin of %s", w->argv[0]);
    }
    return 0;
}

static int ends_open(struct child *c, const struct child_params *w, struct ends *x, struct err *e)
{
    int rc = input_open(w, x, e);

    if (w->out_fd != 0) {
        x->fd[1] = w->out_fd;
    } else if (rc == 0) {
        x->ours[1] = true;
        rc = spout_open(&c->out, c, c->ev.on_out, &x->fd[1], e);
    }
    if (rc == 0 && c->ev.on_err != NULL) {
        x->ours[2] = true;
        rc = spout_open(&c->err, c, c->ev.on_err, &x->fd[2], e);
    } else {
        x->fd[2] = x->fd[1];
    }
    return rc;
}

/* What a new process does before it is the program: on our memory, while the thread that made it
 * waits (CLONE_VFORK). So it touches nothing but this, and it takes no lock. */
struct birth {
    const struct child_params *want;
    const struct ends *ends;
    pid_t parent;
    int failed; /* errno of what could not be done */
};

/* What we ignore it need not. The kernel is asked, as sigaction() passes libc's own over, and notes
 * of its own may stand in the memory that is ours: all zero is SIG_DFL. */
static UNWATCHED void usual_signals(void)
{
    static const uint64_t usual[8];

    for (int sig = 1; sig < NSIG; sig++) {
        syscall(SYS_rt_sigaction, sig, usual, NULL, NSIG / 8); /* SIGKILL and SIGSTOP refuse */
    }
}

static UNWATCHED bool take_ends(const struct ends *x)
{
    for (int i = 0; i < 3; i++) {
        if (x->fd[i] == i ? fcntl(i, F_SETFD, 0) == -1 : dup2(x->fd[i], i) == -1) {
            return false;
        }
    }
    closefrom(3);
    return true;
}

static UNWATCHED bool prepare_child_birth(const struct birth *b)
{
    sigset_t none;

    usual_signals(); /* before any can come: a handler of ours would run on our memory */
    sigemptyset(&none);
    return setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
           getppid() == b->parent && /* or it died before we asked for that signal */
           take_ends(b->ends) && (b->want->folder == NULL || chdir(b->want->folder) == 0) &&
           sigprocmask(SIG_SETMASK, &none, NULL) == 0;
}

static UNWATCHED int become_child_program(void *arg)
{
    struct birth *b = arg;
    char *const *argv = (char *const *)(uintptr_t)b->want->argv;
    char *const *env = b->want->env != NULL ? (char *const *)(uintptr_t)b->want->env : environ;

    if (prepare_child_birth(b)) {
        if (strchr(argv[0], '/') != NULL) {
            execve(argv[0], argv, env); /* execvpe() would ask a shell to read what is no program */
        } else {
            execvpe(argv[0], argv, env);
        }
    }
    b->failed = errno;
    return CANNOT_START;
}

/* Not posix_spawn(), which cannot ask for a signal at our death. */
static int spawn(struct child *c, const struct child_params *w, const struct ends *x, struct err *e)
{
    struct birth b = {.want = w, .ends = x, .parent = getpid()};
    char *stack = mem_new(STACK_BYTES);
    sigset_t all, before;
    int saved;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    c->pid = clone(become_child_program, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, &b);
    saved = c->pid == -1 ? errno : b.failed;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    free(stack);
    if (saved == 0) {
        return 0;
    }
    while (c->pid != -1 && waitpid(c->pid, NULL, 0) == -1 && errno == EINTR) {
    }
    c->pid = 0;
    errno = saved;
    return err_sys(e, "%s: cannot be started", w->argv[0]);
}

static void watch_child_exit(struct child *c, const struct child_params *w)
{
    struct timeval tv = clock_timeval(LOOK_MS);

    c->pidfd = pidfd_open(c->pid, 0); /* not before Linux 5.3, and not in every sandbox */
    c->watch =
        event_new(c->base, c->pidfd, (c->pidfd != -1 ? EV_READ : 0) | EV_PERSIST, on_watch, c);
    CHECK(c->watch != NULL);
    event_add(c->watch, c->pidfd != -1 ? NULL : &tv);
    if (w->timeout_ms != 0) {
        tv = clock_timeval(w->timeout_ms);
        event_add(c->alarm, &tv);
    }
}

int child_start(struct event_base *base, const struct child_params *w,
                const struct child_events *ev, void *arg, struct child **out, struct err *e)
{
    struct child *c = NEW(struct child);
    struct ends x = {.fd = {-1, -1, -1}};
    int rc;

    *c = (struct child){.ev = *ev,
                        .arg = arg,
                        .base = base,
                        .pidfd = -1,
                        .out = {.fd = -1},
                        .err = {.fd = -1},
                        .grace_ms = w->grace_ms != 0 ? w->grace_ms : GRACE_MS};
    c->alarm = evtimer_new(base, on_alarm, c);
    CHECK(c->alarm != NULL);
    rc = ends_open(c, w, &x, e);
    rc = rc != 0 ? rc : spawn(c, w, &x, e);
    for (int i = 0; i < 3; i++) {
        if (x.ours[i]) {
            close_fd(&x.fd[i]);
        }
    }
    if (rc != 0) {
        child_close(&c);
        return rc;
    }
    watch_child_exit(c, w);
    *out = c;
    return 0;
}
