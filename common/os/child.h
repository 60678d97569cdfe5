/* child.h - another program, started without a shell and watched on a loop.
 *
 * It gets a process group of its own, /dev/null or the given bytes as its stdin, pipes as stdout
 * and stderr, an empty signal mask, and no other descriptor of ours. When it ends, by itself or
 * not, all that it left in its group is killed. When we are killed, so is the program itself: the
 * kernel sees to that, unless it has rights that we lack (set-user-ID).
 *
 * owns     child_close() kills what still runs, reaps it and frees; the strings of a want are
 *          needed during the start alone
 * threads  the base's, for all calls and events: it outlives the program, which the kernel would
 *          kill with it
 * errors   of the start alone: E_NOTFOUND, E_DENIED, E_IO with the program's name; how it ended is
 *          in struct child_end
 */
#ifndef COMMON_OS_CHILD_H
#define COMMON_OS_CHILD_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct event_base;
struct child;

struct child_params {
    const char *const *argv; /* NULL behind the last; argv[0] without a '/' is looked for in PATH */
    const char *const *env;  /* all of "NAME=value", NULL behind the last; NULL: ours */
    const char *folder;      /* where it starts; NULL: where we are */
    struct slice input;      /* its stdin */
    int in_fd, out_fd; /* instead of input and on_out: its stdin, its stdout as they are; 0: none */
    uint64_t timeout_ms; /* then it is stopped; 0: never */
    uint64_t grace_ms;   /* from SIGTERM to SIGKILL; 0: 5 s */
};

struct child_end {
    int exit_code; /* 128 + signal, as a shell says it */
    bool by_signal;
    bool timed_out;
    bool stopped; /* child_stop() */
};

struct child_events {
    void (*on_out)(void *arg, struct slice bytes);
    void (*on_err)(void *arg, struct slice bytes); /* NULL: it writes where stdout leads */
    /* Once, and last, but not from within a call. child_close() is allowed in it, and in no
     * other. */
    void (*on_end)(void *arg, const struct child_end *end);
};

MUST_USE int child_start(struct event_base *base, const struct child_params *w,
                         const struct child_events *ev, void *arg, struct child **out,
                         struct err *e);
/* SIGTERM to its group now, SIGKILL after the grace; on_end comes. */
void child_stop(struct child *c);
void child_close(struct child **cp); /* no event after it returns; NULL is fine */

#endif
