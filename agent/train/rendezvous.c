#include "agent/train/rendezvous.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/endian.h"
#include "common/hash/digest.h"
#include "common/os/clock.h"
#include "common/os/descriptor.h"
#include "common/xfer/tcp.h"

enum { HELLO_BYTES = 48, REPLY_BYTES = 40, PAUSE_MS = 50, PEER_MS = 5000, STRANGERS = 64 };

static void name_run(const struct rendezvous *r, const char *role, struct digest *out)
{
    struct hasher *h = hasher_new_whole();

    hasher_add(h, role, strlen(role));
    hasher_add(h, r->run_id, strlen(r->run_id) + 1);
    hasher_add(h, r->generation, strlen(r->generation) + 1);
    hasher_final(h, out);
    hasher_free(&h);
}

/* "mrdhello", rank and world as u32 LE, then the digest of the run's name and generation. */
static void make_hello(const struct rendezvous *r, int rank, uint8_t out[HELLO_BYTES])
{
    struct digest run;

    memcpy(out, "mrdhello", 8);
    le_put(out + 8, 4, (unsigned)rank);
    le_put(out + 12, 4, (unsigned)r->world);
    name_run(r, "hello", &run);
    memcpy(out + 16, run.b, DIGEST_BYTES);
}

/* What stands before the bytes: only rank 0 of this run says it, and no program that echoes. */
static void make_reply(const struct rendezvous *r, uint8_t out[REPLY_BYTES])
{
    struct digest run;

    memcpy(out, "mrdreply", 8);
    name_run(r, "reply", &run);
    memcpy(out + 8, run.b, DIGEST_BYTES);
}

static bool transmit(int fd, const void *from, size_t n)
{
    return send(fd, from, n, MSG_NOSIGNAL) == (ssize_t)n; /* small: fits any socket buffer */
}

/* --- rank 0 ----------------------------------------------------------------------------------- */

/* A late process of an earlier attempt may have the port for a while, and a name may not be known
 * at once. */
