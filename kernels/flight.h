/* flight.h - the flight record: the last collectives of this process, for finding out why ranks
 * hang.
 *
 * Every collective of every comm is one entry, numbered from 1 (comm.c writes them). Ranks make
 * the same collectives in the same order, so a number means the same collective on all ranks: the
 * rank that has not posted it is the one that the others wait for. The record also has the main
 * thread's heartbeat.
 *
 * owns     struct flight is the comm's; flight_close() frees it
 * threads  one posts and completes; any may read and write it out at the same time
 * errors   flight_write() returns -errno; it allocates nothing, so it also works in a process that
 *          is stuck
 */
#ifndef KERNELS_FLIGHT_H
#define KERNELS_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/dev.h"

enum { FLIGHT_ENTRIES = 1024 };

enum flight_op {
    FLIGHT_ALLREDUCE,
    FLIGHT_REDUCE_SCATTER,
    FLIGHT_ALLGATHER,
    FLIGHT_SPLIT,
    FLIGHT_BARRIER
};

struct flight_entry {
    uint64_t seq; /* from 1 */
    enum flight_op op;
    enum dtype dt;
    int64_t count;    /* elements */
    const char *comm; /* the communicator's name */
    uint64_t posted_ns;
    uint64_t done_ns;  /* 0: not known to be complete */
    uint64_t limit_ms; /* how long it may take */
};

/* The operation that is stuck, if any. */
struct flight_view {
    uint64_t posted;           /* the last number that was posted; 0: none */
    uint64_t returned;         /* the last one whose call has returned */
    uint64_t done;             /* the last one that is complete */
    struct flight_entry waits; /* the oldest incomplete one; seq 0 when all are complete */
    uint64_t beat_ns;          /* when the main thread last made progress */
    uint64_t limit_ms;         /* for an operation posted now */
};

struct flight;

/* Operations have no time limit until flight_allow(). */
struct flight *flight_open(void);
void flight_close(struct flight **fp); /* NULL is fine */

/* From the main thread, as the two that follow. */
uint64_t flight_post(struct flight *f, enum flight_op op, enum dtype dt, int64_t count,
                     const char *comm);
/* The call that posted `seq` has returned. */
void flight_returned(struct flight *f, uint64_t seq);
/* All up to and including `seq` are complete. */
void flight_done(struct flight *f, uint64_t seq);
void flight_beat(struct flight *f); /* NULL is fine */
/* The time limit of operations that are posted from now on. */
void flight_allow(struct flight *f, uint64_t limit_ms);

void flight_look(const struct flight *f, struct flight_view *out);
const char *flight_op_name(enum flight_op op);
const char *flight_dtype_name(enum dtype dt);
size_t flight_bytes(const struct flight_entry *x);
/* Writes `head` (a line of JSON) and one line of JSON per entry, oldest first, to `path`, by way
 * of `path`.part: whole or not at all. */
int flight_write(const struct flight *f, const char *path, const char *head);

#endif
