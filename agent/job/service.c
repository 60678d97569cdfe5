#include "agent/job/service.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include "agent/job/ports.h"
#include "agent/job/rendezvous.h"
#include "agent/job/restart.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/descriptor.h"
#include "common/os/forked.h"
#include "common/xfer/tcp.h"

enum { STRANGERS = 64, STRANGER_MS = 5000, TICK_MS = 100, FULL_MS = 100, RANKS_MAX = 1 << 16 };
enum { ALLOW_MAX_MS = 600000 };

enum phase { PHASE_GATHERING, PHASE_RUNNING, PHASE_OVER };

enum service_client_state {
    CLIENT_STRANGER, /* has not proved that it knows the id */
    CLIENT_KNOWN,    /* has not joined yet, or ends its ranks */
    CLIENT_WAITING,  /* has joined, and waits for the next generation */
    CLIENT_RUNNING,  /* has ranks of this generation */
    CLIENT_DONE,     /* its ranks of this generation have ended well */
};

struct service_client {
    int fd; /* -1: gone, the place is swept */
    enum service_client_state state;
    uint64_t quiet_ms; /* it is lost if nothing came until then */
    uint64_t came;     /* order of arrival */
    uint8_t nonce[RDZV_NONCE];
    struct buf in;
    uint32_t node, ranks; /* of one that has joined */
    bool joined;          /* ever */
    uint32_t ran;         /* the last generation that it had ranks of; 0: none */
    bool here;            /* it came from this machine itself */
    char from[TCP_ADDRESS_TEXT];
};

struct service {
    const struct service_params *want;
    const struct nodes *nodes;
    int listener;
    enum phase phase;
    uint32_t generation; /* that runs, or is gathered for; from 1 */
    struct service_client *client;
    size_t nguests, room;
    uint64_t came;
    uint64_t now_ms;
    uint64_t reported_ms;  /* when the last sign of life was sent to everybody */
    uint64_t gather_ms;    /* when the gathering is given up */
    uint64_t last_call_ms; /* when it begins with those that are there; 0: not enough are */
    uint64_t not_before_ms;
    uint64_t deaf_until_ms;    /* there is no descriptor for another connection */
    bool full;                 /* that was logged */
    struct rdzv_message ended; /* the patience that was sent then */
    struct restart restart;
    struct progress began;
    struct failure failure; /* that is judged when all have joined again */
    bool failed;
};

static struct service_client *node_0(struct service *s)
{
    for (size_t i = 0; i < s->nguests; i++) {
        if (s->client[i].fd != -1 && s->client[i].joined && s->client[i].node == 0) {
            return &s->client[i];
        }
    }
    return NULL;
}

static unsigned count_service_clients(const struct service *s, enum service_client_state state)
{
    unsigned n = 0;

    for (size_t i = 0; i < s->nguests; i++) {
        n += s->client[i].fd != -1 && s->client[i].state == state;
    }
    return n;
}

/* Those that still end their ranks. */
static unsigned count_ending(const struct service *s)
{
    unsigned n = 0;

    for (size_t i = 0; i < s->nguests; i++) {
        const struct service_client *g = &s->client[i];
        n += g->fd != -1 && g->state == CLIENT_KNOWN && g->joined;
    }
    return n;
}

static void drop_service_client(struct service_client *g)
{
    if (g->fd != -1) {
        close(g->fd);
        g->fd = -1;
    }
    buf_free(&g->in);
}

/* Who does not read is found lost when its silence is. */
static void send_service_message(struct service_client *g, const struct rdzv_message *m)
{
    if (g->fd != -1 && g->state != CLIENT_STRANGER && rdzv_send(g->fd, m) != 0) {
        shutdown(g->fd, SHUT_RDWR); /* its end is read, and then it is lost */
    }
}

static void say_all(struct service *s, const struct rdzv_message *m)
{
    for (size_t i = 0; i < s->nguests; i++) {
        send_service_message(&s->client[i], m);
    }
}

/* --- what the job does ------------------------------------------------------------------------ */

