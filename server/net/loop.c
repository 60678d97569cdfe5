#include "server/net/loop.h"

#include <event2/event.h>
#include <stdlib.h>

#include "common/codec/httpdate.h"
#include "common/os/clock.h"
#include "common/os/lock.h"

struct loop_thread {
    struct loop loop;
    struct event *tick;
    struct message stop;
    pthread_t thread;
};

struct loops {
    unsigned count;
    struct loop_thread at[];
};

struct loop_task { /* one loop's share of loops_each() */
    struct message message;
    struct loop *loop;
    void (*fn)(struct loop *l, void *arg);
    void *arg;
};

void loop_refresh(struct loop *l)
{
    uint64_t now_ms = clock_now_ms();
    uint64_t unix_s;

    if (now_ms == l->now_ms) {
        return;
    }
    l->now_ms = now_ms;
    unix_s = clock_unix_s();
    if (unix_s != l->unix_s) {
        l->unix_s = unix_s;
        httpdate_format(unix_s, l->date);
    }
}

static void on_net_loop_tick(evutil_socket_t fd, short what, void *arg)
{
    struct loop *l = arg;

    (void)fd;
    (void)what;
    loop_refresh(l);
    timers_run(&l->timers, l->now_ms);
}

static void *run_loop(void *arg)
{
    struct loop_thread *t = arg;

    event_base_loop(t->loop.base, EVLOOP_NO_EXIT_ON_EMPTY);
    message_queue_close(&t->loop.mail);
    return NULL;
}

static void open_thread(struct loop_thread *t, unsigned index, struct event_config *config)
{
    static const struct timeval step = {.tv_usec = TIMERS_STEP_MS * 1000};

    t->loop.index = index;
    t->loop.base = event_base_new_with_config(config);
    CHECK(t->loop.base != NULL);
    t->loop.mail = message_queue_open(t->loop.base);
    loop_refresh(&t->loop);
    timers_init(&t->loop.timers, t->loop.now_ms);
    t->tick = event_new(t->loop.base, -1, EV_PERSIST, on_net_loop_tick, &t->loop);
    CHECK(t->tick != NULL && event_add(t->tick, &step) == 0);
    t->thread = thread_start("loop", run_loop, t);
}

struct loops *loops_open(unsigned count)
{
    struct loops *ls = mem_new(sizeof *ls + count * sizeof ls->at[0]);
    struct event_config *config = event_config_new();

    CHECK(count > 0 && config != NULL);
    /* A base is touched by its own thread alone; others write to the message queue's eventfd. */
    CHECK(event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV) == 0);
    ls->count = count;
    for (unsigned i = 0; i < count; i++) {
        open_thread(&ls->at[i], i, config);
    }
    event_config_free(config);
    return ls;
}

unsigned loops_count(const struct loops *ls)
{
    return ls->count;
}

struct loop *loops_at(struct loops *ls, unsigned index)
{
    CHECK(index < ls->count);
    return &ls->at[index].loop;
}

static void on_loop_task(struct message *message)
{
    struct loop_task *r = CONTAINER_OF(message, struct loop_task, message);

    loop_refresh(r->loop);
    r->fn(r->loop, r->arg);
    free(r);
}

void loops_each(struct loops *ls, void (*fn)(struct loop *l, void *arg), void *arg)
{
    for (unsigned i = 0; i < ls->count; i++) {
        struct loop_task *r = NEW(struct loop_task);
        *r = (struct loop_task){
            .message.deliver = on_loop_task, .loop = loops_at(ls, i), .fn = fn, .arg = arg};
        message_queue_post(r->loop->mail, &r->message);
    }
}

struct summons { /* loop_call()'s */
    struct message message;
    struct loop *loop;
    void (*fn)(struct loop *l, void *arg);
    void *arg;
    struct lock lock;
    struct cond news;
    bool over;
};

static void on_summons(struct message *message)
{
    struct summons *s = CONTAINER_OF(message, struct summons, message);

    s->fn(s->loop, s->arg);
    lock_take(&s->lock);
    s->over = true;
    cond_signal(&s->news);
    lock_drop(&s->lock);
}

void loop_call(struct loop *l, void (*fn)(struct loop *l, void *arg), void *arg)
{
    struct summons s = {.message.deliver = on_summons, .loop = l, .fn = fn, .arg = arg};

    lock_init(&s.lock, LOCK_LEAF);
    cond_init(&s.news);
    message_queue_post(l->mail, &s.message);
    lock_take(&s.lock);
    while (!s.over) {
        cond_wait(&s.news, &s.lock);
    }
    lock_drop(&s.lock);
    cond_fini(&s.news);
    lock_fini(&s.lock);
}

static void on_net_loop_stop(struct message *message)
{
    struct loop_thread *t = CONTAINER_OF(message, struct loop_thread, stop);
    event_base_loopbreak(t->loop.base);
}

void loops_close(struct loops **lsp)
{
    struct loops *ls = *lsp;

    if (ls == NULL) {
        return;
    }
    *lsp = NULL;
    for (unsigned i = 0; i < ls->count; i++) {
        ls->at[i].stop.deliver = on_net_loop_stop;
        message_queue_post(ls->at[i].loop.mail, &ls->at[i].stop);
    }
    for (unsigned i = 0; i < ls->count; i++) {
        struct loop_thread *t = &ls->at[i];
        pthread_join(t->thread, NULL);
        event_free(t->tick);
        event_base_free(t->loop.base);
    }
    free(ls);
}
