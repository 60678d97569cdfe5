/* child.h - starts another program without a shell and watches it on a loop.
 *
 * It gets its own process group, /dev/null or the given bytes as its stdin, pipes as stdout and
 * stderr, an empty signal mask, and no other descriptor of ours. When it ends, in whatever way,
 * everything left in its group is killed. When we are killed, so is the program itself: the
 * kernel does that, unless it has rights that we lack (set-user-ID).
 *
 * owns     child_close() kills what still runs, reaps it and frees; the strings of the parameters
 *          are needed only during the start
 * threads  the base's, for all calls and events. It must outlive the program: the kernel would
 *          kill the program with the thread
 * errors   only of the start: E_NOTFOUND, E_DENIED, E_IO with the program's name; how it ended is
 *          in struct child_end
 */
#ifndef COMMON_OS_CHILD_H
#define COMMON_OS_CHILD_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct event_base;
struct child;

struct child_params {
    const char *const *argv; /* ends with NULL; an argv[0] without a '/' is searched in PATH */
    const char *const *env;  /* all of "NAME=value", ends with NULL; NULL: ours */
    const char *folder;      /* its working folder; NULL: ours */
    struct slice input;      /* its stdin */
    int in_fd, out_fd;       /* instead of input and on_out: its stdin and stdout; 0: none */
    uint64_t timeout_ms;     /* after which it is stopped; 0: never */
    uint64_t grace_ms;       /* from SIGTERM to SIGKILL; 0: 5 s */
};

struct child_end {
    int exit_code; /* 128 + signal, as a shell says it */
    bool by_signal;
    bool timed_out;
    bool stopped; /* child_stop() */
};

struct child_events {
    void (*on_out)(void *arg, struct slice bytes);
    void (*on_err)(void *arg, struct slice bytes); /* NULL: it goes where stdout goes */
    /* Once, and last, but not inside a call. child_close() is allowed in it, and in no other
     * event. */
    void (*on_end)(void *arg, const struct child_end *end);
};

MUST_USE int child_start(struct event_base *base, const struct child_params *w,
                         const struct child_events *ev, void *arg, struct child **out,
                         struct err *e);
/* Sends SIGTERM to its group now, SIGKILL after the grace; on_end follows. */
void child_stop(struct child *c);
void child_close(struct child **cp); /* no event after it returns; NULL is fine */

#endif
