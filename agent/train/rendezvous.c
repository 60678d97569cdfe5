#include "agent/train/rendezvous.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/endian.h"
#include "common/hash/digest.h"
#include "common/os/clock.h"

enum { HELLO_BYTES = 48, PAUSE_MS = 50, PEER_MS = 5000 };

/* "mrdhello", rank and world as u32 LE, then the digest of the run's name. */
static void make_hello(const struct rendezvous *r, int rank, uint8_t out[HELLO_BYTES])
{
    struct digest run;

    memcpy(out, "mrdhello", 8);
    le_put(out + 8, 4, (unsigned)rank);
    le_put(out + 12, 4, (unsigned)r->world);
    digest_of(slice_str(r->run_id), &run);
    memcpy(out + 16, run.b, DIGEST_BYTES);
}

static bool wait_for(int fd, short events, uint64_t deadline_ms)
{
    struct pollfd p = {.fd = fd, .events = events};
    uint64_t now;
    int rc = -1;

    /* A signal is for the run that comes, not for this wait. */
    while (rc == -1 && (now = clock_now_ms()) < deadline_ms) {
        rc = poll(&p, 1, (int)(deadline_ms - now));
        if (rc == -1 && errno != EINTR) {
            return false;
        }
    }
    return rc == 1;
}

static bool receive(int fd, void *to, size_t n, uint64_t deadline_ms)
{
    char *p = to;

    while (n > 0) {
        ssize_t got;

        if (!wait_for(fd, POLLIN, deadline_ms)) {
            return false;
        }
        got = recv(fd, p, n, 0);
        if (got <= 0) {
            return false;
        }
        p += got;
        n -= (size_t)got;
    }
    return true;
}

static bool transmit(int fd, const void *from, size_t n)
{
    return send(fd, from, n, MSG_NOSIGNAL) == (ssize_t)n; /* small: fits any socket buffer */
}

/* --- rank 0 -------------------------------------------------------------------------------------------------------- */

/* Both families by one socket where the host has IPv6. */
static int listen_on(int family, int port, struct err *e)
{
    struct addrinfo hints = {
        .ai_family = family, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *a = NULL;
    char service[16];
    int fd = -1, yes = 1, no = 0, rc;

    snprintf(service, sizeof service, "%d", port);
    rc = getaddrinfo(NULL, service, &hints, &a);
    if (rc != 0) {
        return err_set(e, E_NETWORK, "port %d: %s", port, gai_strerror(rc));
    }
    fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -1 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == -1 ||
        (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == -1) ||
        bind(fd, a->ai_addr, a->ai_addrlen) == -1 || listen(fd, 1024) == -1) {
        rc = err_sys(e, "rendezvous on port %d", port);
        if (fd != -1) {
            close(fd);
        }
        fd = rc;
    }
    freeaddrinfo(a);
    return fd;
}

static int open_listener(int port, struct err *e)
{
    int fd = listen_on(AF_INET6, port, NULL);

    return fd >= 0 ? fd : listen_on(AF_INET, port, e);
}

/* The rank whose hello this is, or -1: another run, another program, or one that we have. */
static int judge_hello(const struct rendezvous *r, const uint8_t got[HELLO_BYTES], const int *peer)
{
    uint8_t want[HELLO_BYTES];

    for (int rank = 1; rank < r->world; rank++) {
        make_hello(r, rank, want);
        if (memcmp(got, want, sizeof want) == 0) {
            return peer[rank] == -1 ? rank : -1;
        }
    }
    return -1;
}

static int gather(const struct rendezvous *r, int listener, int *peer, uint64_t deadline_ms,
                  struct err *e)
{
    int missing = r->world - 1;

    while (missing > 0) {
        uint8_t hello[HELLO_BYTES];
        uint64_t patience;
        int fd, rank = -1;

        if (!wait_for(listener, POLLIN, deadline_ms)) {
            return err_set(e, E_TIMEOUT, "rendezvous: %d of %d ranks did not come", missing,
                           r->world);
        }
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd == -1) {
            continue;
        }
        patience = min_u64(deadline_ms, clock_now_ms() + PEER_MS);
        if (receive(fd, hello, sizeof hello, patience)) {
            rank = judge_hello(r, hello, peer);
        }
        if (rank == -1) {
            close(fd);
            continue;
        }
        peer[rank] = fd;
        missing--;
    }
    return 0;
}

static int serve(const struct rendezvous *r, const void *bytes, size_t n, uint64_t deadline_ms,
                 struct err *e)
{
    int *peer = mem_array((size_t)r->world, sizeof *peer);
    int listener = open_listener(r->port, e), rc;

    for (int i = 0; i < r->world; i++) {
        peer[i] = -1;
    }
    rc = listener < 0 ? listener : gather(r, listener, peer, deadline_ms, e);
    for (int i = 1; i < r->world; i++) {
        if (rc == 0 && !transmit(peer[i], bytes, n)) {
            rc = err_set(e, E_NETWORK, "rendezvous: rank %d went away", i);
        }
        if (peer[i] != -1) {
            close(peer[i]);
        }
    }
    if (listener >= 0) {
        close(listener);
    }
    free(peer);
    return rc;
}

/* --- the others ---------------------------------------------------------------------------------------------------- */

static int dial(const struct rendezvous *r)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char service[16];
    int fd = -1;

    snprintf(service, sizeof service, "%d", r->port);
    if (getaddrinfo(r->host, service, &hints, &list) != 0) {
        return -1;
    }
    for (struct addrinfo *a = list; a != NULL && fd == -1; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd != -1 && connect(fd, a->ai_addr, a->ai_addrlen) == -1) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    return fd;
}

static int ask(const struct rendezvous *r, void *bytes, size_t n, uint64_t deadline_ms,
               struct err *e)
{
    uint8_t hello[HELLO_BYTES];

    make_hello(r, r->rank, hello);
    while (clock_now_ms() <
           deadline_ms) { /* rank 0 may start later, or drop us while an old run still listens */
        int fd = dial(r);
        bool done =
            fd != -1 && transmit(fd, hello, sizeof hello) && receive(fd, bytes, n, deadline_ms);

        if (fd != -1) {
            close(fd);
        }
        if (done) {
            return 0;
        }
        poll(NULL, 0, PAUSE_MS);
    }
    return err_set(e, E_TIMEOUT, "rendezvous: no answer from rank 0 at %s:%d", r->host, r->port);
}

int rendezvous_share(const struct rendezvous *r, void *bytes, size_t n, struct err *e)
{
    uint64_t deadline_ms = clock_now_ms() + r->timeout_ms;

    if (r->world == 1) {
        return 0;
    }
    return r->rank == 0 ? serve(r, bytes, n, deadline_ms, e) : ask(r, bytes, n, deadline_ms, e);
}