static void end_job_service(struct service *s, unsigned code, const char *text)
{
    if (s->phase == PHASE_OVER) {
        return;
    }
    s->ended = (struct rdzv_message){.type = RDZV_END, .code = code};
    snprintf(s->ended.text, sizeof s->ended.text, "%s", text);
    s->phase = PHASE_OVER;
    say_all(s, &s->ended);
}

static void gather_members(struct service *s)
{
    s->phase = PHASE_GATHERING;
    s->gather_ms = s->now_ms + s->nodes->join_ms + (s->generation > 1 ? s->want->grace_ms : 0);
    s->last_call_ms = 0;
    s->not_before_ms = 0;
}

static void stop_generation(struct service *s, const char *why)
{
    struct rdzv_message m = {.type = RDZV_STOP, .generation = s->generation};

    snprintf(m.text, sizeof m.text, "%s", why);
    for (size_t i = 0; i < s->nguests; i++) {
        struct service_client *g = &s->client[i];
        if (g->state == CLIENT_RUNNING || g->state == CLIENT_DONE) {
            send_service_message(g, &m);
            g->state = CLIENT_KNOWN;
        }
    }
    log_warn("rendezvous.failed", "generation=%" PRIu32 " %s", s->generation, why);
    s->generation++;
    gather_members(s);
}

static void note_failure(struct service *s, const struct failure *f)
{
    s->failure = *f;
    progress_since(s->want->progress, &s->began, &s->failure.at);
}

static void on_member_failure(struct service *s, const struct service_client *g,
                              const struct rdzv_message *m)
{
    char why[RDZV_TEXT];

    if (s->phase != PHASE_RUNNING || m->generation != s->generation || g->state != CLIENT_RUNNING) {
        return;
    }
    note_failure(s, &(struct failure){.code = (int)m->code, .by_signal = m->by_signal != 0});
    snprintf(why, sizeof why, "a rank of node %" PRIu32 " exited with %" PRIu32, g->node, m->code);
    if (!failure_may_pass(&s->failure)) {
        end_job_service(s, m->code, why);
        return;
    }
    s->failed = true;
    stop_generation(s, why);
}

/* A node that is lost takes its generation along. Whether the others go on is --elastic's to
 * say. */
static void lose_service_client(struct service *s, struct service_client *g, const char *how)
{
    bool took_part = g->joined;
    enum service_client_state was = g->state;
    char why[RDZV_TEXT];

    drop_service_client(g);
    if (!took_part || s->phase == PHASE_OVER) {
        return;
    }
    snprintf(why, sizeof why, "node %" PRIu32 " (%s) %s", g->node, g->from, how);
    if (g->node == 0 && !s->nodes->external) {
        end_job_service(s, EX_TEMPFAIL, why);
    } else if (s->nodes->min == s->nodes->max && s->generation == 1 &&
               s->phase == PHASE_GATHERING) {
        log_warn("rendezvous.left", "%s", why); /* it may come again: nothing has begun */
    } else if (s->nodes->min == s->nodes->max) {
        end_job_service(s, EX_TEMPFAIL, why);
    } else if (was == CLIENT_RUNNING || was == CLIENT_DONE) {
        note_failure(s, &(struct failure){.code = EX_TEMPFAIL, .lost = true});
        s->failed = true;
        stop_generation(s, why);
    } else {
        /* If it had ranks of the generation that failed, they or their peers failed because of
         * it. */
        if (g->ran == s->generation - 1) {
            s->failure.lost = true;
            s->failure.code = EX_TEMPFAIL;
        }
        log_warn("rendezvous.left", "%s", why);
    }
}

static void on_member_done(struct service *s, struct service_client *g,
                           const struct rdzv_message *m)
{
    if (s->phase != PHASE_RUNNING || m->generation != s->generation || g->state != CLIENT_RUNNING) {
        return;
    }
    g->state = CLIENT_DONE;
    if (count_service_clients(s, CLIENT_RUNNING) == 0) {
        end_job_service(s, 0, "");
    }
}

