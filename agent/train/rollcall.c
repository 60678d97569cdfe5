#include "agent/train/rollcall.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/endian.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/descriptor.h"
#include "common/xfer/tcp.h"

enum {
    MESSAGE_BYTES = 448,
    TOKEN_BYTES = 16,
    HOST_BYTES = 64,
    CONNECT_MS = 10000,
    PAUSE_MS = 50,
    NO_ROOM_MS = 1000,
    KEEPALIVE_S = 60,
    KEEPALIVE_PROBES = 10,
    STRANGERS = 16
};

/* What rank 0 tells the others before they can connect. */
enum { ADDRESS_BYTES = 2 + TOKEN_BYTES + HOST_BYTES };

struct peer {
    _Atomic int fd; /* -1: none */
    int rank;       /* -1: has not said hello */
    bool leaves;    /* it has said so: the end of its connection is no news */
    bool heard;     /* the other side has proved that it belongs to this run */
    uint64_t came;  /* its number among all that were accepted */
    size_t have;
    uint8_t in[MESSAGE_BYTES];
};

struct rollcall {
    int rank;
    int world;
    _Atomic int listener; /* -1 on all ranks but the first */
    int wake;
    int peers; /* room for */
    struct peer *peer;
    struct pollfd *fds;
    uint64_t accepted;
    uint64_t accept_from_ms; /* not before: there was no room for a connection */
    bool *met;               /* ranks that have connected, on rank 0 */
    uint8_t token[TOKEN_BYTES];
};

/* --- messages as bytes ------------------------------------------------------------------------ */

static void encode_roll_message(const struct roll_message *m, uint8_t out[MESSAGE_BYTES])
{
    const struct flight_entry *w = &m->at.waits;

    memset(out, 0, MESSAGE_BYTES);
    le_put(out, 4, m->kind);
    le_put(out + 4, 4, (unsigned)m->rank);
    le_put(out + 8, 4, (unsigned)m->exit_code);
    le_put(out + 12, 4, (unsigned)m->suspects);
    for (int i = 0; i < ROLL_SUSPECTS; i++) {
        le_put(out + 16 + 4 * i, 4, (unsigned)m->suspect[i]);
    }
    le_put(out + 48, 8, m->at.posted);
    le_put(out + 56, 8, m->at.done);
    le_put(out + 64, 8, w->seq);
    le_put(out + 72, 4, (unsigned)w->op);
    le_put(out + 76, 4, (unsigned)w->dt);
    le_put(out + 80, 8, (uint64_t)w->count);
    memcpy(out + 88, m->text, ROLL_TEXT);
    le_put(out + 88 + ROLL_TEXT, 4, m->fault);
    le_put(out + 92 + ROLL_TEXT, 8, m->at.returned);
}

static struct roll_message decode_roll_message(const uint8_t in[MESSAGE_BYTES])
{
    struct roll_message m = {.kind = (enum roll_kind)le_get(in, 4),
                             .rank = (int)le_get(in + 4, 4),
                             .exit_code = (int)le_get(in + 8, 4),
                             .fault = (enum roll_fault)le_get(in + 88 + ROLL_TEXT, 4),
                             .suspects = (int)le_get(in + 12, 4),
                             .at = {.posted = le_get(in + 48, 8),
                                    .returned = le_get(in + 92 + ROLL_TEXT, 8),
                                    .done = le_get(in + 56, 8),
                                    .waits = {.seq = le_get(in + 64, 8),
                                              .op = (enum flight_op)le_get(in + 72, 4),
                                              .dt = (enum dtype)le_get(in + 76, 4),
                                              .count = (int64_t)le_get(in + 80, 8)}}};

    for (int i = 0; i < ROLL_SUSPECTS; i++) {
        m.suspect[i] = (int)le_get(in + 16 + 4 * i, 4);
    }
    memcpy(m.text, in + 88, ROLL_TEXT);
    m.text[ROLL_TEXT - 1] = '\0';
    m.suspects = m.suspects > ROLL_SUSPECTS ? ROLL_SUSPECTS : m.suspects;
    return m;
}

_Static_assert(92 + ROLL_TEXT + 8 <= MESSAGE_BYTES, "a message has room for its text");
_Static_assert((int)ROLL_TEXT >= (int)TOKEN_BYTES, "a hello carries the token as its text");

/* --- connecting ------------------------------------------------------------------------------- */

