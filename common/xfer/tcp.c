#include "common/xfer/tcp.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/codec/network.h"
#include "common/os/clock.h"

/* --- addresses -------------------------------------------------------------------------------- */

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage room;
};

static union address copy_of(const struct sockaddr *a, socklen_t n)
{
    union address x = {0};

    memcpy(&x, a, n < sizeof x ? n : sizeof x);
    return x;
}

static void set_port(union address *x, unsigned port)
{
    if (x->any.sa_family == AF_INET6) {
        x->v6.sin6_port = htons((uint16_t)port);
    } else {
        x->v4.sin_port = htons((uint16_t)port);
    }
}

/* IPv4 where an IPv6 socket has it as ::ffff:a.b.c.d. */
static void unmap(union address *x, socklen_t *n)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = x->v6.sin6_port};

    if (x->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&x->v6.sin6_addr)) {
        memcpy(&v4.sin_addr, x->v6.sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
        x->v4 = v4;
        *n = sizeof v4;
    }
}

bool tcp_is_loopback(const struct sockaddr *a)
{
    socklen_t n =
        a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    union address x = copy_of(a, n);
    uint8_t address[16] = {[10] = 0xff, [11] = 0xff};

    if (a->sa_family == AF_INET6) {
        memcpy(address, &x.v6.sin6_addr, sizeof address);
    } else if (a->sa_family == AF_INET) {
        memcpy(address + 12, &x.v4.sin_addr, sizeof x.v4.sin_addr);
    }
    return address_is_loopback(address);
}

void tcp_address(const struct sockaddr *a, socklen_t n, char out[TCP_ADDRESS_TEXT])
{
    union address x = copy_of(a, n);

    unmap(&x, &n);
    if (getnameinfo(&x.any, n, out, TCP_ADDRESS_TEXT, NULL, 0, NI_NUMERICHOST) != 0) {
        snprintf(out, TCP_ADDRESS_TEXT, "unknown address");
    }
}

void tcp_localize(int fd, char *address, size_t room)
{
    char *scope = strchr(address, '%'), name[IF_NAMESIZE];
    union address here = {0};
    socklen_t n = sizeof here;

    if (scope != NULL && getsockname(fd, &here.any, &n) == 0 && here.any.sa_family == AF_INET6 &&
        here.v6.sin6_scope_id != 0 && if_indextoname(here.v6.sin6_scope_id, name) != NULL) {
        snprintf(scope, room - (size_t)(scope - address), "%%%s", name);
    }
}

/* --- listening -------------------------------------------------------------------------------- */

static bool is_in_digits(const char *host)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *list = NULL;
    bool is = getaddrinfo(host, NULL, &hints, &list) == 0;

    if (is) {
        freeaddrinfo(list);
    }
    return is;
}

/* 0 or an errno. */
static int listen_at(const struct addrinfo *a, bool may_be_loopback, unsigned port, int *out)
{
    union address at = copy_of(a->ai_addr, a->ai_addrlen);
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int yes = 1, failed;

    set_port(&at, port);
    if (a->ai_family == AF_INET && !may_be_loopback && tcp_is_loopback(a->ai_addr)) {
        at.v4.sin_addr.s_addr = htonl(INADDR_ANY);
    }
    if (fd != -1 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(fd, &at.any, a->ai_addrlen) == 0 && listen(fd, 1024) == 0) {
        *out = fd;
        return 0;
    }
    failed = errno;
    if (fd != -1) {
        close(fd);
    }
    return failed;
}

static int listen_failed(const char *host, unsigned port, unsigned ports, int failed, struct err *e)
{
    int code = failed == EADDRNOTAVAIL ? E_NOTFOUND : E_AGAIN;

    return ports == 1 ? err_set(e, code, "%.100s, port %u: %s", host, port, strerror(failed))
                      : err_set(e, code, "%.100s, ports %u to %u: %s", host, port, port + ports - 1,
                                strerror(failed));
}

int tcp_listen(const char *host, unsigned port, unsigned ports, int *fd, struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    bool may_be_loopback = strcmp(host, "localhost") == 0 || is_in_digits(host);
    int rc = getaddrinfo(host, NULL, &hints, &list);
    int failed = EADDRINUSE;

    *fd = -1;
    if (rc != 0) {
        return err_set(e, E_AGAIN, "%.100s: %s", host, gai_strerror(rc));
    }
    for (unsigned i = 0; *fd == -1 && failed == EADDRINUSE && i < ports; i++) {
        failed = 0;
        for (const struct addrinfo *a = list; a != NULL && *fd == -1; a = a->ai_next) {
            int why = listen_at(a, may_be_loopback, port + i, fd);

            failed = failed == EADDRINUSE ? failed : why;
        }
    }
    freeaddrinfo(list);
    return *fd != -1 ? 0 : listen_failed(host, port, ports, failed, e);
}

