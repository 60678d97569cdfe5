/* A connection by a name: the name is looked up elsewhere, whoever gives up need not wait for it. */
#include "server/sync/rsync/dial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <event2/event.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define LONG "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

struct visit {
    struct event_base *base;
    struct mailbox *box;
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
    v.box = mailbox_open(v.base);
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
    mailbox_close(&v->box);
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
    mailbox_close(&v->box); /* as a run does that has ended */
    assert_int_equal(v->calls, 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(one_that_is_there),
        CASE(a_name_that_cannot_be),
        CASE(given_up_before_the_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
