#include "server/cluster/loop_pool.h"

#include <event2/event.h>
#include <stdlib.h>

#include "common/os/clock.h"
#include "common/os/lock.h"
#include "common/xfer/xfer.h"
#include "server/cluster/member.h"

struct loop_pool {
    struct lock lock; /* LOCK_LEAF; guards what follows */
    struct list idle; /* struct pool_loop; the one that was used last comes first */
    unsigned count;
};

static struct pool_loop *open_loop(void)
{
    const struct xfer_limits limits = {.connections = MEMBERS_MAX, .host_connections = 2};
    struct event_config *config = event_config_new();
    struct pool_loop *l = NEW(struct pool_loop);

    CHECK(config != NULL);
    CHECK(event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV) == 0);
    l->base = event_base_new_with_config(config);
    CHECK(l->base != NULL);
    event_config_free(config);
    l->transfers = xfer_loop_open(l->base, &limits);
    return l;
}

static void close_loop(struct pool_loop *l)
{
    xfer_loop_close(&l->transfers);
    event_base_free(l->base);
    free(l);
}

/* The one that was used last: so those that are not needed any more grow old. */
struct pool_loop *loop_pool_take(struct loop_pool *p)
{
    struct pool_loop *l = NULL;

    lock_take(&p->lock);
    if (p->count != 0) {
        l = LIST_ITEM(list_pop_front(&p->idle), struct pool_loop, node);
        p->count--;
    }
    lock_drop(&p->lock);
    return l != NULL ? l : open_loop();
}

/* One that is to be closed, or NULL. */
static struct pool_loop *take_surplus(struct loop_pool *p, uint64_t now_ms)
{
    struct pool_loop *l = NULL;

    lock_take(&p->lock);
    if (p->count != 0) {
        l = LIST_ITEM(p->idle.prev, struct pool_loop, node);
        if (p->count > LOOP_POOL_MAX || now_ms >= l->idle_since_ms + LOOP_POOL_IDLE_MS) {
            list_remove(&l->node);
            p->count--;
        } else {
            l = NULL;
        }
    }
    lock_drop(&p->lock);
    return l;
}

void loop_pool_tidy(struct loop_pool *p, uint64_t now_ms)
{
    struct pool_loop *l;

    while ((l = take_surplus(p, now_ms)) != NULL) {
        close_loop(l);
    }
}

void loop_pool_put(struct loop_pool *p, struct pool_loop *l)
{
    l->idle_since_ms = clock_now_ms();
    lock_take(&p->lock);
    list_push_front(&p->idle, &l->node);
    p->count++;
    lock_drop(&p->lock);
    loop_pool_tidy(p, l->idle_since_ms);
}

struct loop_pool *loop_pool_open(void)
{
    struct loop_pool *p = NEW(struct loop_pool);

    lock_init(&p->lock, LOCK_LEAF);
    list_init(&p->idle);
    return p;
}

void loop_pool_close(struct loop_pool **pp)
{
    struct loop_pool *p = *pp;

    *pp = NULL;
    if (p != NULL) {
        loop_pool_tidy(p, UINT64_MAX);
        lock_fini(&p->lock);
        free(p);
    }
}
