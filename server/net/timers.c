#include "server/net/timers.h"

void timers_init(struct timers *w, uint64_t now_ms)
{
    w->step = now_ms / TIMERS_STEP_MS;
    for (size_t i = 0; i < TIMERS_SLOTS; i++) {
        list_init(&w->slots[i]);
    }
}

void timer_set(struct timers *w, struct timer *t, uint64_t due_ms)
{
    uint64_t step = due_ms / TIMERS_STEP_MS + 1;

    list_remove_if(&t->node);
    t->due_ms = due_ms;
    list_push_back(&w->slots[max_u64(step, w->step + 1) % TIMERS_SLOTS], &t->node);
}

void timer_stop(struct timer *t)
{
    list_remove_if(&t->node);
}

static void run_slot(struct timers *w, struct list *slot, uint64_t now_ms)
{
    struct list batch;
    struct list *n;

    /* What fires may stop or set any other timer: take them out first, then one by one. */
    list_init(&batch);
    while ((n = list_pop_front(slot)) != NULL) {
        list_push_back(&batch, n);
    }
    while ((n = list_pop_front(&batch)) != NULL) {
        struct timer *t = LIST_ITEM(n, struct timer, node);
        if (t->due_ms <= now_ms) {
            t->fire(t);
        } else {
            timer_set(w, t, t->due_ms); /* a later turn of the wheel */
        }
    }
}

void timers_run(struct timers *w, uint64_t now_ms)
{
    uint64_t until = now_ms / TIMERS_STEP_MS;

    /* After a long sleep one turn visits every slot; more would find nothing new. */
    if (until > w->step + TIMERS_SLOTS) {
        w->step = until - TIMERS_SLOTS;
    }
    while (w->step < until) {
        w->step++;
        run_slot(w, &w->slots[w->step % TIMERS_SLOTS], now_ms);
    }
}
