/* loop.h - one of N threads that serve connections: an event_base, a message queue, a coarse clock.
 *
 * A connection stays on its loop for life. Code on a loop must not block (docs/architecture.md,
 * Threads): blocking work goes to a pool and comes back as a message to loop->mail.
 *
 * owns     struct loops owns the loops and their threads
 * threads  a loop's fields are its own, except `mail` (post from any thread), `index` and the
 *          atomics
 */
#ifndef SERVER_NET_LOOP_H
#define SERVER_NET_LOOP_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/os/message_queue.h"
#include "server/net/timers.h"

struct event_base;

struct loop {
    struct event_base *base;
    struct message_queue *mail;
    unsigned index;       /* 0 .. loops-1 */
    uint64_t now_ms;      /* monotonic; at most 100 ms old, fresh in a connection's events */
    uint64_t unix_s;      /* wall clock, the same */
    struct timers timers; /* coarse deadlines */
    char date[32];        /* "Fri, 20 Nov 2026 22:00:00 GMT", refreshed with unix_s */
    _Atomic uint64_t connections;    /* open on this loop, for the acceptor's balance */
    _Atomic uint64_t inflight_bytes; /* of answers under way */
    /* serve_loop.h: the state of this loop, with the table of resolved answers */
    void *local;
};

struct loops;

struct loops *loops_open(unsigned count); /* the threads run when it returns */
unsigned loops_count(const struct loops *ls);
struct loop *loops_at(struct loops *ls, unsigned index);
void loop_refresh(
    struct loop *l); /* reads the clocks, for code that an event of its own has woken */
/* Runs fn(loop, arg) on every loop's thread, in no order, without waiting. */
void loops_each(struct loops *ls, void (*fn)(struct loop *l, void *arg), void *arg);
/* Runs fn on this loop and waits until it has returned. From any thread except a loop's. */
void loop_call(struct loop *l, void (*fn)(struct loop *l, void *arg), void *arg);
void loops_close(struct loops **lsp); /* all connections must be gone; joins the threads */

#endif
