/* conn.c - the life of a connection, and the HTTP loop that drives all connections of one loop.
 *
 * conn_open() takes an accepted socket (HANDSHAKE). With TLS, the handshake and ALPN select the
 * protocol; in cleartext the first bytes do. h1.c or h2.c then replaces the connection's operations
 * and serves its requests (HTTP1, HTTP2). After a last answer the connection lingers (LINGERING):
 * it sends its last bytes and its FIN, and reads and drops what the peer still sends, within bounds
 * of bytes and time, so that a reset does not destroy an answer that the peer has not read yet.
 * Each state can also end directly in conn_close().
 *
 * An event on the socket, a timer, or a kick by a handler puts the connection into the ready queue.
 * There clients take turns. A turn calls the protocol's drive(), flushes the wire, sets the timer
 * to the next deadline, and closes the connection if it has ended or failed. At the maximum number
 * of connections idle ones are closed, first those of the clients with most connections. conn.h
 * draws the states.
 *
 * threads  the connection's loop
 */
#include "server/http/conn.h"

#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/net/sock.h"

enum {
    INPUT_MORE = 128 * 1024,
    LINGER_MS = 2000,
    PREFACE_BYTES = sizeof H2_PREFACE - 1,
    REAP_MAX = 64
};
/* A turn costs the bytes that it moved, and for each answer as many as could be moved in the time
 * that a small one takes. In a round of the ready queue each client has a turn, and some more
 * follow: a look at the sockets costs a tenth of a small answer. */
enum { ANSWER_COST = 16 * 1024, TURN_COST = DRIVE_BYTES, TURNS_MORE = 32, ROUND_COST = 512 * 1024 };
enum { IDLE_MS = 200 }; /* a request of a connection that was idle for less may be on its way */

static void conn_drive(struct conn *c);
static const struct conn_ops handshake_ops;
static const struct conn_ops linger_ops;

/* --- its clients ------------------------------------------------------------------------------
 *
 * What each has been sent is counted where the bytes leave, so that connections that come and go
 * still add up.
 */

static void clients_init(struct clients *cs)
{
    *cs = (struct clients){.all = NULL};
    list_init(&cs->gone);
}

static void client_forget(struct clients *cs, struct client *c)
{
    CHECK(c->connections == 0);
    HASH_DEL(cs->all, c);
    list_remove(&c->gone);
    cs->ngone--;
    free(c);
}

static void clients_fini(struct clients *cs)
{
    while (!list_empty(&cs->gone)) {
        client_forget(cs, LIST_ITEM(cs->gone.next, struct client, gone));
    }
    CHECK(cs->all == NULL);
}

static struct client *client_enter(struct clients *cs, const struct sockaddr_storage *peer)
{
    uint8_t address[ADDRESS_BYTES];
    struct client *c = NULL;

    address_of(peer, address);
    HASH_FIND(hh, cs->all, address, ADDRESS_BYTES, c);
    if (c == NULL) {
        c = NEW(struct client);
        memcpy(c->address, address, ADDRESS_BYTES);
        HASH_ADD(hh, cs->all, address, ADDRESS_BYTES, c);
    } else if (c->connections == 0) {
        list_remove(&c->gone);
        cs->ngone--;
    }
    c->connections++;
    return c;
}

static void client_leave(struct clients *cs, struct client *c)
{
    CHECK(c->connections > 0);
    if (--c->connections > 0) {
        return;
    }
    list_push_back(&cs->gone, &c->gone);
    if (++cs->ngone > CLIENTS_GONE) {
        client_forget(cs, LIST_ITEM(cs->gone.next, struct client, gone));
    }
}

/* --- the HTTP loop ---------------------------------------------------------------------------- */

static void on_run(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval now = {0};
    struct http_loop *l = arg;
    unsigned clients = l->ready.clients, turns = 0;
    uint64_t began = l->turns_cost;
    struct fair_item *it;

    (void)fd;
    (void)what;
    loop_refresh(l->loop);
    while (
        (turns < clients || (turns < clients + TURNS_MORE && l->turns_cost - began < ROUND_COST)) &&
        (it = fair_queue_pop(&l->ready)) != NULL) {
        turns++;
        conn_drive(CONTAINER_OF(it, struct conn, ready));
    }
    if (fair_queue_ready(&l->ready)) { /* the sockets have their say before the next round */
        event_add(l->run, &now);
    }
}

