#include "server/sync/rsync/tunnel.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct tunnel {
    int fd;
    struct buf ask;    /* what of it is still to be sent */
    struct buf answer; /* so far; all of it is the proxy's */
    struct event *on_write;
    struct event *on_read;
    void (*done)(void *arg, int fd, const struct err *why);
    void *arg;
};

void tunnel_close(struct tunnel **tp)
{
    struct tunnel *t = *tp;

    if (t == NULL) {
        return;
    }
    *tp = NULL;
    event_free(t->on_write);
    event_free(t->on_read);
    if (t->fd != -1) {
        close(t->fd);
    }
    buf_free(&t->ask);
    buf_free(&t->answer);
    free(t);
}

static void finish(struct tunnel *t, int rc, const struct err *why)
{
    int fd = rc == 0 ? t->fd : -1;

    event_del(t->on_write);
    event_del(t->on_read);
    if (rc == 0) {
        t->fd = -1; /* the owner's from now on */
    }
    t->done(t->arg, fd, why);
}

static void broken(struct tunnel *t)
{
    struct err e = {.code = 0};
    int rc = err_set(&e, E_NETWORK, "the proxy closed the connection");

    finish(t, rc, &e);
}

static void can_write(evutil_socket_t fd, short what, void *arg)
{
    struct tunnel *t = arg;
    ssize_t sent;

    (void)what;
    do {
        sent = send(fd, t->ask.p, t->ask.n, MSG_NOSIGNAL);
    } while (sent == -1 && errno == EINTR);
    if (sent >= 0) {
        buf_drop(&t->ask, (size_t)sent);
    } else if (errno != EAGAIN) {
        broken(t);
        return;
    }
    if (t->ask.n > 0) {
        event_add(t->on_write, NULL);
    } else {
        event_add(t->on_read, NULL);
    }
}

/* Looks before it takes: what stands behind the end of the answer is not ours. */
static void can_read(evutil_socket_t fd, short what, void *arg)
{
    struct tunnel *t = arg;
    char room[1024];
    struct err e = {.code = 0};
    size_t before = t->answer.n, used = 0;
    ssize_t got;
    int rc;

    (void)what;
    do {
        got = recv(fd, room, sizeof room, MSG_PEEK);
    } while (got == -1 && errno == EINTR);
    if (got <= 0) {
        if (got == 0 || errno != EAGAIN) {
            broken(t);
        }
        return;
    }
    buf_add(&t->answer, room, (size_t)got);
    rc = proxy_answer(buf_slice(&t->answer), &used, &e);
    if (rc == 0) {
        got = (ssize_t)(used - before);
    }
    if (recv(fd, room, (size_t)got, 0) != got) {
        broken(t);
    } else if (rc != E_AGAIN) {
        finish(t, rc, &e);
    }
}

struct tunnel *tunnel_open(struct event_base *base, int fd, struct buf *ask,
                           void (*done)(void *arg, int fd, const struct err *why), void *arg)
{
    struct tunnel *t = NEW(struct tunnel);

    *t = (struct tunnel){.fd = fd, .ask = *ask, .done = done, .arg = arg};
    *ask = BUF_INIT(0);
    t->answer = BUF_INIT(PROXY_ANSWER_MAX + 1024);
    t->on_write = event_new(base, fd, EV_WRITE, can_write, t);
    t->on_read = event_new(base, fd, EV_READ | EV_PERSIST, can_read, t);
    CHECK(t->on_write != NULL && t->on_read != NULL);
    event_add(t->on_write, NULL);
    return t;
}