static int listen_anywhere(int family, int *port)
{
    struct sockaddr_storage at = {.ss_family = (sa_family_t)family};
    socklen_t size = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), no = 0;

    if (fd == -1) {
        return -1;
    }
    if ((family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == -1) ||
        bind(fd, (struct sockaddr *)&at, size) == -1 || listen(fd, 1024) == -1) {
        close(fd);
        return -1;
    }
    *port = (int)tcp_port(fd);
    return fd;
}

/* Connections are silent for days, and firewalls forget such ones. A machine that is gone is
 * noticed after 11 minutes; one that only hangs answers the probes. */
static void keep_alive(int fd)
{
    int on = 1, idle_s = KEEPALIVE_S, probes = KEEPALIVE_PROBES;

    /* What fails leaves a connection that works, as long as nobody forgets it. */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* A machine's own name need not be known to its resolver. */
static int connect_to(const char *host, int port)
{
    struct tcp_limit limit = {.until_ms = clock_now_ms() + CONNECT_MS, .wake = -1};
    char own[HOST_BYTES] = "";
    int fd;

    gethostname(own, sizeof own - 1);
    if (tcp_dial(strcmp(own, host) == 0 ? "localhost" : host, (unsigned)port, limit, &fd, NULL) ==
        0) {
        keep_alive(fd);
    }
    return fd;
}

/* All ranks have rank 0's bytes afterwards: the others add zeros to them. */
static int share_bytes(const struct kops *k, struct kstream *ks, struct comm *c, uint8_t *bytes,
                       int n)
{
    double *x = mem_array((size_t)n, sizeof *x);
    void *there = NULL;
    int rc = k->mem_alloc(&there, (size_t)n * sizeof *x);

    for (int i = 0; i < n; i++) {
        x[i] = c->rank == 0 ? bytes[i] : 0;
    }
    rc = rc != 0 ? rc : k->mem_put(ks, there, x, (size_t)n * sizeof *x);
    rc = rc != 0 ? rc : comm_allreduce(c, ks, DT_F64, there, n);
    rc = rc != 0 ? rc : k->mem_get(ks, x, there, (size_t)n * sizeof *x);
    for (int i = 0; rc == 0 && i < n; i++) {
        bytes[i] = (uint8_t)x[i];
    }
    if (rc == 0) {
        k->mem_free(there);
    }
    free(x);
    return rc;
}

static void prepare_roll_address(struct rollcall *x, const char *host,
                                 uint8_t address[ADDRESS_BYTES])
{
    char own[HOST_BYTES] = "";
    int port = 0, fd;

    gethostname(own, sizeof own - 1);
    fd = listen_anywhere(AF_INET6, &port);
    fd = fd != -1 ? fd : listen_anywhere(AF_INET, &port);
    if (fd == -1 || getrandom(x->token, TOKEN_BYTES, 0) != TOKEN_BYTES) {
        log_warn("rollcall.none", "cannot listen: if a rank hangs, its number will not be known");
        return;
    }
    atomic_store(&x->listener, fd);
    le_put(address, 2, (unsigned)port);
    memcpy(address + 2, x->token, TOKEN_BYTES);
    memcpy(address + 2 + TOKEN_BYTES, own, HOST_BYTES);
    if (host != NULL && strlen(host) < HOST_BYTES) {
        memset(address + 2 + TOKEN_BYTES, 0, HOST_BYTES);
        memcpy(address + 2 + TOKEN_BYTES, host, strlen(host));
    }
}

enum answer { ANSWERED, CLOSED, SILENT };

/* Reads rank 0's hello and no more: what follows is for the watchdog. */
static enum answer await_hello(struct comm *c, int fd, uint64_t until_ms)
{
    uint8_t bytes[MESSAGE_BYTES];
    size_t have = 0;

    while (clock_now_ms() < until_ms) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n;

        flight_beat(c->flight);
        if (poll(&p, 1, PAUSE_MS) != 1) {
            continue;
        }
        n = recv(fd, bytes + have, sizeof bytes - have, 0);
        if (n == 0 || (n == -1 && errno != EAGAIN && errno != EINTR)) {
            return CLOSED;
        }
        have += n > 0 ? (size_t)n : 0;
        if (have == sizeof bytes) {
            return decode_roll_message(bytes).kind == ROLL_HELLO ? ANSWERED : CLOSED;
        }
    }
    return have == 0 ? SILENT : CLOSED;
}

/* A connection that rank 0 closes before it answers was taken for a stranger's, and is made again.
 * One that it has not answered in time is kept: its watchdog may stand still. */