static void on_pace(evutil_socket_t fd, short what, void *arg)
{
    struct http_loop *l = arg;
    struct list batch;
    struct list *n;

    (void)fd;
    (void)what;
    loop_refresh(l->loop);
    list_init(&batch);
    while ((n = list_pop_front(&l->paced)) != NULL) {
        list_push_back(&batch, n);
    }
    /* The first may take all that there is, and they come back in this order: next time another is
     * first. */
    n = list_pop_front(&batch);
    if (n != NULL) {
        list_push_back(&batch, n);
    }
    while ((n = list_pop_front(&batch)) != NULL) {
        struct exchange *x = LIST_ITEM(n, struct exchange, paced);
        x->conn->ops->wake(x);
        conn_kick(x->conn);
    }
}

uint64_t http_loop_clock_ns(struct http_loop *l)
{
    if (l->clock_ns == 0) {
        l->clock_ns = clock_now_ns();
    }
    return l->clock_ns;
}

void http_loop_init(struct http_loop *l, struct loop *loop)
{
    l->loop = loop;
    list_init(&l->conns);
    clients_init(&l->clients);
    fair_queue_init(&l->ready, TURN_COST, 0);
    list_init(&l->paced);
    list_init(&l->spare);
    wire_scratch_init(&l->scratch);
    body_port_init(&l->port, loop->mail, exchange_end_use);
    l->fields = mem_array(l->limits->header_fields + 1, sizeof *l->fields);
    l->run = evtimer_new(loop->base, on_run, l);
    l->pace = evtimer_new(loop->base, on_pace, l);
    CHECK(l->run != NULL && l->pace != NULL);
    CHECK(getrandom(&l->next_id, sizeof l->next_id, 0) == sizeof l->next_id);
}

void http_loop_fini(struct http_loop *l)
{
    struct list *n;

    while ((n = list_pop_front(&l->spare)) != NULL) {
        struct exchange *x = LIST_ITEM(n, struct exchange, spare);
        arena_fini(&x->arena);
        free(x);
    }
    clients_fini(&l->clients);
    fair_queue_fini(&l->ready);
    free(l->fields);
    event_free(l->run);
    event_free(l->pace);
    wire_scratch_fini(&l->scratch);
}

/* --- driving ---------------------------------------------------------------------------------- */

static void count_bytes(struct conn *c)
{
    struct http_loop *l = c->http_loop;
    uint64_t in = c->wire.bytes_in - c->seen_in;
    uint64_t out = c->wire.bytes_out - c->seen_out;

    c->turn_cost = in + out + (uint64_t)c->answered * ANSWER_COST;
    c->answered = 0;
    l->turns_cost += c->turn_cost;
    if (in != 0) {
        c->seen_in += in;
        count(&l->counters.bytes_in, in);
    }
    if (out != 0) {
        c->out_ms = l->loop->now_ms;
        c->seen_out += out;
        c->client->bytes_out += out;
        count(&l->counters.bytes_out, out);
    }
}

/* Input that was only borrowed from the loop's scratch becomes ours; an idle connection keeps
 * none. */
static void keep_input(struct conn *c)
{
    struct conn_input *in = &c->in;

    if (in->n == 0) {
        buf_free(&in->own);
    } else if (in->borrowed) {
        buf_clear(&in->own);
        buf_add(&in->own, in->p, in->n);
        in->p = in->own.p;
        in->borrowed = false;
    }
}

static void schedule(struct conn *c)
{
    uint64_t due = c->ops->due(c);

    /* Deadlines mostly move away: then the armed timer fires early, looks again, and is set
     * anew. */
    if (due != UINT64_MAX && (!list_linked(&c->timer.node) || due < c->timer.due_ms)) {
        timer_set(&c->http_loop->loop->timers, &c->timer, due);
    }
}

static void finish_conn_event(struct conn *c, int rc)
{
    int flushed = wire_flush(&c->wire, false);

    if (rc == CONN_END && h1_end_would_lie(c)) {
        rc = E_CANCELLED;
    }
    if (rc == CONN_END && flushed == E_AGAIN && c->state != CONN_LINGERING) {
        conn_linger(c); /* the last bytes are not out yet */
        rc = 0;
    } else if (rc == CONN_END && flushed == 0) {
        wire_shutdown(&c->wire);
    }
    if (rc == 0 && flushed == E_NETWORK) {
        rc = E_NETWORK;
    }
    c->http_loop->scratch.plain_n = c->http_loop->scratch.cipher_n = 0; /* of a broken one */
    count_bytes(c);
    if (rc != 0) {
        conn_close(c);
        return;
    }
    keep_input(c);
    schedule(c);
}

