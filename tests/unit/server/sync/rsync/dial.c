/* A connection by a name: the name is looked up elsewhere, whoever gives up need not wait for it. A
 * dead address among living ones: whoever answers is connected, whatever the others do. */
#include "server/sync/rsync/dial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LONG "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

struct visit {
    struct event_base *base;
    struct message_queue *box;
    struct dial *dial;
    unsigned calls;
    int fd;
};

static void done(void *arg, int fd, const struct err *why)
{
    struct visit *v = arg;

    (void)why;
    v->calls++;
    v->fd = fd;
    dial_close(&v->dial);
}

static int setup(void **state)
{
    static struct visit v;

    v = (struct visit){.base = event_base_new(), .fd = -1};
    v.box = message_queue_open(v.base);
    *state = &v;
    return 0;
}

static int teardown(void **state)
{
    struct visit *v = *state;

    dial_close(&v->dial);
    if (v->fd != -1) {
        close(v->fd);
    }
    message_queue_close(&v->box);
    event_base_free(v->base);
    return 0;
}

static void start(struct visit *v, const char *host, uint16_t port)
{
    const struct link_site site = {v->base, v->box};

    const struct dial_to to = {.host = slice_str(host), .port = port};

    assert_int_equal(dial_open(&to, &site, done, v, &v->dial, NULL), 0);
}

static void until_done(struct visit *v)
{
    while (v->calls == 0) {
        assert_int_not_equal(event_base_loop(v->base, EVLOOP_ONCE), -1);
    }
    assert_int_equal(v->calls, 1);
}

static int listener(uint16_t *port)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t n = sizeof sin;

    assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof sin), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &n), 0);
    *port = ntohs(sin.sin_port);
    return fd;
}

static void one_that_is_there(void **state)
{
    struct visit *v = *state;
    uint16_t port;
    int fd = listener(&port);

    start(v, "127.0.0.1", port);
    assert_int_equal(v->calls, 0);
    until_done(v);
    assert_int_not_equal(v->fd, -1);
    close(fd);
}

static void a_name_that_cannot_be(void **state)
{
    struct visit *v = *state;

    start(v, LONG "." LONG, 1); /* each part of a name has 63 bytes at most: no server is asked */
    until_done(v);
    assert_int_equal(v->fd, -1);
}

/* lookup.c's own test has those that hang. */
static void given_up_before_the_answer(void **state)
{
    struct visit *v = *state;

    start(v, "127.0.0.1", 1);
    dial_close(&v->dial);
    message_queue_close(&v->box); /* as a run does that has ended */
    assert_int_equal(v->calls, 0);
}

/* --- the race alone --- */

enum { PLACES = 4 };

struct place {
    struct sockaddr_in sin;
    struct addrinfo info;
};

struct ground {
    struct event_base *base;
    struct race *race;
    struct place place[PLACES];
    unsigned places;
    int listens[PLACES]; /* that must be closed; as are the next */
    int sits[PLACES];
    unsigned calls;
    int fd;
    const char *why;
};

static void won(void *arg, int fd, const char *why)
{
    struct ground *g = arg;

    g->calls++;
    g->fd = fd;
    g->why = why;
}

static void won_and_done(void *arg, int fd, const char *why)
{
    struct ground *g = arg;

    won(arg, fd, why);
    race_close(&g->race);
}

static int race_setup(void **state)
{
    static struct ground g;

    g = (struct ground){.base = event_base_new(), .fd = -1};
    for (unsigned i = 0; i < PLACES; i++) {
        g.listens[i] = g.sits[i] = -1;
    }
    *state = &g;
    return g.base != NULL ? 0 : -1;
}

static int race_teardown(void **state)
{
    struct ground *g = *state;

    race_close(&g->race);
    event_base_free(g->base);
    for (unsigned i = 0; i < PLACES; i++) {
        close(g->listens[i]);
        close(g->sits[i]);
    }
    close(g->fd);
    return 0;
}

static struct place *add_place(struct ground *g)
{
    struct place *p = &g->place[g->places];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t n = sizeof p->sin;

    assert_int_not_equal(fd, -1);
    p->sin = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    assert_int_equal(bind(fd, (struct sockaddr *)&p->sin, sizeof p->sin), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&p->sin, &n), 0);
    p->info = (struct addrinfo){
        .ai_family = AF_INET, .ai_addr = (struct sockaddr *)&p->sin, .ai_addrlen = sizeof p->sin};
    if (g->places > 0) {
        g->place[g->places - 1].info.ai_next = &p->info;
    }
    g->listens[g->places++] = fd;
    return p;
}

static void add_refusing(struct ground *g)
{
    (void)add_place(g); /* bound, so nobody else listens there */
}

static void add_open(struct ground *g)
{
    (void)add_place(g);
    assert_int_equal(listen(g->listens[g->places - 1], 8), 0);
}

/* Nobody accepts, and the one place in its queue is taken: what comes now is dropped without a
 * word. */
static void add_silent(struct ground *g)
{
    struct place *p = add_place(g);
    unsigned i = g->places - 1;
    struct pollfd queued = {.fd = g->listens[i], .events = POLLIN};

    assert_int_equal(listen(g->listens[i], 0), 0);
    g->sits[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(g->sits[i], (struct sockaddr *)&p->sin, sizeof p->sin), 0);
    assert_int_equal(poll(&queued, 1, -1), 1);
}

static void run_race(struct ground *g, void (*on_won)(void *arg, int fd, const char *why))
{
    g->race = race_open(g->base, &g->place[0].info, on_won, g);
    assert_int_equal(g->calls, 0);
    while (g->calls == 0) {
        assert_int_not_equal(event_base_loop(g->base, EVLOOP_ONCE), -1);
    }
    assert_int_equal(g->calls, 1);
}

static void assert_reached(const struct ground *g, unsigned place)
{
    struct sockaddr_in sin;
    socklen_t n = sizeof sin;

    assert_null(g->why);
    assert_int_equal(getpeername(g->fd, (struct sockaddr *)&sin, &n), 0);
    assert_int_equal(sin.sin_port, g->place[place].sin.sin_port);
}

static void the_first_that_answers(void **state)
{
    struct ground *g = *state;

    add_open(g);
    add_open(g);
    run_race(g, won);
    assert_reached(g, 0);
}

static void the_dead_cost_no_run(void **state)
{
    struct ground *g = *state;

    add_silent(g);
    add_refusing(g);
    add_silent(g);
    add_open(g);
    run_race(g, won_and_done);
    assert_reached(g, 3);
}

static void all_refuse(void **state)
{
    struct ground *g = *state;

    add_refusing(g);
    add_refusing(g);
    run_race(g, won_and_done);
    assert_int_equal(g->fd, -1);
    assert_string_equal(g->why, strerrordesc_np(ECONNREFUSED));
}

static void closed_while_it_runs(void **state)
{
    struct ground *g = *state;

    add_silent(g);
    g->race = race_open(g->base, &g->place[0].info, won, g);
    event_base_loop(g->base, EVLOOP_ONCE);
    race_close(&g->race);
    assert_int_equal(event_base_loop(g->base, EVLOOP_ONCE), 1); /* nothing waits for anything */
    assert_int_equal(g->calls, 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define RACE(f) cmocka_unit_test_setup_teardown(f, race_setup, race_teardown)
    const struct CMUnitTest tests[] = {
        CASE(one_that_is_there),      CASE(a_name_that_cannot_be), CASE(given_up_before_the_answer),
        RACE(the_first_that_answers), RACE(the_dead_cost_no_run),  RACE(all_refuse),
        RACE(closed_while_it_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