/* --- who takes part --------------------------------------------------------------------------- */

static struct service_client *node_client_of(struct service *s, const struct service_client *of)
{
    for (size_t i = 0; i < s->nguests; i++) {
        struct service_client *g = &s->client[i];
        if (g != of && g->fd != -1 && g->joined && g->node == of->node) {
            return g;
        }
    }
    return NULL;
}

static void refuse_service_client(struct service_client *g, enum rdzv_type type, unsigned code,
                                  const char *text)
{
    struct rdzv_message m = {.type = type, .code = code};

    snprintf(m.text, sizeof m.text, "%s", text);
    send_service_message(g, &m);
    drop_service_client(g);
}

static void on_member_join(struct service *s, struct service_client *g,
                           const struct rdzv_message *m)
{
    char text[RDZV_TEXT];

    if (g->state != CLIENT_KNOWN || m->ranks == 0 || m->ranks > RANKS_MAX ||
        m->node >= s->nodes->max || (g->joined && m->node != g->node)) {
        lose_service_client(s, g, "sent an invalid message");
        return;
    }
    if (m->min != s->nodes->min || m->max != s->nodes->max) {
        snprintf(text, sizeof text,
                 "node %" PRIu32 " was started for %" PRIu32 ":%" PRIu32
                 " nodes, but %s for %u:%u; give all nodes the same --nodes or --elastic",
                 m->node, m->min, m->max, s->nodes->external ? "the rendezvous" : "node 0",
                 s->nodes->min, s->nodes->max);
        refuse_service_client(g, RDZV_END, EX_CONFIG, text);
        return;
    }
    if (s->phase == PHASE_OVER) {
        send_service_message(g, &s->ended);
        return;
    }
    g->node = m->node;
    if (!g->joined && node_client_of(s, g) != NULL) {
        snprintf(text, sizeof text,
                 "node rank %" PRIu32
                 " is already used by the agent at %s; give each node its own --node-rank",
                 m->node, node_client_of(s, g)->from);
        refuse_service_client(g, RDZV_TAKEN, 0, text);
        return;
    }
    g->ranks = m->ranks;
    g->joined = true;
    g->state = CLIENT_WAITING;
}

static int by_node(const void *a, const void *b)
{
    const struct service_client *const *x = a, *const *y = b;

    return (*x)->node < (*y)->node ? -1 : (*x)->node > (*y)->node;
}

/* Where the others find rank 0. One that comes from this machine itself is where we are. */
static void say_place(const struct service *s, const struct service_client *first,
                      char out[RDZV_TEXT])
{
    if (s->nodes->external) {
        snprintf(out, RDZV_TEXT, "%s", first->here ? s->nodes->host : first->from);
    }
}

static void start_generation(struct service *s)
{
    struct service_client **member = mem_array(s->nguests, sizeof member[0]);
    struct rdzv_message m = {.type = RDZV_WORLD, .generation = s->generation, .port = port_pick()};

    for (size_t i = 0; i < s->nguests; i++) {
        if (s->client[i].fd != -1 && s->client[i].state == CLIENT_WAITING) {
            member[m.nodes++] = &s->client[i];
            m.world += s->client[i].ranks;
        }
    }
    qsort(member, m.nodes, sizeof member[0], by_node);
    say_place(s, member[0], m.text);
    progress_read(s->want->progress, &s->began);
    s->phase = PHASE_RUNNING;
    for (m.node = 0; m.node < m.nodes; m.node++) {
        member[m.node]->state = CLIENT_RUNNING;
        member[m.node]->ran = s->generation;
        send_service_message(member[m.node], &m);
        m.first += member[m.node]->ranks;
    }
    log_info("rendezvous.start", "generation=%" PRIu32 " nodes=%" PRIu32 " ranks=%" PRIu32,
             s->generation, m.nodes, m.world);
    free(member);
}