unsigned tcp_port(int fd)
{
    union address x = {0};
    socklen_t n = sizeof x;

    (void)getsockname(fd, &x.any, &n);
    return ntohs(x.any.sa_family == AF_INET6 ? x.v6.sin6_port : x.v4.sin_port);
}

/* --- connections ------------------------------------------------------------------------------ */

static bool wait_for_tcp(int fd, short events, struct tcp_limit limit)
{
    struct pollfd p[] = {{.fd = fd, .events = events}, {.fd = limit.wake, .events = POLLIN}};
    uint64_t now;
    int rc = -1;

    while (rc == -1 && (now = clock_now_ms()) < limit.until_ms) {
        uint64_t left = limit.until_ms - now;

        rc = poll(p, ARRAY_LEN(p), left < INT32_MAX ? (int)left : INT32_MAX);
        if (rc == -1 && errno != EINTR) {
            return false;
        }
    }
    return rc > 0 && p[1].revents == 0;
}

/* A port that nobody listens on may be the one that the connection gets itself, and then it is
 * connected to itself. */
static bool reached_itself(int fd)
{
    union address here = {0}, there = {0};
    socklen_t n = sizeof here, m = sizeof there;

    return getsockname(fd, &here.any, &n) == 0 && getpeername(fd, &there.any, &m) == 0 && n == m &&
           memcmp(&here, &there, n) == 0;
}

/* 0 or an errno. */
static int connect_within(int fd, const union address *to, socklen_t size, struct tcp_limit limit)
{
    socklen_t n = sizeof(int);
    int failed = 0;

    if (connect(fd, &to->any, size) == -1) {
        failed = errno;
        if (failed == EINPROGRESS && wait_for_tcp(fd, POLLOUT, limit)) {
            (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &n);
        } else if (failed == EINPROGRESS) {
            failed = ETIMEDOUT;
        }
    }
    return failed != 0 ? failed : reached_itself(fd) ? ECONNREFUSED : 0;
}

int tcp_connect(const struct addrinfo *a, unsigned port, struct tcp_limit limit, int *fd,
                struct err *e)
{
    union address to = copy_of(a->ai_addr, a->ai_addrlen);
    int x = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int failed, yes = 1;

    *fd = -1;
    set_port(&to, port);
    failed = x == -1 ? errno : connect_within(x, &to, a->ai_addrlen, limit);
    if (failed != 0) {
        if (x != -1) {
            close(x);
        }
        return err_set(e, failed == ETIMEDOUT ? E_TIMEOUT : E_NETWORK, "%s", strerror(failed));
    }
    (void)setsockopt(x, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    *fd = x;
    return 0;
}

int tcp_dial(const char *host, unsigned port, struct tcp_limit limit, int *fd, struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int rc = getaddrinfo(host, NULL, &hints, &list);
    unsigned left = 0;

    *fd = -1;
    if (rc != 0) {
        return err_set(e, E_AGAIN, "%s", gai_strerror(rc));
    }
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        left++;
    }
    for (const struct addrinfo *a = list; a != NULL && *fd == -1; a = a->ai_next, left--) {
        uint64_t now = clock_now_ms();
        struct tcp_limit share = limit;

        if (now < limit.until_ms) {
            share.until_ms = now + (limit.until_ms - now) / left;
        }
        rc = tcp_connect(a, port, share, fd, e);
    }
    freeaddrinfo(list);
    return rc;
}

int tcp_receive(int fd, void *to, size_t n, struct tcp_limit limit)
{
    char *p = to;

    while (n > 0) {
        ssize_t got;

        if (!wait_for_tcp(fd, POLLIN, limit)) {
            return E_TIMEOUT;
        }
        got = recv(fd, p, n, 0);
        if (got == 0 || (got == -1 && errno != EAGAIN && errno != EINTR)) {
            return E_NETWORK;
        }
        p += got > 0 ? got : 0;
        n -= got > 0 ? (size_t)got : 0;
    }
    return 0;
}