static void conn_drive(struct conn *c)
{
    int rc;

    CHECK(c->magic == CONN_MAGIC && !c->driving);
    fair_queue_leave(&c->http_loop->ready, &c->ready);
    c->driving = true;
    do {
        http_loop_tick(c->http_loop);
        c->again = false;
        rc = c->ops->drive(c);
    } while (rc == 0 && c->again);
    c->driving = false;
    finish_conn_event(c, rc);
}

/* False: it waits for its turn already. */
static bool queue_for_turn(struct conn *c)
{
    bool fresh = c->ready.flow == NULL;

    if (fresh) {
        fair_queue_push(&c->http_loop->ready, &c->ready, c->client_id, c->turn_cost + 1);
    }
    return fresh;
}

void conn_yield(struct conn *c)
{
    static const struct timeval now = {0};

    if (queue_for_turn(c)) {
        event_add(c->http_loop->run, &now);
    }
}

void conn_kick(struct conn *c)
{
    if (c->driving) {
        c->again = true;
    } else {
        conn_yield(c);
    }
}

static void on_socket(evutil_socket_t fd, short what, void *arg)
{
    struct conn *c = arg;

    (void)fd;
    CHECK(c->magic == CONN_MAGIC);
    loop_refresh(c->http_loop->loop);
    c->wire.readable = c->wire.readable || (what & (EV_READ | EV_CLOSED)) != 0;
    c->wire.hung_up = c->wire.hung_up || (what & EV_CLOSED) != 0;
    c->wire.writable = c->wire.writable || (what & EV_WRITE) != 0;
    if (queue_for_turn(c)) {
        event_active(c->http_loop->run, EV_TIMEOUT, 0); /* after the other sockets of this look */
    }
}

static void on_conn_timer(struct timer *t)
{
    struct conn *c = CONTAINER_OF(t, struct conn, timer);
    uint64_t now_ms = c->http_loop->loop->now_ms;
    int rc = 0;

    http_loop_tick(c->http_loop);
    CHECK(c->magic == CONN_MAGIC);
    if (c->ops->due(c) <= now_ms) {
        c->driving = true;
        rc = c->ops->expire(c);
        c->driving = false;
        if (rc == 0) {
            conn_kick(c);
        }
    }
    finish_conn_event(c, rc);
}

static const struct state of_conn[] = {
    [CONN_HANDSHAKE] = {"greeting", STATE(CONN_HTTP1) | STATE(CONN_HTTP2) | STATE(CONN_LINGERING)},
    [CONN_HTTP1] = {"HTTP/1", STATE(CONN_LINGERING)},
    [CONN_HTTP2] = {"HTTP/2", STATE(CONN_LINGERING)},
    [CONN_LINGERING] = {"lingering", 0},
};
const struct state_table conn_states = STATE_TABLE("connection", of_conn);

void conn_become(struct conn *c, enum conn_state to, const struct conn_ops *ops)
{
    c->state = state_step(&conn_states, c->state, to);
    c->ops = ops;
    c->again = true;
}

void conn_restart(struct conn *c)
{
    c->since_ms = c->http_loop->loop->now_ms;
}

/* --- input ------------------------------------------------------------------------------------ */

int conn_more(struct conn *c)
{
    struct conn_input *in = &c->in;
    char *to = c->http_loop->scratch.in;
    size_t room = WIRE_READ_BYTES;
    ssize_t got;

    if (in->n != 0) { /* the beginning of something: its rest must follow it in memory */
        if (in->borrowed) {
            buf_clear(&in->own);
            buf_add(&in->own, in->p, in->n);
        } else {
            buf_drop(&in->own, (size_t)(in->p - in->own.p));
        }
        in->borrowed = false;
        room = 16 * 1024;
        to = buf_room(&in->own, room);
        in->p = in->own.p;
        if (to == NULL) {
            buf_clear(&in->own);
            return E_TOOBIG;
        }
    }
    got = wire_read(&c->wire, to, room);
    if (got <= 0) {
        return (int)got;
    }
    if (in->n != 0) {
        buf_grew(&in->own, (size_t)got);
    } else {
        in->p = to;
        in->borrowed = true;
    }
    in->n += (size_t)got;
    return (int)got;
}

