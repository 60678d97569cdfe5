/* A name is looked up for as long as that takes: whoever gives up does not wait for it. */
#include "common/xfer/dns_lookup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <event2/event.h>
#include <semaphore.h>

#define LONG "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static sem_t go, gone;

/* Instead of the system's: "held" waits for a name server that is silent until `go`. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (strcmp(name, "held") == 0) {
        while (sem_wait(&go) != 0) {
        }
        sem_post(&gone);
        return EAI_AGAIN;
    }
    return real(name, service, hints, out);
}

struct visit {
    struct event_base *base;
    struct message_queue *box;
    unsigned calls;
    bool found;
    char why[64];
};

static void done(void *arg, struct addrinfo *found, const char *why)
{
    struct visit *v = arg;

    v->calls++;
    v->found = found != NULL;
    snprintf(v->why, sizeof v->why, "%s", why);
    if (found != NULL) {
        freeaddrinfo(found);
    }
}

static int setup(void **state)
{
    static struct visit v;

    v = (struct visit){.base = event_base_new()};
    v.box = message_queue_open(v.base);
    assert_int_equal(sem_init(&go, 0, 0), 0);
    assert_int_equal(sem_init(&gone, 0, 0), 0);
    *state = &v;
    return 0;
}

static int teardown(void **state)
{
    struct visit *v = *state;

    message_queue_close(&v->box);
    event_base_free(v->base);
    return 0;
}

static void until_done(struct visit *v)
{
    while (v->calls == 0) {
        assert_int_not_equal(event_base_loop(v->base, EVLOOP_ONCE), -1);
    }
    assert_int_equal(v->calls, 1);
}

static void an_address(void **state)
{
    struct visit *v = *state;

    (void)dns_lookup_start(v->box, SLICE("127.0.0.1"), 80, done, v);
    assert_int_equal(v->calls, 0);
    until_done(v);
    assert_true(v->found);
}

static void a_name_that_cannot_be(void **state)
{
    struct visit *v = *state;

    /* Each part of a name has 63 bytes at most: no server is asked. */
    (void)dns_lookup_start(v->box, SLICE(LONG "." LONG), 80, done, v);
    until_done(v);
    assert_false(v->found);
    assert_string_not_equal(v->why, "");
}

static void cancelled_while_it_hangs(void **state)
{
    struct visit *v = *state;
    struct dns_lookup *l = dns_lookup_start(v->box, SLICE("held"), 80, done, v);

    dns_lookup_cancel(&l);
    assert_null(l);
    message_queue_close(
        &v->box); /* the answer finds neither its lookup's owner nor the message queue */
    sem_post(&go);
    while (sem_wait(&gone) != 0) {
    }
    assert_int_equal(v->calls, 0);
}

static void cancelled_with_the_answer_on_its_way(void **state)
{
    struct visit *v = *state;
    struct dns_lookup *l = dns_lookup_start(v->box, SLICE("held"), 80, done, v);

    sem_post(&go);
    while (sem_wait(&gone) != 0) {
    }
    dns_lookup_cancel(&l); /* it is in the box, or just before it */
    message_queue_close(&v->box);
    assert_int_equal(v->calls, 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(an_address),
        CASE(a_name_that_cannot_be),
        CASE(cancelled_while_it_hangs),
        CASE(cancelled_with_the_answer_on_its_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
