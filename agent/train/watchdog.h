/* watchdog.h - a thread that ends this process when its rank, or another one, hangs: with exit
 * status 75, which asks for a restart.
 *
 * It checks every second, uses neither CUDA nor NCCL nor MPI, and allocates nothing once it runs,
 * because the main thread may hang in any of them. A fault is a collective that takes longer than
 * its limit, a main thread whose heartbeat has stopped for twice that, a rank that died, or an
 * error that the main thread reports.
 *
 *     WATCHING --fault on rank 0--> ROLL    all ranks are asked for their state; at most 3 s
 *     WATCHING --fault elsewhere--> ASKED   it is reported to rank 0, which calls the roll; at most
 *                                           8 s
 *     WATCHING --a rank's final error, and rank 0 writes a checkpoint--> WRITING    until it is
 *                                           written; at most three timeouts
 *     WATCHING --final error elsewhere--> LEAVING    it is reported to rank 0, which ends all; at
 *                                           most 8 s without an answer
 *     ROLL, ASKED, WRITING, LEAVING, WATCHING --verdict--> ENDING    flight record, abort of the
 *                                           communicator (at most 5 s), _exit()
 *
 * The verdict names the ranks that do not answer; else those that have not come to the collective
 * in which the others wait; else those whose call of it has not returned. Ranks that call
 * different collectives have a bug: then the verdict is 70, not 75. A rank that ends with its own
 * error ends all others with its exit code. A rank whose GPU is broken (E_SICK) ends with 71, the
 * others with 75: they may continue elsewhere.
 *
 * Nothing is freed at the end: cudaFree() and ncclCommDestroy() wait for the kernels that hang.
 * If even the end hangs, SIGALRM ends the process after 25 s, or 10 s and the timeout if that is
 * less.
 *
 * owns     watchdog_close() ends the thread; the comm must outlive it
 * threads  opened, closed and failed by the main thread
 */
#ifndef AGENT_TRAIN_WATCHDOG_H
#define AGENT_TRAIN_WATCHDOG_H

#include <stdbool.h>

#include "common/base/err.h"
#include "kernels/comm.h"

/* The length of a long wait, in timeouts. */
enum { LONG_WAIT = 3 };

struct watchdog_options {
    struct comm *comm;
    const struct kops *k;
    const char *out;     /* folder for flight-<rank>.json */
    const char *host;    /* rank 0's machine, NULL when not known */
    uint64_t timeout_ms; /* for a collective, after the first step */
};

struct watchdog;

/* Collective. After an error *out may be open, for watchdog_fail(). */
MUST_USE int watchdog_open(const struct watchdog_options *o, struct watchdog **out, struct err *e);
/* An orderly end: the other ranks are informed that this one leaves. */
void watchdog_close(struct watchdog **wp); /* NULL is fine */

/* How long operations may take from now on: the timeout, or three times that (for the first step,
 * checkpoints, and other work of one rank while the others wait). */
void watchdog_patience(struct watchdog *w, bool long_wait);

/* The main thread does long work on the host, such as reading and hashing large files: as long as
 * it uses the processor it counts as alive. Not for steps: waits for a GPU that hangs use the
 * processor, too. */
void watchdog_host_work(struct watchdog *w, bool begins); /* NULL is fine */
/* From any thread: a checkpoint is being written on this rank. It is finished first when a rank
 * ends with its own error. */
void watchdog_writes(struct watchdog *w, bool writes); /* NULL is fine */
/* From any thread: an error ends the run as soon as this rank's checkpoint is written. */
bool watchdog_waits(struct watchdog *w); /* NULL is fine */

/* Errors after which a run may resume from its checkpoint, on this machine or another: the other
 * ranks' exit status is 75, and so is this one's, except for E_SICK. */
bool watchdog_may_pass(int rc);
/* For a rank that could not join the others, so that there is no comm and no watchdog: writes its
 * flight record, which accuses it unless it has only waited for them. */
void watchdog_record_alone(const char *out, int rank, int world, int rc, const char *text);
/* The main thread's error ends all ranks; on rank 0 the checkpoint that is being written comes
 * first, if the error is final. */
NORETURN void watchdog_fail(struct watchdog *w, int rc, const char *text);

#endif