void conn_consume(struct conn *c, size_t n)
{
    CHECK(n <= c->in.n);
    c->in.p += n;
    c->in.n -= n;
}

/* --- opening: the handshake, then h1 or h2 ---------------------------------------------------- */

void conn_open(struct http_loop *l, const struct accepted *a)
{
    struct tls_identity *identity = listener_identity(a->listener);
    struct conn *c = NEW(struct conn);

    *c = (struct conn){.magic = CONN_MAGIC,
                       .http_loop = l,
                       .state = CONN_HANDSHAKE,
                       .ops = &handshake_ops,
                       .listener = a->listener,
                       .peer = a->peer,
                       .client_id = client_of(&a->peer),
                       .spare = a->spare,
                       .client = client_enter(&l->clients, &a->peer),
                       .timer.fire = on_conn_timer};
    c->in.own = BUF_INIT(INPUT_MORE + l->limits->header_bytes); /* a head and what follows it */
    wire_open(&c->wire, a->fd, identity != NULL ? tls_session(identity) : NULL, &l->scratch);
    c->out_ms = l->loop->now_ms;
    conn_restart(c);
    CHECK(event_assign(&c->ev, l->loop->base, a->fd,
                       EV_READ | EV_WRITE | EV_CLOSED | EV_ET | EV_PERSIST, on_socket, c) == 0);
    list_push_back(&l->conns, &c->node);
    count(&l->counters.accepted, 1);
    if (identity != NULL) {
        count(&l->counters.tls, 1);
    }
    if (l->draining || event_add(&c->ev, NULL) != 0) {
        conn_close(c);
        return;
    }
    conn_drive(c);
}

void conn_close(struct conn *c)
{
    struct http_loop *l = c->http_loop;

    http_loop_tick(l);
    c->driving = true; /* handlers that hear of the end cannot kick us any more */
    c->ops->close(c);
    if (wire_blocked(&c->wire)) { /* what has left already must not look like all */
        wire_break(&c->wire);
    }
    event_del(&c->ev);
    timer_stop(&c->timer);
    fair_queue_leave(&l->ready, &c->ready);
    list_remove(&c->node);
    if (c->wire.ssl != NULL) {
        count(&l->counters.tls, (uint64_t)-1);
    }
    wire_close(&c->wire);
    client_leave(&l->clients, c->client);
    listener_release(&c->listener);
    buf_free(&c->in.own);
    atomic_fetch_sub_explicit(&l->loop->connections, 1, memory_order_relaxed);
    if (l->handler.on_disconnect != NULL) {
        l->handler.on_disconnect(l->handler.arg, &c->peer);
    }
    c->magic = 0;
    free(c);
    if (l->server != NULL) {
        server_conn_gone(l->server);
    }
}

/* --- at the ceiling: idle connections end ----------------------------------------------------- */

static bool goes_before(const struct conn *a, const struct conn *b)
{
    if (a->client->connections != b->client->connections) {
        return a->client->connections > b->client->connections;
    }
    return a->ops->idle_ms(a) < b->ops->idle_ms(b);
}

static void end_idle(struct conn *c)
{
    int rc;

    c->since_ms = c->http_loop->loop->now_ms - c->http_loop->limits->idle_ms; /* its time is over */
    c->driving = true;
    rc = c->ops->expire(c);
    c->driving = false;
    finish_conn_event(c, rc);
}

