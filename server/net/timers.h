/* timers.h - coarse deadlines: one wheel a loop, a hundred thousand timers for the price of their
 * list nodes.
 *
 * A timer fires once, at or up to TIMERS_STEP_MS after its due time. Setting one is two list
 * operations, so a connection may do it for every request.
 *
 * owns     the timer is embedded in what it concerns; stop it before that goes
 * threads  one loop
 */
#ifndef SERVER_NET_TIMERS_H
#define SERVER_NET_TIMERS_H

#include <stdint.h>

#include "common/base/list.h"

enum { TIMERS_STEP_MS = 100, TIMERS_SLOTS = 512 };

struct timer {
    struct list node;
    uint64_t due_ms;
    void (*fire)(struct timer *t); /* may free the timer */
};

struct timers {
    uint64_t step; /* the last one that was run */
    struct list slots[TIMERS_SLOTS];
};

void timers_init(struct timers *w, uint64_t now_ms);
void timers_run(struct timers *w, uint64_t now_ms);
void timer_set(struct timers *w, struct timer *t, uint64_t due_ms); /* moves it when it is set */
void timer_stop(struct timer *t);

#endif
