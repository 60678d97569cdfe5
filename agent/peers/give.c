#include "agent/peers/give.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/peers/guest.h"
#include "common/os/clock.h"
#include "common/os/lock.h"

enum { SWEEP_MS = 1000 };

struct give {
    struct hall hall;
    pthread_t thread;
    int fd;
    int stop; /* eventfd */
    uint16_t port;
    struct event *on_guest;
    struct event *on_stop;
    struct event *on_sweep;
};

static void arrive(evutil_socket_t fd, short what, void *arg)
{
    struct give *g = arg;
    const int on = 1;
    int guest;

    (void)what;
    while ((guest = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) != -1) {
        if (g->hall.nguests >= GIVE_GUESTS) {
            close(guest);
            continue;
        }
        setsockopt(guest, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        guest_open(&g->hall, guest, clock_now_ms());
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        event_del(
            g->on_guest); /* no descriptor is left: those who wait are asked in with the next sweep */
    }
}

static void sweep(evutil_socket_t fd, short what, void *arg)
{
    struct give *g = arg;
    uint64_t now_ms = clock_now_ms();

    (void)fd;
    (void)what;
    LIST_EACH (&g->hall.guests, n) {
        if (guest_is_late(guest_of(n), now_ms)) {
            guest_close(guest_of(n));
        }
    }
    event_add(g->on_guest, NULL);
}

static void stop(evutil_socket_t fd, short what, void *arg)
{
    struct give *g = arg;

    (void)fd;
    (void)what;
    event_base_loopbreak(g->hall.base);
}

static void *run(void *arg)
{
    struct give *g = arg;

    event_base_dispatch(g->hall.base);
    LIST_EACH (&g->hall.guests, n) {
        guest_close(guest_of(n));
    }
    return NULL;
}

/* "::" is IPv4's, too; a kernel without IPv6 has that alone. */
static int open_socket(const char *address, bool *is4)
{
    const int off = 0;
    int fd = -1;

    if (!*is4) {
        fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        *is4 = fd == -1 && errno == EAFNOSUPPORT && strcmp(address, "::") == 0;
    }
    if (*is4) {
        return socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    }
    if (fd != -1) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    return fd;
}

static int listen_at(const char *address, uint16_t port, int *out, uint16_t *got, struct err *e)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    bool is4 = inet_pton(AF_INET, address, &v4.sin_addr) == 1;
    const struct sockaddr *at;
    struct sockaddr_in6 bound;
    socklen_t nbound = sizeof bound;
    const int on = 1;
    int fd;

    if (!is4 && inet_pton(AF_INET6, address, &v6.sin6_addr) != 1) {
        return err_set(e, E_CONFIG, "peers: address \"%.60s\" is none; write one such as 10.0.0.7",
                       address);
    }
    fd = open_socket(address, &is4);
    if (fd == -1) {
        return err_sys(e, "socket");
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    at = is4 ? (const struct sockaddr *)&v4 : (const struct sockaddr *)&v6;
    if (bind(fd, at, is4 ? sizeof v4 : sizeof v6) == -1 || listen(fd, 128) == -1 ||
        getsockname(fd, (struct sockaddr *)&bound, &nbound) == -1) {
        int rc = err_sys(e, "%s port %u", address, port);
        close(fd);
        return rc;
    }
    *got = ntohs(bound.sin6_port); /* the same place as sin_port */
    *out = fd;
    return 0;
}

int give_open(struct gifts *gifts, const char *address, uint16_t port, unsigned uploads,
              struct give **out, struct err *e)
{
    const struct timeval every = {SWEEP_MS / 1000, SWEEP_MS % 1000 * 1000};
    struct give *g;
    uint16_t got = 0;
    int fd = -1;
    int rc = listen_at(address, port, &fd, &got, e);

    *out = NULL;
    if (rc != 0) {
        return rc;
    }
    g = NEW(struct give);
    g->fd = fd;
    g->port = got;
    g->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    g->hall.base = event_base_new();
    CHECK(g->stop != -1 && g->hall.base != NULL);
    g->hall.gifts = gifts;
    g->hall.uploads = uploads;
    g->hall.scratch = mem_new(GUEST_SCRATCH);
    g->hall.tls = psk_server(guest_knock, &g->hall);
    list_init(&g->hall.guests);
    g->on_guest = event_new(g->hall.base, fd, EV_READ | EV_PERSIST, arrive, g);
    g->on_stop = event_new(g->hall.base, g->stop, EV_READ, stop, g);
    g->on_sweep = event_new(g->hall.base, -1, EV_PERSIST, sweep, g);
    CHECK(g->on_guest != NULL && g->on_stop != NULL && g->on_sweep != NULL);
    CHECK(event_add(g->on_guest, NULL) == 0 && event_add(g->on_stop, NULL) == 0 &&
          event_add(g->on_sweep, &every) == 0);
    g->thread = thread_start("give", run, g);
    *out = g;
    return 0;
}

uint16_t give_port(const struct give *g)
{
    return g->port;
}

void give_close(struct give **gp)
{
    struct give *g = *gp;

    if (g == NULL) {
        return;
    }
    *gp = NULL;
    CHECK(eventfd_write(g->stop, 1) == 0);
    CHECK(pthread_join(g->thread, NULL) == 0);
    event_free(g->on_guest);
    event_free(g->on_stop);
    event_free(g->on_sweep);
    event_base_free(g->hall.base);
    SSL_CTX_free(g->hall.tls);
    close(g->fd);
    close(g->stop);
    free(g->hall.scratch);
    free(g);
}