void conn_reap(struct http_loop *l, unsigned n)
{
    struct conn *first[REAP_MAX];
    unsigned count = 0;

    n = n < REAP_MAX ? n : REAP_MAX;
    LIST_EACH (&l->conns, it) {
        struct conn *c = LIST_ITEM(it, struct conn, node);
        unsigned at = count;
        uint64_t idle_ms = c->ops->idle_ms(c);
        if (idle_ms == UINT64_MAX || l->loop->now_ms < idle_ms + IDLE_MS) {
            continue;
        }
        while (at > 0 && goes_before(c, first[at - 1])) {
            at--;
        }
        if (at < n) {
            count += count < n;
            memmove(&first[at + 1], &first[at], (count - at - 1) * sizeof first[0]);
            first[at] = c;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        end_idle(first[i]);
    }
}

/* Cleartext: HTTP/2 with prior knowledge begins with a preface that no HTTP/1 request can be (RFC
 * 9113 3.4). A preface that is wrong after its first line is still HTTP/2, and its error is
 * answered there. */
static int choose_clear(struct conn *c)
{
    static const char preface[] = H2_PREFACE;
    const size_t line = strlen("PRI * HTTP/2.0\r\n");

    for (;;) {
        size_t n = c->in.n < PREFACE_BYTES ? c->in.n : PREFACE_BYTES;
        int got;
        if (n > 0 && memcmp(c->in.p, preface, n) != 0) {
            if (n >= line && memcmp(c->in.p, preface, line) == 0) {
                return h2_start(c);
            }
            h1_start(c);
            return 0;
        }
        if (n == PREFACE_BYTES) {
            return h2_start(c);
        }
        got = conn_more(c);
        if (got <= 0) {
            return got == E_AGAIN ? 0 : CONN_END;
        }
    }
}

static int handshake_drive(struct conn *c)
{
    int rc;

    if (c->wire.ssl == NULL) {
        rc = choose_clear(c);
    } else {
        rc = wire_handshake(&c->wire);
        if (rc == E_AGAIN) {
            return 0;
        }
        if (rc == 0 && tls_chose_h2(c->wire.ssl)) {
            rc = h2_start(c);
        } else if (rc == 0) {
            h1_start(c);
        }
    }
    return rc;
}

static uint64_t handshake_due(const struct conn *c)
{
    const struct http_limits *limits = c->http_loop->limits;

    return c->since_ms + (c->wire.ssl != NULL ? limits->handshake_ms
                          : c->in.n != 0      ? limits->header_ms
                                              : limits->idle_ms);
}

static uint64_t since_ms(const struct conn *c)
{
    return c->since_ms;
}

static int end_now(struct conn *c)
{
    (void)c;
    return CONN_END;
}

static void no_conn_event(struct conn *c)
{
    (void)c;
}

static void no_exchange(struct exchange *x)
{
    (void)x;
}

static void drain_idle(struct conn *c)
{
    c->since_ms = 0;
    conn_kick(c);
}

static const struct conn_ops handshake_ops = {.drive = handshake_drive,
                                              .due = handshake_due,
                                              .expire = end_now,
                                              .idle_ms = since_ms,
                                              .drain = drain_idle,
                                              .wake = no_exchange,
                                              .close = no_conn_event};

/* --- lingering -------------------------------------------------------------------------------- */

void conn_linger(struct conn *c)
{
    c->ops->close(c);
    conn_become(c, CONN_LINGERING, &linger_ops);
    c->h1 = (struct h1){.x = NULL};
    conn_consume(c, c->in.n);
}

/* First our last bytes leave, then our FIN; then we read until the peer's, within a bound of bytes
 * and of time. */
static int linger_drive(struct conn *c)
{
    int rc = wire_flush(&c->wire, false);

    if (rc != 0) {
        return rc == E_AGAIN ? 0 : rc;
    }
    if (!c->h1.close) {
        c->h1.close = true;
        wire_shutdown(&c->wire);
        conn_restart(c);
    }
    for (;;) {
        ssize_t got = wire_read(&c->wire, c->http_loop->scratch.in, WIRE_READ_BYTES);
        if (got <= 0) {
            return got == E_AGAIN ? 0 : CONN_END;
        }
        c->h1.discarded += (uint64_t)got;
        if (c->h1.discarded > c->http_loop->limits->discard_bytes) {
            return CONN_END;
        }
        if (c->http_loop->loop->now_ms < c->out_ms + c->http_loop->limits->stall_ms &&
            sock_delivers(c->wire.fd)) {
            conn_restart(c); /* it says something each time it has read some */
        }
    }
}

static uint64_t linger_due(const struct conn *c)
{
    return wire_blocked(&c->wire) ? c->out_ms + c->http_loop->limits->stall_ms
                                  : c->since_ms + LINGER_MS;
}

static const struct conn_ops linger_ops = {.drive = linger_drive,
                                           .due = linger_due,
                                           .expire = end_now,
                                           .idle_ms = since_ms,
                                           .drain = no_conn_event,
                                           .wake = no_exchange,
                                           .close = no_conn_event};
