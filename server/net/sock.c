#include "server/net/sock.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/slice.h"

enum { BACKLOG = 4096, SHORT_QUEUE_BYTES = 256 * 1024 };

static int split_address(const char *address, char host[256], const char **port, struct err *e)
{
    const char *colon = strrchr(address, ':');
    struct slice h = colon != NULL ? slice_of(address, (size_t)(colon - address)) : SLICE_NONE;

    if (h.n >= 2 && h.p[0] == '[' && h.p[h.n - 1] == ']') {
        h = slice_of(h.p + 1, h.n - 2);
    } else if (colon == NULL || slice_find(h, ':') >= 0) {
        return err_set(e, E_CONFIG,
                       "%s: invalid address; write ADDRESS:PORT, with an IPv6 "
                       "address in brackets",
                       address);
    }
    if (h.n >= 256) {
        return err_set(e, E_CONFIG, "%.64s...: the address is too long", address);
    }
    snprintf(host, 256, SLICE_FMT, SLICE_ARG(h));
    *port = colon + 1;
    return 0;
}

static int bind_one(const struct addrinfo *ai, int *fd_out)
{
    static const int one = 1;
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd == -1) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (ai->ai_family == AF_INET6) { /* so that 0.0.0.0 and [::] can both be named */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    }
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) == -1 || listen(fd, BACKLOG) == -1) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    *fd_out = fd;
    return 0;
}

int sock_listen(const char *address, int *fd_out, struct err *e)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char host[256];
    const char *port = NULL;
    int rc = split_address(address, host, &port, e);

    if (rc != 0) {
        return rc;
    }
    rc = getaddrinfo(host[0] != '\0' ? host : "0.0.0.0", port, &hints, &found);
    if (rc != 0) {
        return err_set(e, E_CONFIG, "%s: %s", address, gai_strerror(rc));
    }
    if (bind_one(found, fd_out) == -1) {
        int why = errno;
        rc = err_sys(e, "cannot listen on %s", address);
        if (why == EADDRINUSE) {
            err_set(e, rc,
                    "cannot listen on %s: the port is in use; `ss -ltnp` shows by which "
                    "process",
                    address);
        } else if (why == EADDRNOTAVAIL) {
            err_set(e, rc, "cannot listen on %s: this machine does not have that address", address);
        } else if (why == EACCES) {
            err_set(e, rc,
                    "cannot listen on %s: so low a port needs CAP_NET_BIND_SERVICE or a lower "
                    "sysctl net.ipv4.ip_unprivileged_port_start",
                    address);
        }
    }
    freeaddrinfo(found);
    return rc;
}

static void sock_text(const struct sockaddr *sa, char out[SOCK_TEXT_BYTES])
{
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];
    socklen_t n =
        sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

    if (getnameinfo(sa, n, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) !=
        0) {
        snprintf(out, SOCK_TEXT_BYTES, "?");
        return;
    }
    snprintf(out, SOCK_TEXT_BYTES, sa->sa_family == AF_INET6 ? "[%.48s]:%.6s" : "%.48s:%.6s", host,
             port);
}

void sock_bound(int fd, char out[SOCK_TEXT_BYTES])
{
    struct sockaddr_storage ss = {.ss_family = AF_UNSPEC};
    socklen_t n = sizeof ss;

    getsockname(fd, (struct sockaddr *)&ss, &n);
    sock_text((struct sockaddr *)&ss, out);
}

void sock_tune(int fd)
{
    static const int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

void sock_short_queue(int fd)
{
    static const int bytes = SHORT_QUEUE_BYTES;

    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

bool sock_delivers(int fd)
{
    int n = 0;

    return ioctl(fd, SIOCOUTQ, &n) == 0 && n > 0;
}
