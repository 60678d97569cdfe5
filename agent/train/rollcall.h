/* rollcall.h - the connections between the ranks' watchdogs, over TCP and separate from those of
 * the training: the state of each rank, and the verdict.
 *
 * Rank 0 listens; all others connect to it, are answered, and stay connected. While all is well
 * only TCP keepalives are sent. When a rank dies, the kernel closes its connection. A rank that
 * waits too long reports a fault to rank 0, which calls the roll: every rank reports its state,
 * and rank 0 sends the verdict to all of them.
 *
 *     rank k -> 0   HELLO token | FAULT text | HERE position | LEAVES exit code, text
 *     rank 0 -> k   HELLO | CALL | WAIT | END exit code, suspects, text | LEAVES exit code, text
 *
 * Anybody can connect to the port. The oldest connections that have not sent HELLO make room for
 * new ones. The end of a connection means that a rank has died only if its other side has proved
 * to be a rank of this run.
 *
 * owns     rollcall_close() closes all connections and frees
 * threads  open, connect and close on the main thread; poll and send on the watchdog's, where
 *          nothing allocates
 * errors   none for a rank that cannot connect: it is logged, and this rank has no roll call
 */
#ifndef AGENT_TRAIN_ROLLCALL_H
#define AGENT_TRAIN_ROLLCALL_H

#include "common/base/err.h"
#include "kernels/comm.h"

enum roll_kind {
    ROLL_HELLO = 1,
    ROLL_FAULT,
    ROLL_CALL,
    ROLL_HERE,
    ROLL_END,
    ROLL_LEAVES,
    ROLL_WAIT, /* rank 0 has a verdict, and ends when its checkpoint is written */
    ROLL_LOST
};

enum { ROLL_TEXT = 320, ROLL_SUSPECTS = 8 };

/* Why a rank reports a fault: what it waits for is late; the library says that a peer is gone;
 * its own GPU or process is broken. */
enum roll_fault { FAULT_LATE, FAULT_LOST, FAULT_OWN };

struct roll_message {
    /* ROLL_LOST is never sent: the connection to `rank` ended without ROLL_LEAVES */
    enum roll_kind kind;
    int rank; /* whose */
    int exit_code;
    enum roll_fault fault; /* of ROLL_FAULT */
    int suspects;          /* -1: unknown; else how many of suspect[] count */
    int suspect[ROLL_SUSPECTS];
    struct flight_view at; /* posted, returned, done; of `waits` seq, op, dt and count */
    char text[ROLL_TEXT];
};

struct rollcall;

struct rollcall *rollcall_open(int rank, int world);
/* A collective call, while another thread already polls: the others get rank 0's address through
 * the comm. `host` is a name of rank 0's machine; NULL: its own. An error is the comm's. */
MUST_USE int rollcall_connect(struct rollcall *x, const struct kops *k, struct kstream *ks,
                              struct comm *c, const char *host);
void rollcall_close(struct rollcall **xp); /* NULL is fine */
/* Waits up to timeout_ms for messages and passes them to on_message; returns early after
 * rollcall_wake(). */
void rollcall_poll(struct rollcall *x, int timeout_ms,
                   void (*on_message)(void *arg, const struct roll_message *m), void *arg);
void rollcall_wake(struct rollcall *x);
/* From rank 0 to all others, from another to rank 0. A message that cannot be sent immediately is
 * dropped. */
void rollcall_send(struct rollcall *x, const struct roll_message *m);
/* Has rank 0 ever had a connection to it? */
bool rollcall_has_met(const struct rollcall *x, int rank);
/* Does rank 0 have a connection to it, or this rank one to rank 0? */
bool rollcall_reaches(const struct rollcall *x, int rank);

#endif
