#include "agent/job/member.h"

#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/xfer/tcp.h"

enum { CONNECT_MS = 3000, HANDSHAKE_MS = 5000, REDIAL_MS = 200, SERVICE_END_MS = 15000 };

struct member {
    const struct nodes *nodes;
    int signals;   /* readable: a signal waits, and is heard before anything else */
    pid_t service; /* on node 0; 0: none */
    int fd;
    struct buf in;
    struct rdzv_message join; /* said again on a new connection */
    bool joining;             /* no generation has begun since it was said */
    bool ever;                /* one has begun once */
    bool tried;               /* it was dialled since it was said */
    uint64_t quiet_ms;        /* the service is lost if nothing came until then */
    uint64_t beat_ms;
    uint64_t redial_ms;
    uint64_t give_up_ms;
    unsigned at;    /* the port that it is connected to, of RDZV_PORTS */
    unsigned first; /* the port that is tried first */
    bool lost;      /* not reported yet */
    char why[RDZV_TEXT];
};

/* --- dialling --------------------------------------------------------------------------------- */

static bool signal_waits(const struct member *m)
{
    struct pollfd p = {.fd = m->signals, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

/* A signal is heard before anything else. */
static struct tcp_limit within(const struct member *m, uint64_t ms)
{
    return (struct tcp_limit){.until_ms = clock_now_ms() + ms, .wake = m->signals};
}

static bool greet_service(const struct member *m, int fd)
{
    const char *id = m->nodes->id;
    struct tcp_limit limit = within(m, HANDSHAKE_MS);
    uint8_t hello[RDZV_HELLO], proof[RDZV_PROOF], want[RDZV_MAC], got[RDZV_MAC];

    if (tcp_receive(fd, hello, sizeof hello, limit) != 0 || memcmp(hello, "mrdagnt1", 8) != 0 ||
        getrandom(proof, RDZV_NONCE, 0) != RDZV_NONCE) {
        return false;
    }
    rdzv_mac(id, "agent", hello + 8, proof, proof + RDZV_NONCE);
    rdzv_mac(id, "service", hello + 8, proof, want);
    return send(fd, proof, sizeof proof, MSG_NOSIGNAL) == sizeof proof &&
           tcp_receive(fd, got, sizeof got, limit) == 0 && rdzv_same(want, got, sizeof want);
}

/* The service listens on the first of the ports that was free. After one where another job has our
 * place, the next ones come first. */
static int dial_ports(struct member *m, const struct addrinfo *list)
{
    bool stranger = false; /* tells more than a port that refuses */
    int fd = -1, rc = 0;

    for (unsigned i = 0; fd == -1 && i < RDZV_PORTS && !signal_waits(m); i++) {
        unsigned port;

        m->at = (m->first + i) % RDZV_PORTS;
        port = m->nodes->port + m->at;
        for (const struct addrinfo *a = list; a != NULL && fd == -1; a = a->ai_next) {
            struct err why;

            rc = tcp_connect(a, port, within(m, CONNECT_MS), &fd, &why);
            if (rc != 0 && !stranger) {
                snprintf(m->why, sizeof m->why, "%s", why.text);
            } else if (rc == 0 && !greet_service(m, fd)) {
                snprintf(m->why, sizeof m->why,
                         "port %u belongs to another job or program, or --rendezvous-id differs",
                         port);
                log_debug("rendezvous.stranger", "host=%s %s", m->nodes->host, m->why);
                close(fd);
                fd = -1;
                stranger = true;
            }
        }
        if (rc == E_TIMEOUT) {
            m->first = 0; /* that one is dropped by a filter, when an earlier one answered */
            break;        /* the host does not answer: nor do its other ports */
        }
    }
    return fd;
}

static void connect_to_service(struct member *m)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int rc = getaddrinfo(m->nodes->host, NULL, &hints, &list);

    if (rc != 0) {
        snprintf(m->why, sizeof m->why, "%s", gai_strerror(rc));
    } else {
        m->fd = dial_ports(m, list);
        freeaddrinfo(list);
    }
    m->redial_ms = clock_now_ms() + REDIAL_MS;
    if (m->fd != -1) {
        buf_clear(&m->in);
        m->quiet_ms = clock_now_ms() + m->nodes->lost_ms;
        m->beat_ms = 0;
        member_say(m, &m->join);
    }
}

/* --- the connection --------------------------------------------------------------------------- */

static void hang_up(struct member *m)
{
    if (m->fd != -1) {
        close(m->fd);
        m->fd = -1;
    }
}

static void lose_service_link(struct member *m, const char *why)
{
    hang_up(m);
    if (!m->joining) { /* else it is dialled again */
        snprintf(m->why, sizeof m->why, "%s", why);
        m->lost = true;
    }
}

void member_say(struct member *m, const struct rdzv_message *what)
{
    if (m->fd != -1 && rdzv_send(m->fd, what) != 0) {
        lose_service_link(m, "the connection to the rendezvous broke");
    }
}

void member_pause(struct member *m, uint32_t allow_ms)
{
    member_say(m, &(struct rdzv_message){.type = RDZV_ALIVE, .allow_ms = allow_ms});
}

void member_join(struct member *m, unsigned ranks)
{
    const struct nodes *n = m->nodes;

    m->join = (struct rdzv_message){
        .type = RDZV_JOIN, .node = n->rank, .ranks = ranks, .min = n->min, .max = n->max};
    m->joining = true;
    m->tried = false;
    m->give_up_ms = clock_now_ms() + (m->ever ? n->lost_ms : n->join_ms);
    if (!m->ever) {
        log_info("launch.waiting", "host=%s port=%u for_s=%" PRIu64, n->host, n->port,
                 n->join_ms / 1000);
    }
    member_say(m, &m->join);
}

static bool take_member_message(struct member *m, struct rdzv_message *out)
{
    int rc = rdzv_decode(&m->in, out);

    if (rc < 0) {
        lose_service_link(m, "the rendezvous sent an invalid message");
    }
    return rc == 1;
}

static bool take_lost(struct member *m, struct rdzv_message *out)
{
    if (m->lost) {
        m->lost = false;
        *out = (struct rdzv_message){.type = RDZV_LOST};
        snprintf(out->text, sizeof out->text, "%s", m->why);
        return true;
    }
    return false;
}

bool member_event(struct member *m, uint64_t now_ms, struct rdzv_message *out)
{
    int rc = m->fd != -1 ? rdzv_receive(m->fd, &m->in) : 0;

    while (m->fd != -1 && take_member_message(m, out)) {
        m->quiet_ms = now_ms + m->nodes->lost_ms;
        switch (out->type) {
        case RDZV_WORLD:
            tcp_localize(m->fd, out->text, sizeof out->text);
            m->joining = false;
            m->ever = true;
            return true;
        case RDZV_STOP:
        case RDZV_END:
            return true;
        case RDZV_TAKEN:
            snprintf(m->why, sizeof m->why, "%s", out->text);
            hang_up(m);
            m->first = (m->at + 1) % RDZV_PORTS; /* it may be another job with our id */
            m->redial_ms = now_ms + 5 * REDIAL_MS;
            break;
        case RDZV_ALIVE:
        case RDZV_JOIN:
        case RDZV_FAILED:
        case RDZV_DONE:
        case RDZV_LEAVE:
        case RDZV_LOST:
        default:
            break;
        }
    }
    if (m->fd != -1 && rc != 0) {
        lose_service_link(
            m, m->nodes->external
                   ? "the rendezvous closed the connection: it has ended"
                   : "the rendezvous closed the connection: node 0 or its agent has ended");
    }
    return take_lost(m, out);
}

void member_tick(struct member *m, uint64_t now_ms)
{
    if (m->fd != -1 && now_ms >= m->quiet_ms) {
        lose_service_link(
            m, m->nodes->external
                   ? "the rendezvous was silent for too long: its machine or the network is down"
                   : "the rendezvous was silent for too long: node 0 or the network is down");
    }
    if (m->fd != -1) {
        if (now_ms >= m->beat_ms) {
            m->beat_ms = now_ms + m->nodes->lost_ms / 8;
            member_pause(m, 0);
        }
        return;
    }
    if (!m->joining || now_ms < m->redial_ms) {
        return;
    }
    if (now_ms < m->give_up_ms || !m->tried) {
        m->tried = true;
        connect_to_service(m);
    } else {
        char why[RDZV_TEXT];

        snprintf(why, sizeof why, "cannot reach the rendezvous at %.60s, port %u: %.100s",
                 m->nodes->host, m->nodes->port, m->why);
        m->joining = false;
        lose_service_link(m, why);
    }
}

uint64_t member_next_ms(const struct member *m)
{
    if (m->lost) {
        return 0;
    }
    if (m->fd != -1) {
        return min_u64(m->beat_ms, m->quiet_ms);
    }
    return m->joining ? m->redial_ms : UINT64_MAX;
}

int member_fd(const struct member *m)
{
    return m->fd;
}

int member_open(const struct service_params *w, int signals, struct member **out, struct err *e)
{
    struct member *m = NEW(struct member);
    int rc;

    *m = (struct member){
        .nodes = w->nodes, .signals = signals, .fd = -1, .in = BUF_INIT(RDZV_BUFFER)};
    rc = w->nodes->rank == 0 && !w->nodes->external ? service_start(w, &m->service, e) : 0;
    if (rc != 0) {
        member_close(&m);
        return rc;
    }
    *out = m;
    return 0;
}

void member_close(struct member **mp)
{
    struct member *m = *mp;
    uint64_t until_ms = clock_now_ms() + SERVICE_END_MS;

    *mp = NULL;
    if (m == NULL) {
        return;
    }
    hang_up(m);
    while (m->service > 0 && waitpid(m->service, NULL, WNOHANG) == 0) {
        if (clock_now_ms() >= until_ms) { /* it tells the others that the job is over */
            kill(m->service, SIGKILL);
        }
        poll(NULL, 0, 10);
    }
    buf_free(&m->in);
    free(m);
}
