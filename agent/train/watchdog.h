/* watchdog.h - a thread that ends this process when its rank, or another one, hangs: with 75, which
 * asks to be started again.
 *
 * It looks every second, touches neither CUDA nor NCCL nor MPI, and allocates nothing once it runs:
 * what it watches may hang in any of them. A fault is a collective that takes longer than its
 * limit, a main thread whose heartbeat has stood still for twice that, a rank that died, or an
 * error that the main thread reports.
 *
 *     WATCHING --fault on rank 0--> ROLL    all ranks are asked where they are; at most 3 s
 *     WATCHING --fault elsewhere--> ASKED   rank 0 is told and calls the roll; at most 8 s
 *     WATCHING --a rank's final error, and rank 0 writes a checkpoint--> WRITING    until it is written; at most three timeouts
 *     WATCHING --final error elsewhere--> LEAVING    rank 0 is told and ends all; at most 8 s without a word from it
 *     ROLL, ASKED, WRITING, LEAVING, WATCHING --verdict--> ENDING    flight record, abort of the communicator (at most 5 s), _exit()
 *
 * The verdict names the ranks that do not answer, else those that have not come to the collective
 * that the others wait in, else those whose call of it has not returned. Ranks that call different
 * collectives have a bug: the verdict is 70 then, not 75. A rank that ends with an error of its own
 * ends all others with its exit code. A rank whose GPU is broken (E_SICK) ends with 71, the others
 * with 75: they may go on elsewhere.
 *
 * Nothing is freed in the end: cudaFree() and ncclCommDestroy() wait for the kernels that hang.
 * Should even that hang, SIGALRM ends the process after 25 s, or 10 s and the timeout if that is
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

/* How many timeouts a long wait is. */
enum { LONG_WAIT = 3 };

struct watchdog_options {
    struct comm *comm;
    const struct kops *k;
    const char *out;     /* folder for flight-<rank>.json */
    const char *host;    /* rank 0's machine, NULL when not known */
    uint64_t timeout_ms; /* for a collective, once the first step is done */
};

struct watchdog;

/* Collective. After an error *out may be open, for watchdog_fail(). */
MUST_USE int watchdog_open(const struct watchdog_options *o, struct watchdog **out, struct err *e);
/* In good order: the other ranks are told that this one leaves. */
void watchdog_close(struct watchdog **wp); /* NULL is fine */

/* How long operations may take from now on: the timeout, or three times that (the first step,
 * checkpoints, and whatever else one rank does while the others wait). */
void watchdog_patience(struct watchdog *w, bool long_wait);

/* The main thread reads and hashes large files, say: as long as it uses the processor it counts as
 * alive. Not for the steps: waits for a GPU that hangs use the processor, too. */
void watchdog_host_work(struct watchdog *w, bool begins); /* NULL is fine */
/* From any thread: a checkpoint is being written on this rank. It is worth its time when a rank
 * ends with an error of its own. */
void watchdog_writes(struct watchdog *w, bool writes); /* NULL is fine */
/* From any thread: an error ends the run as soon as this rank's checkpoint is written. */
bool watchdog_waits(struct watchdog *w); /* NULL is fine */

/* Errors after which a run may go on from its checkpoint, on this machine or another: the other
 * ranks' exit code is 75, and so is this one's, but for E_SICK. */
bool watchdog_may_pass(int rc);
/* Of a rank that could not join the others, so that there is no comm and no watchdog: its flight
 * record, which accuses it unless it has only waited for them. */
void watchdog_record_alone(const char *out, int rank, int world, int rc, const char *text);
/* The main thread's error ends all ranks; on rank 0 the checkpoint that is being written comes
 * first, if the error is final. */
NORETURN void watchdog_fail(struct watchdog *w, int rc, const char *text);

#endif
