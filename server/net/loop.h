/* loop.h - one of N threads that carry connections: an event_base, a message queue, a coarse clock.
 *
 * A connection stays on its loop for life. Nothing on a loop may block (docs/architecture.md,
 * Threads); what blocks goes to a pool and comes back as a message to loop->mail.
 *
 * threads  fields are the loop's own, but `mail` (post from any thread), `index` and the atomics
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
    _Atomic uint64_t connections;    /* open on this loop: what the acceptor balances */
    _Atomic uint64_t inflight_bytes; /* of answers under way */
    void *local;                     /* serve.c's per-loop state: the table of resolved answers */
};

struct loops;

struct loops *loops_open(unsigned count); /* threads run at once */
unsigned loops_count(const struct loops *ls);
struct loop *loops_at(struct loops *ls, unsigned index);
void loop_refresh(
    struct loop *l); /* reads the clocks: for who woke the loop by an event of its own */
/* Runs fn(loop, arg) on every loop's thread, in no order, without waiting. */
void loops_each(struct loops *ls, void (*fn)(struct loop *l, void *arg), void *arg);
/* ... on this one, and waits until it has returned. Any thread but a loop. */
void loop_call(struct loop *l, void (*fn)(struct loop *l, void *arg), void *arg);
void loops_close(struct loops **lsp); /* all connections must be gone; joins the threads */

#endif