static int open_listener(const struct rendezvous *r, uint64_t deadline_ms, int *fd, struct err *e)
{
    for (;;) {
        int rc = tcp_listen(r->host, (unsigned)r->port, 1, fd, e);

        if (rc == 0 || clock_now_ms() >= deadline_ms) {
            err_prefix(e, "rendezvous");
            return rc;
        }
        poll(NULL, 0, PAUSE_MS);
    }
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

/* Somebody at the port who has not said hello in full. */
struct stranger {
    int fd; /* -1: the place is free */
    size_t n;
    uint64_t until_ms, came_ms;
    uint8_t hello[HELLO_BYTES];
};

static void drop_stranger(struct stranger *s)
{
    if (s->fd != -1) {
        close(s->fd);
    }
    *s = (struct stranger){.fd = -1};
}

/* The oldest one goes where there is no place for the next. */
static void accept_stranger(struct stranger *strangers, int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct stranger *place = strangers;

    for (int i = 1; i < STRANGERS && place->fd != -1; i++) {
        if (strangers[i].fd == -1 || strangers[i].came_ms < place->came_ms) {
            place = &strangers[i];
        }
    }
    if (fd != -1) {
        uint64_t now = clock_now_ms();

        drop_stranger(place);
        *place = (struct stranger){.fd = fd, .came_ms = now, .until_ms = now + PEER_MS};
    }
}

/* True: it was a rank, whose socket is now in peer[]. */
static bool receive_stranger(const struct rendezvous *r, struct stranger *s, int *peer)
{
    ssize_t got = recv(s->fd, s->hello + s->n, HELLO_BYTES - s->n, MSG_DONTWAIT);
    int rank;

    if (got == -1 && (errno == EAGAIN || errno == EINTR)) {
        return false;
    }
    s->n += got > 0 ? (size_t)got : 0;
    rank = s->n == HELLO_BYTES ? judge_hello(r, s->hello, peer) : -1;
    if (rank != -1) {
        peer[rank] = s->fd;
        s->fd = -1;
    }
    if (got <= 0 || s->n == HELLO_BYTES) {
        drop_stranger(s);
    }
    return rank != -1;
}

static int gather_ranks(const struct rendezvous *r, int listener, int *peer, uint64_t deadline_ms,
                        struct err *e)
{
    struct stranger strangers[STRANGERS];
    int missing = r->world - 1;

    for (int i = 0; i < STRANGERS; i++) {
        strangers[i] = (struct stranger){.fd = -1};
    }
    while (missing > 0 && clock_now_ms() < deadline_ms) {
        struct pollfd p[STRANGERS + 1] = {{.fd = listener, .events = POLLIN}};

        for (int i = 0; i < STRANGERS; i++) {
            p[i + 1] = (struct pollfd){.fd = strangers[i].fd, .events = POLLIN};
        }
        (void)poll(p, STRANGERS + 1, PAUSE_MS);
        for (int i = 0; i < STRANGERS; i++) {
            if (p[i + 1].revents != 0 && receive_stranger(r, &strangers[i], peer)) {
                missing--;
            } else if (strangers[i].fd != -1 && clock_now_ms() >= strangers[i].until_ms) {
                drop_stranger(&strangers[i]);
            }
        }
        if (p[0].revents != 0) {
            accept_stranger(strangers, listener);
        }
    }
    for (int i = 0; i < STRANGERS; i++) {
        drop_stranger(&strangers[i]);
    }
    return missing == 0
               ? 0
               : err_set(e, E_TIMEOUT, "rendezvous: %d of %d ranks did not connect in time",
                         missing, r->world);
}

static int serve_rendezvous(const struct rendezvous *r, const void *bytes, size_t n,
                            uint64_t deadline_ms, struct err *e)
{
    int *peer = mem_array((size_t)r->world, sizeof *peer);
    int listener, rc = open_listener(r, deadline_ms, &listener, e);
    uint8_t reply[REPLY_BYTES];

    descriptor_allow((size_t)r->world + STRANGERS);
    make_reply(r, reply);
    for (int i = 0; i < r->world; i++) {
        peer[i] = -1;
    }
    rc = rc != 0 ? rc : gather_ranks(r, listener, peer, deadline_ms, e);
    for (int i = 1; i < r->world; i++) {
        if (rc == 0 && (!transmit(peer[i], reply, sizeof reply) || !transmit(peer[i], bytes, n))) {
            rc = err_set(e, E_AGAIN, "rendezvous: rank %d disconnected", i);
        }
        if (peer[i] != -1) {
            close(peer[i]);
        }
    }
    if (listener != -1) {
        close(listener);
    }
    free(peer);
    return rc;
}

/* --- the others ------------------------------------------------------------------------------- */

static int ask_rendezvous_host(const struct rendezvous *r, void *bytes, size_t n,
                               uint64_t deadline_ms, struct err *e)
{
    uint8_t hello[HELLO_BYTES], reply[REPLY_BYTES], want[REPLY_BYTES];
    struct tcp_limit limit = {.until_ms = deadline_ms, .wake = -1};

    make_hello(r, r->rank, hello);
    make_reply(r, want);
    while (clock_now_ms() <
           deadline_ms) { /* rank 0 may start later, or drop us while an old run still listens */
        int fd;
        bool done = tcp_dial(r->host, (unsigned)r->port, limit, &fd, NULL) == 0 &&
                    transmit(fd, hello, sizeof hello) &&
                    tcp_receive(fd, reply, sizeof reply, limit) == 0 &&
                    memcmp(reply, want, sizeof want) == 0 && tcp_receive(fd, bytes, n, limit) == 0;

        if (fd != -1) {
            close(fd);
        }
        if (done) {
            return 0;
        }
        poll(NULL, 0, PAUSE_MS);
    }
    return err_set(e, E_TIMEOUT, "rendezvous: no response from rank 0 at %s:%d", r->host, r->port);
}

int rendezvous_share(const struct rendezvous *r, void *bytes, size_t n, struct err *e)
{
    uint64_t deadline_ms = clock_now_ms() + r->timeout_ms;

    if (r->world == 1) {
        return 0;
    }
    return r->rank == 0 ? serve_rendezvous(r, bytes, n, deadline_ms, e)
                        : ask_rendezvous_host(r, bytes, n, deadline_ms, e);
}
