/* pool.h - threads for work that blocks: disk, hashing, RocksDB reads, DNS.
 *
 * A job is embedded in the object that it works on. work() runs on a pool thread; then done(), if
 * set, runs on the loop of `reply` (a message queue). A submitted job always runs; to cancel, set
 * a flag that work() checks.
 *
 * owns     the submitter keeps the job alive until done() has run (or work() has returned, without
 *          a reply)
 * fair     jobs of different clients take turns, and one client's jobs never occupy all threads
 *          (fair_queue.h)
 * threads  pool_submit from any; pool_close waits for all jobs
 */
#ifndef COMMON_OS_POOL_H
#define COMMON_OS_POOL_H

#include "common/base/fair_queue.h"
#include "common/os/message_queue.h"

struct pool;

struct job {
    struct fair_item item; /* private */
    void (*work)(struct job *j);
    void (*done)(struct job *j); /* NULL: the end is not reported */
    struct message_queue *reply; /* where done() runs; may be NULL only without done */
    struct message message;      /* private */
};

/* `nice` is added to its threads' niceness, 0..19: work that may wait leaves the cores to the
 * loops. */
struct pool *pool_open(const char *name, unsigned threads, int nice);
/* client: for which it works; CLIENT_PROGRAM: the program itself. */
void pool_submit(struct pool *p, struct job *j, uint64_t client);
/* Another client waits for the job too: it runs in the turn that comes first. Has no effect when
 * it runs or has run. */
void pool_move(struct pool *p, struct job *j, uint64_t client);
void pool_close(struct pool **pp);
unsigned pool_waiting(struct pool *p); /* jobs not yet started: a gauge */
unsigned pool_waiting_of(struct pool *p, uint64_t client);

#endif
