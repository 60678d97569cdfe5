#include "server/sync/rsync/race.h"

#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"

enum { NEXT_MS = 250 }; /* RFC 8305 (8) */

struct runner { /* one address */
    struct race *race;
    const struct addrinfo *to;
    int fd; /* or -1: not begun, or failed */
    struct event *on_write;
};

struct race {
    struct event_base *base;
    void (*won)(void *arg, int fd, const char *why);
    void *arg;
    struct event *turn; /* of the next runner to begin */
    struct runner *runner;
    size_t count, begun, running;
    const char *why; /* of the last that failed */
};

static void stop(struct runner *x)
{
    if (x->on_write != NULL) {
        event_free(x->on_write);
        x->on_write = NULL;
    }
    if (x->fd != -1) {
        close(x->fd);
        x->fd = -1;
    }
}

void race_close(struct race **rp)
{
    struct race *r = *rp;

    *rp = NULL;
    if (r == NULL) {
        return;
    }
    for (size_t i = 0; i < r->count; i++) {
        stop(&r->runner[i]);
    }
    event_free(r->turn);
    free(r->runner);
    free(r);
}

static void go_on(struct race *r);

static void finish(struct runner *x)
{
    struct race *r = x->race;
    int fd = x->fd;

    x->fd = -1;
    for (size_t i = 0; i < r->count; i++) {
        stop(&r->runner[i]);
    }
    event_del(r->turn);
    r->won(r->arg, fd, NULL);
}

static void on_write(evutil_socket_t fd, short what, void *arg)
{
    struct runner *x = arg;
    int why = 0;
    socklen_t n = sizeof why;

    (void)what;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n) == -1) {
        why = errno;
    }
    if (why == 0) {
        finish(x);
        return;
    }
    stop(x);
    x->race->running--;
    x->race->why = strerrordesc_np(why);
    go_on(x->race);
}

static bool begin(struct runner *x)
{
    const struct addrinfo *to = x->to;

    x->fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (x->fd == -1 ||
        (connect(x->fd, to->ai_addr, to->ai_addrlen) == -1 && errno != EINPROGRESS)) {
        x->race->why = strerrordesc_np(errno);
        stop(x);
        return false;
    }
    x->on_write = event_new(x->race->base, x->fd, EV_WRITE, on_write, x);
    CHECK(x->on_write != NULL && event_add(x->on_write, NULL) == 0);
    return true;
}

/* The next one that can begin does; when there is none, and nobody runs, all have lost. */
static void go_on(struct race *r)
{
    static const struct timeval next = {.tv_usec = NEXT_MS * 1000};

    event_del(r->turn);
    while (r->begun < r->count) {
        if (begin(&r->runner[r->begun++])) {
            r->running++;
            CHECK(event_add(r->turn, &next) == 0);
            return;
        }
    }
    if (r->running == 0) {
        r->won(r->arg, -1, r->why);
    }
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
    struct race *r = arg;

    (void)fd;
    (void)what;
    go_on(r);
}

/* The first address of its family that is not in line yet, `other` or not; NULL: there is none. */
static const struct addrinfo *first_of(const struct race *r, const struct addrinfo *all, int family,
                                       bool other)
{
    for (const struct addrinfo *a = all; a != NULL; a = a->ai_next) {
        size_t i = 0;
        while (i < r->count && r->runner[i].to != a) {
            i++;
        }
        if (i == r->count && (a->ai_family == family) != other) {
            return a;
        }
    }
    return NULL;
}

/* Whoever has a dead way to one family should not wait for all of its addresses. */
static void line_up(struct race *r, const struct addrinfo *all)
{
    const struct addrinfo *a = all;

    while (a != NULL) {
        int family = a->ai_family;
        r->runner[r->count++] = (struct runner){.race = r, .to = a, .fd = -1};
        a = first_of(r, all, family, true);
        a = a != NULL ? a : first_of(r, all, family, false);
    }
}

struct race *race_open(struct event_base *base, const struct addrinfo *addresses,
                       void (*won)(void *arg, int fd, const char *why), void *arg)
{
    static const struct timeval now = {0};
    struct race *r = NEW(struct race);
    size_t n = 0;

    for (const struct addrinfo *a = addresses; a != NULL; a = a->ai_next) {
        n++;
    }
    CHECK(n > 0);
    r->base = base;
    r->won = won;
    r->arg = arg;
    r->runner = mem_array(n, sizeof *r->runner);
    line_up(r, addresses);
    r->turn = evtimer_new(base, on_turn, r);
    CHECK(r->turn != NULL && event_add(r->turn, &now) == 0);
    return r;
}