/* Of a failure: false when it is final. The pause counts from now, when all ranks have ended. */
static bool decide_service_restart(struct service *s)
{
    uint64_t wait_ms;
    struct err why;
    int rc = restart_judge(&s->restart, &s->failure, &wait_ms, &why);

    s->failed = false;
    if (rc != 0) {
        end_job_service(s, (unsigned)restart_exit_code(&s->restart, &s->failure, rc), why.text);
        return false;
    }
    s->not_before_ms = s->now_ms + wait_ms;
    return true;
}

static void look_whether_all_came(struct service *s)
{
    unsigned here = count_service_clients(s, CLIENT_WAITING);
    bool enough = here >= s->nodes->min &&
                  (s->nodes->external || (node_0(s) != NULL && node_0(s)->state == CLIENT_WAITING));
    bool late = s->now_ms >= s->gather_ms; /* who comes later takes part in the next generation */
    char text[RDZV_TEXT];

    if (s->nodes->external && s->generation == 1 && here == 0) {
        gather_members(s); /* the job may wait in a line for days */
        return;
    }
    if (!enough) {
        s->last_call_ms = 0;
    } else if (s->last_call_ms == 0) {
        s->last_call_ms = s->now_ms + s->nodes->lost_ms;
    }
    if (enough && (late || (count_ending(s) == 0 &&
                            (here == s->nodes->max || s->now_ms >= s->last_call_ms)))) {
        if (s->failed && !decide_service_restart(s)) {
            return;
        }
        if (s->now_ms >= s->not_before_ms) {
            start_generation(s);
        }
        return;
    }
    if (late) {
        snprintf(text, sizeof text, "only %u of %u nodes joined the rendezvous in time", here,
                 s->nodes->min);
        end_job_service(s, EX_TEMPFAIL, text);
    }
}

/* --- connections ------------------------------------------------------------------------------ */

static void handle_client_message(struct service *s, struct service_client *g,
                                  const struct rdzv_message *m)
{
    char text[RDZV_TEXT];

    switch (m->type) {
    case RDZV_ALIVE:
        break;
    case RDZV_JOIN:
        on_member_join(s, g, m);
        break;
    case RDZV_FAILED:
        on_member_failure(s, g, m);
        break;
    case RDZV_DONE:
        on_member_done(s, g, m);
        break;
    case RDZV_LEAVE:
        snprintf(text, sizeof text, "left: %.120s", m->text);
        lose_service_client(s, g, text);
        break;
    case RDZV_WORLD:
    case RDZV_STOP:
    case RDZV_END:
    case RDZV_TAKEN:
    case RDZV_LOST:
    default:
        lose_service_client(s, g, "sent an invalid message");
        break;
    }
}

