/* h2.c - fuzzes whole connections, HTTP/2 and HTTP/1: bytes go into one end of a socket pair, a
 * handler answers.
 *
 * The first byte picks what the handler does; each input is one connection, from its preface on.
 * What must hold is the connection's own CHECKs, the sanitizers, and that every exchange that began
 * has ended when the connection is gone.
 */
#include <event2/event.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http/conn.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static struct {
    struct loop loop;
    struct http_loop http_loop;
    struct listener *listener;
    struct http_limits limits;
    char *bytes;
    unsigned how;
    int began, ended;
} world;

struct watch {
    struct exchange *x;
    bool paused;
};

static void on_data(void *arg, struct slice bytes, bool end)
{
    struct watch *w = arg;

    CHECK(!w->paused);
    if (end) {
        struct http_reply *r = ARENA_NEW(exchange_arena(w->x), struct http_reply);
        r->status = 200;
        exchange_reply(w->x, r, body_of_bytes(bytes));
    } else if ((world.how & 8) != 0 && bytes.n % 2 == 1) {
        w->paused = true;
        exchange_pause(w->x, true);
    }
}

static int poll_failing(struct body *b, uint64_t *upto)
{
    (void)b;
    (void)upto;
    return E_IO;
}

static void close_failing(struct body *b)
{
    free(b);
}

/* Of known length, and it breaks before the first byte. */
static struct body *failing_body(void)
{
    static const struct body_ops ops = {poll_failing, close_failing};
    struct body *b = NEW(struct body);

    *b = (struct body){.ops = &ops, .end = 1000, .fd = -1};
    return b;
}

static const struct exchange_events events = {.on_data = on_data};

static void on_request(void *arg, struct exchange *x)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);
    struct watch *w = ARENA_NEW(exchange_arena(x), struct watch);

    (void)arg;
    world.began++;
    w->x = x;
    exchange_on(x, &events, w);
    r->status = 200;
    switch (world.how & 3) {
    case 0:
        exchange_reply(x, r, body_of_bytes(slice_of(world.bytes, 300000)));
        break;
    case 1:
        if (exchange_req(x)->has_body) {
            exchange_read(x);
        } else {
            exchange_reply(x, r, NULL);
        }
        break;
    case 2:
        exchange_reply(x, r, failing_body());
        break;
    default: /* never */
        break;
    }
}

static void on_end(void *arg, struct exchange *x, const struct exchange_end *end)
{
    (void)arg;
    (void)x;
    (void)end;
    world.ended++;
}

static void start(void)
{
    const struct listener_settings set = {.address = "127.0.0.1:0"};
    struct event_config *config = event_config_new();

    CHECK(config != NULL && event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK) == 0);
    world.loop.base = event_base_new_with_config(config);
    event_config_free(config);
    world.loop.mail = message_queue_open(world.loop.base);
    loop_refresh(&world.loop);
    timers_init(&world.loop.timers, world.loop.now_ms);
    world.limits = (struct http_limits){.header_bytes = 8192,
                                        .header_fields = 50,
                                        .uri_bytes = 1024,
                                        .header_ms = 10000,
                                        .handshake_ms = 10000,
                                        .idle_ms = 75000,
                                        .stall_ms = 60000,
                                        .streams = 16,
                                        .reset_burst = 20,
                                        .resets_per_s = 1,
                                        .connections = 100,
                                        .discard_bytes = 65536};
    world.bytes = mem_new(300000);
    CHECK(listener_open(NULL, &set, &world.listener, NULL) == 0);
    world.http_loop.limits = &world.limits;
    world.http_loop.handler = (struct exchange_handler){.on_request = on_request, .on_end = on_end};
    http_loop_init(&world.http_loop, &world.loop);
}

/* Takes what the connection says; with `slow`, only a little of it, so that it blocks. */
static void turn(int fd, bool slow)
{
    static char sink[1 << 20];

    event_base_loop(world.loop.base, EVLOOP_NONBLOCK);
    for (int i = 0;
         i < (slow ? 1 : 64) && recv(fd, sink, slow ? 100 : sizeof sink, MSG_DONTWAIT) > 0; i++) {
        event_base_loop(world.loop.base, EVLOOP_NONBLOCK);
    }
}

static void feed(int fd, const uint8_t *p, size_t n, bool slow)
{
    while (n > 0) {
        size_t piece = (world.how & 16) != 0 && n > 7 ? 7 : n;
        ssize_t sent = send(fd, p, piece, MSG_DONTWAIT | MSG_NOSIGNAL);
        turn(fd, slow);
        if (sent <= 0) {
            return; /* it has closed, or holds us off */
        }
        p += sent;
        n -= (size_t)sent;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const uint8_t preface[] = H2_PREFACE "\0\0\0\4\0\0\0\0\0";
    struct accepted a = {.fd = -1};
    int pair[2];
    bool slow;

    if (world.loop.base == NULL) {
        start();
    }
    if (n == 0) {
        return 0;
    }
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    world.how = p[0];
    slow = (world.how & 32) != 0;
    a.fd = pair[0];
    a.listener = listener_hold(world.listener);
    atomic_fetch_add(&world.loop.connections, 1);
    conn_open(&world.http_loop, &a);
    if ((world.how & 128) == 0) {
        feed(pair[1], preface, sizeof preface - 1, slow);
    }
    feed(pair[1], p + 1, n - 1, slow);
    if ((world.how & 64) != 0 && !list_empty(&world.http_loop.conns)) { /* drained in the middle */
        struct conn *c = LIST_ITEM(world.http_loop.conns.next, struct conn, node);
        c->ops->drain(c);
        turn(pair[1], false);
    }
    close(pair[1]);
    event_base_loop(world.loop.base, EVLOOP_NONBLOCK);
    while (!list_empty(&world.http_loop.conns)) {
        conn_close(LIST_ITEM(world.http_loop.conns.next, struct conn, node));
    }
    CHECK(world.began == world.ended && atomic_load(&world.loop.connections) == 0);
    return 0;
}
