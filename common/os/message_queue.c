#include "common/os/message_queue.h"

#include <event2/event.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/os/lock.h"

struct message_queue {
    struct lock lock;
    struct list messages;
    struct event *ev;
    int fd;
};

static void deliver_all(struct message_queue *m)
{
    struct list batch;
    struct list *n;

    list_init(&batch);
    lock_take(&m->lock);
    while ((n = list_pop_front(&m->messages)) != NULL) {
        list_push_back(&batch, n);
    }
    lock_drop(&m->lock);
    while ((n = list_pop_front(&batch)) != NULL) {
        struct message *l = LIST_ITEM(n, struct message, node);
        l->deliver(l);
    }
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);

    (void)what;
    (void)got; /* a spurious wake is harmless */
    deliver_all(arg);
}

struct message_queue *message_queue_open(struct event_base *base)
{
    struct message_queue *m = NEW(struct message_queue);

    lock_init(&m->lock, LOCK_MESSAGE_QUEUE);
    list_init(&m->messages);
    m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(m->fd != -1);
    m->ev = event_new(base, m->fd, EV_READ | EV_PERSIST, on_wake, m);
    CHECK(m->ev != NULL && event_add(m->ev, NULL) == 0);
    return m;
}

void message_queue_post(struct message_queue *m, struct message *l)
{
    bool first;

    lock_take(&m->lock);
    first = list_empty(&m->messages);
    list_push_back(&m->messages, &l->node);
    lock_drop(&m->lock);
    if (first) {
        uint64_t one = 1;
        ssize_t n = write(m->fd, &one, sizeof one);
        (void)n; /* EAGAIN means that a wake-up is pending already */
    }
}

void message_queue_close(struct message_queue **mp)
{
    struct message_queue *m = *mp;

    if (m == NULL) {
        return;
    }
    *mp = NULL;
    deliver_all(m);
    event_free(m->ev);
    close(m->fd);
    lock_fini(&m->lock);
    free(m);
}