/* False: not yet, or it cannot. */
static bool prove(struct service *s, struct service_client *g)
{
    uint8_t want[RDZV_MAC], answer[RDZV_MAC];
    const uint8_t *proof = (const uint8_t *)g->in.p;

    if (g->in.n < RDZV_PROOF) {
        return false;
    }
    rdzv_mac(s->nodes->id, "agent", g->nonce, proof, want);
    rdzv_mac(s->nodes->id, "service", g->nonce, proof, answer);
    if (!rdzv_same(want, proof + RDZV_NONCE, RDZV_MAC) ||
        send(g->fd, answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof answer) {
        log_warn("rendezvous.stranger", "from=%s the rendezvous id differs from this job's",
                 g->from);
        drop_service_client(g);
        return false;
    }
    buf_drop(&g->in, RDZV_PROOF);
    g->state = CLIENT_KNOWN;
    return true;
}

static void read_client(struct service *s, struct service_client *g)
{
    int rc = rdzv_receive(g->fd, &g->in);
    struct rdzv_message m;
    int got = 1;

    if (g->state == CLIENT_STRANGER && !prove(s, g)) {
        if (rc != 0) {
            drop_service_client(g);
        }
        return;
    }
    while (g->fd != -1 && got == 1) {
        got = rdzv_decode(&g->in, &m);
        if (got == 1) {
            g->quiet_ms = s->now_ms + s->nodes->lost_ms + min_u64(m.allow_ms, ALLOW_MAX_MS);
            handle_client_message(s, g, &m);
        }
    }
    if (g->fd != -1 && got < 0) {
        lose_service_client(s, g, "sent an invalid message");
    } else if (g->fd != -1 && rc != 0) {
        lose_service_client(s, g, "closed its connection");
    }
}

static bool drop_oldest_stranger(struct service *s)
{
    struct service_client *oldest = NULL;

    for (size_t i = 0; i < s->nguests; i++) {
        struct service_client *g = &s->client[i];
        if (g->fd != -1 && g->state == CLIENT_STRANGER &&
            (oldest == NULL || g->came < oldest->came)) {
            oldest = g;
        }
    }
    if (oldest != NULL) {
        drop_service_client(oldest);
    }
    return oldest != NULL;
}

/* A connection waits that there is no descriptor for. The oldest stranger makes room; else it waits
 * for somebody to leave. */
static void make_room_for_connection(struct service *s, int why)
{
    if (!s->full) {
        s->full = true;
        log_warn("rendezvous.full", "%s; raise the limit on open files (ulimit -n)", strerror(why));
    }
    if (!drop_oldest_stranger(s)) {
        s->deaf_until_ms = s->now_ms + FULL_MS;
    }
}

static void welcome(struct service *s)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    int fd = accept4(s->listener, (struct sockaddr *)&a, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct service_client g = {.fd = fd, .came = s->came++, .in = BUF_INIT(RDZV_BUFFER)};
    uint8_t hello[RDZV_HELLO];
    int yes = 1;

    if (fd == -1) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            make_room_for_connection(s, errno);
        }
        return;
    }
    if (count_service_clients(s, CLIENT_STRANGER) >= STRANGERS) {
        (void)drop_oldest_stranger(s);
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    tcp_address((struct sockaddr *)&a, n, g.from);
    g.here = tcp_is_loopback((struct sockaddr *)&a);
    g.quiet_ms = s->now_ms + STRANGER_MS;
    memcpy(hello, "mrdagnt1", 8);
    if (getrandom(g.nonce, sizeof g.nonce, 0) != sizeof g.nonce) {
        drop_service_client(&g);
        return;
    }
    memcpy(hello + 8, g.nonce, sizeof g.nonce);
    if (send(fd, hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof hello ||
        s->nguests == s->room) {
        drop_service_client(&g);
        return;
    }
    s->client[s->nguests++] = g;
}

static void sweep_service_clients(struct service *s)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->nguests; i++) {
        if (s->client[i].fd != -1) {
            s->client[kept++] = s->client[i];
        }
    }
    s->nguests = kept;
}

static void look_at_clock(struct service *s)
{
    static const struct rdzv_message alive = {.type = RDZV_ALIVE};

    for (size_t i = 0; i < s->nguests; i++) {
        struct service_client *g = &s->client[i];
        if (g->fd != -1 && s->now_ms >= g->quiet_ms) {
            if (g->state == CLIENT_STRANGER) {
                drop_service_client(g);
            } else {
                lose_service_client(s, g, "was silent for too long");
            }
        }
    }
    if (s->now_ms - s->reported_ms >= s->nodes->lost_ms / 8) {
        s->reported_ms = s->now_ms;
        say_all(s, &alive);
    }
    if (s->phase == PHASE_GATHERING) {
        look_whether_all_came(s);
    }
}

/* An agent that takes part stays connected until its ranks have ended, or is found silent. */
static bool service_is_over(const struct service *s)
{
    bool over = s->phase == PHASE_OVER;

    for (size_t i = 0; over && i < s->nguests; i++) {
        over = s->client[i].fd == -1 || !s->client[i].joined;
    }
    return over;
}

