/* timers.h - coarse timers: one wheel for each loop, which can hold a hundred thousand timers at
 * the cost of their list nodes.
 *
 * A timer fires once, at most TIMERS_STEP_MS after its due time. Setting one takes two list
 * operations, so a connection can do it for every request.
 *
 * owns     a timer is embedded in its owner; stop it before the owner is freed
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
/* moves it if it is set already */
void timer_set(struct timers *w, struct timer *t, uint64_t due_ms);
void timer_stop(struct timer *t);

#endif