static void join_rollcall_ranks(struct rollcall *x, struct comm *c,
                                const uint8_t address[ADDRESS_BYTES])
{
    struct roll_message m = {.kind = ROLL_HELLO, .rank = x->rank};
    uint64_t until_ms = clock_now_ms() + CONNECT_MS;
    uint8_t hello[MESSAGE_BYTES];
    char host[HOST_BYTES];
    int port = (int)le_get(address, 2), fd;
    enum answer answer = CLOSED;

    memcpy(m.text, address + 2, TOKEN_BYTES);
    memcpy(host, address + 2 + TOKEN_BYTES, HOST_BYTES);
    host[HOST_BYTES - 1] = '\0';
    encode_roll_message(&m, hello);
    fd = port != 0 ? connect_to(host, port) : -1;
    while (fd != -1) {
        if (send(fd, hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello) {
            answer = await_hello(c, fd, until_ms);
        }
        if (answer != CLOSED) {
            break;
        }
        close(fd);
        poll(NULL, 0, PAUSE_MS);
        fd = clock_now_ms() < until_ms ? connect_to(host, port) : -1;
    }
    if (fd == -1) {
        log_warn(
            "rollcall.none",
            "no connection to rank 0 at %s port %d: if a rank hangs, its number will not be known",
            host, port);
        return;
    }
    x->peer[0].rank = 0;
    x->peer[0].heard = answer == ANSWERED;
    atomic_store(&x->peer[0].fd, fd);
}

struct rollcall *rollcall_open(int rank, int world)
{
    struct rollcall *x = NEW(struct rollcall);

    *x = (struct rollcall){.rank = rank,
                           .world = world,
                           .listener = -1,
                           .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                           .peers = rank == 0 ? world + STRANGERS : 1};
    if (rank == 0) {
        descriptor_allow((size_t)x->peers);
    }
    x->peer = mem_array((size_t)x->peers, sizeof *x->peer);
    x->fds = mem_array((size_t)x->peers + 2, sizeof *x->fds);
    x->met = mem_array((size_t)world, sizeof *x->met);
    for (int i = 0; i < x->peers; i++) {
        x->peer[i] = (struct peer){.fd = -1, .rank = -1};
    }
    return x;
}

int rollcall_connect(struct rollcall *x, const struct kops *k, struct kstream *ks, struct comm *c,
                     const char *host)
{
    uint8_t address[ADDRESS_BYTES] = {0};
    int rc;

    if (x->world == 1) {
        return 0;
    }
    if (x->rank == 0) {
        prepare_roll_address(x, host, address);
    }
    rc = share_bytes(k, ks, c, address, ADDRESS_BYTES);
    if (rc == 0 && x->rank != 0) {
        join_rollcall_ranks(x, c, address);
    }
    rollcall_wake(x);
    return rc;
}

void rollcall_close(struct rollcall **xp)
{
    struct rollcall *x = *xp;

    if (x == NULL) {
        return;
    }
    *xp = NULL;
    for (int i = 0; i < x->peers; i++) {
        if (x->peer[i].fd != -1) {
            close(x->peer[i].fd);
        }
    }
    if (x->listener != -1) {
        close(x->listener);
    }
    close(x->wake);
    free(x->peer);
    free(x->fds);
    free(x->met);
    free(x);
}

/* --- while it is open ------------------------------------------------------------------------- */

void rollcall_wake(struct rollcall *x)
{
    uint64_t one = 1;
    ssize_t n = write(x->wake, &one, sizeof one);

    (void)n; /* it is awake already */
}

static void send_to(const struct peer *p, const struct roll_message *m)
{
    uint8_t bytes[MESSAGE_BYTES];
    ssize_t n;

    encode_roll_message(m, bytes);
    n = send(p->fd, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n; /* small, and seldom: it fits the socket's buffer, or nobody reads */
}

void rollcall_send(struct rollcall *x, const struct roll_message *m)
{
    for (int i = 0; i < x->peers; i++) {
        if (x->peer[i].fd != -1 && x->peer[i].rank != -1) {
            send_to(&x->peer[i], m);
        }
    }
}

bool rollcall_reaches(const struct rollcall *x, int rank)
{
    for (int i = 0; i < x->peers; i++) {
        if (x->peer[i].fd != -1 && x->peer[i].rank == rank && !x->peer[i].leaves) {
            return true;
        }
    }
    return false;
}

bool rollcall_has_met(const struct rollcall *x, int rank)
{
    return x->met[rank];
}

static void drop_rollcall_peer(struct peer *p)
{
    if (p->fd != -1) {
        close(p->fd);
    }
    p->fd = -1;
    p->rank = -1;
    p->leaves = false;
    p->heard = false;
    p->have = 0;
}

/* A free place, else the one of the oldest connection that has not said hello; there are more
 * places than ranks. */
static struct peer *find_place(struct rollcall *x)
{
    struct peer *oldest = NULL;

    for (int i = 0; i < x->peers; i++) {
        struct peer *p = &x->peer[i];

        if (p->fd == -1) {
            return p;
        }
        if (p->rank == -1 && (oldest == NULL || p->came < oldest->came)) {
            oldest = p;
        }
    }
    return oldest;
}

static void accept_one(struct rollcall *x)
{
    int fd = accept4(x->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct peer *p;

    /* A waiting connection stays: without a pause poll() would return at once, again and again. */
    if (fd == -1) {
        x->accept_from_ms = clock_now_ms() + NO_ROOM_MS;
        return;
    }
    keep_alive(fd);
    p = find_place(x);
    CHECK(p != NULL);
    drop_rollcall_peer(p);
    p->came = x->accepted++;
    p->fd = fd;
}

/* A stranger who does not know the token is dropped. A rank that comes again has given up its
 * earlier connection. */
static bool admit(struct rollcall *x, struct peer *p, const struct roll_message *m)
{
    const struct roll_message hello = {.kind = ROLL_HELLO};

    if (m->kind != ROLL_HELLO || memcmp(m->text, x->token, TOKEN_BYTES) != 0 || m->rank < 1 ||
        m->rank >= x->world) {
        return false;
    }
    for (int i = 0; i < x->peers; i++) {
        if (x->peer[i].fd != -1 && x->peer[i].rank == m->rank) {
            drop_rollcall_peer(&x->peer[i]);
        }
    }
    p->rank = m->rank;
    p->heard = true;
    x->met[m->rank] = true;
    send_to(p, &hello);
    return true;
}

/* False: the connection has ended. */
static bool receive_rollcall_peer(struct rollcall *x, struct peer *p,
                                  void (*on_message)(void *arg, const struct roll_message *m),
                                  void *arg)
{
    ssize_t n = recv(p->fd, p->in + p->have, MESSAGE_BYTES - p->have, 0);
    struct roll_message m;

    if (n <= 0) {
        return n == -1 && (errno == EAGAIN || errno == EINTR);
    }
    p->have += (size_t)n;
    if (p->have < MESSAGE_BYTES) {
        return true;
    }
    p->have = 0;
    m = decode_roll_message(p->in);
    if (p->rank == -1) {
        return admit(x, p, &m);
    }
    m.rank = p->rank;
    p->heard = true;
    p->leaves = p->leaves || m.kind == ROLL_LEAVES;
    on_message(arg, &m);
    return true;
}

void rollcall_poll(struct rollcall *x, int timeout_ms,
                   void (*on_message)(void *arg, const struct roll_message *m), void *arg)
{
    bool accepts = clock_now_ms() >= x->accept_from_ms;
    uint64_t count;
    ssize_t n;

    for (int i = 0; i < x->peers; i++) {
        x->fds[i] = (struct pollfd){.fd = x->peer[i].fd, .events = POLLIN};
    }
    x->fds[x->peers] = (struct pollfd){.fd = accepts ? x->listener : -1, .events = POLLIN};
    x->fds[x->peers + 1] = (struct pollfd){.fd = x->wake, .events = POLLIN};
    if (poll(x->fds, (nfds_t)x->peers + 2, timeout_ms) < 1) {
        return;
    }
    n = read(x->wake, &count, sizeof count);
    (void)n;
    for (int i = 0; i < x->peers; i++) {
        struct peer *p = &x->peer[i];
        int rank = p->rank;
        bool is_news;

        if (x->fds[i].revents == 0 || p->fd != x->fds[i].fd ||
            receive_rollcall_peer(x, p, on_message, arg)) {
            continue;
        }
        is_news = rank != -1 && p->heard && !p->leaves;
        drop_rollcall_peer(p);
        if (is_news) {
            struct roll_message lost = {.kind = ROLL_LOST, .rank = rank};

            on_message(arg, &lost);
        }
    }
    if (x->fds[x->peers].revents != 0) {
        accept_one(x);
    }
}