static void serve_job_members(struct service *s)
{
    struct pollfd *p = mem_array(s->room + 1, sizeof p[0]);

    s->now_ms = clock_now_ms();
    s->generation = 1;
    gather_members(s);
    while (!service_is_over(s)) {
        size_t n = s->nguests;

        p[0] = (struct pollfd){.fd = s->now_ms >= s->deaf_until_ms ? s->listener : -1,
                               .events = POLLIN};
        for (size_t i = 0; i < n; i++) {
            p[i + 1] = (struct pollfd){.fd = s->client[i].fd, .events = POLLIN};
        }
        (void)poll(p, n + 1, TICK_MS);
        s->now_ms = clock_now_ms();
        for (size_t i = 0; i < n; i++) {
            if (p[i + 1].revents != 0 && s->client[i].fd != -1) {
                read_client(s, &s->client[i]);
            }
        }
        if (p[0].revents != 0) {
            welcome(s);
        }
        look_at_clock(s);
        sweep_service_clients(s);
    }
    for (size_t i = 0; i < s->nguests; i++) {
        drop_service_client(&s->client[i]);
    }
    free(p);
}

/* --- the process ------------------------------------------------------------------------------ */

/* On the first of the ports that is free. */
static int listen_on(const struct nodes *n, int *fd, struct err *e)
{
    struct err why = {0};
    int rc = tcp_listen(n->host, n->port, RDZV_PORTS, fd, &why);

    if (rc != 0) {
        return err_set(
            e, E_AGAIN, "%s%s", why.text,
            rc != E_NOTFOUND ? ""
            : n->external
                ? " (--rendezvous must be an address of this machine)"
                : " (--rendezvous must be an address of node 0; check that this node is node 0)");
    }
    return 0;
}

static void service_init(struct service *s, const struct service_params *w)
{
    *s = (struct service){
        .want = w, .nodes = w->nodes, .listener = -1, .room = w->nodes->max + STRANGERS + 64};
    descriptor_allow(s->room);
    restart_init(&s->restart, w->restarts, w->backoff_ms,
                 clock_now_ns() ^ (uint64_t)getpid() << 32);
    s->restart.spare = w->nodes->max - w->nodes->min;
    s->client = mem_array(s->room, sizeof s->client[0]);
}

int service_run(const struct service_params *w, int *exit_code, struct err *e)
{
    struct service s;
    int rc;

    service_init(&s, w);
    rc = listen_on(w->nodes, &s.listener, e);
    if (rc != 0) {
        goto out;
    }
    log_info("rendezvous.listen", "host=%s port=%u nodes=%u:%u", w->nodes->host,
             tcp_port(s.listener), w->nodes->min, w->nodes->max);
    serve_job_members(&s);
    close(s.listener);
    *exit_code = (int)s.ended.code;
    if (s.ended.code != 0) {
        log_warn("rendezvous.over", "code=%" PRIu32 " %s", s.ended.code, s.ended.text);
    }
out:
    free(s.client);
    return rc;
}

NORETURN static void be_service(const struct service_params *w, pid_t parent)
{
    struct service s;
    uint64_t until_ms = clock_now_ms() + w->nodes->join_ms;
    char reported[sizeof((struct err *)0)->text] = "";
    struct err why = {0};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "rendezvous");
    if (getppid() != parent) {
        _exit(1);
    }
    setpgid(0, 0); /* a terminal's ^C is for the agent to judge */
    service_init(&s, w);
    while (listen_on(w->nodes, &s.listener, &why) != 0 && clock_now_ms() < until_ms) {
        if (strcmp(reported, why.text) != 0) {
            snprintf(reported, sizeof reported, "%s", why.text);
            log_warn("rendezvous.listen", "%s; retrying", why.text);
        }
        poll(NULL, 0, 500);
    }
    if (s.listener == -1) {
        _exit(1);
    }
    serve_job_members(&s);
    _exit(0);
}

int service_start(const struct service_params *w, pid_t *pid, struct err *e)
{
    pid_t me = getpid();
    int fd;
    int rc = forked_start(pid, &fd, e);

    if (rc != 0) {
        return rc;
    }
    if (*pid == 0) {
        close(fd);
        be_service(w, me);
    }
    close(fd);
    return 0;
}
