/* A group and its parts have operations under way on several streams: what the flight record takes
 * for complete. */
#include "kernels/comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "common/base/check.h"

struct fake {
    struct comm base;
    uint64_t oldest; /* that poll() tells */
};

static int (*watch)(void *arg); /* what waits for a stream call */
static void *watched;

static void watch_stream(struct kstream *ks, int (*poll)(void *arg), void *arg)
{
    (void)ks;
    watch = poll;
    watched = arg;
}

static int allreduce(struct comm *c, struct kstream *ks, enum dtype dt, void *buf, int64_t n)
{
    struct fake *f = (struct fake *)c;

    (void)ks;
    (void)dt;
    (void)buf;
    (void)n;
    f->oldest = f->oldest == 0 ? c->seq : f->oldest;
    return 0;
}

static int poll_fake(struct comm *c, uint64_t *oldest)
{
    *oldest = ((struct fake *)c)->oldest;
    return 0;
}

static void close_fake(struct comm **cp)
{
    free(*cp);
    *cp = NULL;
}

static int split(struct comm *c, int color, struct comm **out);

static struct comm *fake(void)
{
    struct fake *f = NEW(struct fake);

    *f = (struct fake){.base = {.name = "fake",
                                .size = 2,
                                .post_allreduce = allreduce,
                                .split = split,
                                .poll = poll_fake,
                                .close = close_fake}};
    return &f->base;
}

static int split(struct comm *c, int color, struct comm **out)
{
    (void)c;
    (void)color;
    *out = fake();
    return 0;
}

static void post(struct comm *c)
{
    assert_int_equal(comm_allreduce(c, NULL, DT_F32, NULL, 1), 0);
}

static uint64_t done(const struct comm *c)
{
    struct flight_view v;

    assert_int_equal(watch(watched), 0);
    flight_look(c->flight, &v);
    return v.done;
}

static void complete_to(struct comm *c, uint64_t oldest)
{
    ((struct fake *)c)->oldest = oldest;
}

static void test_streams_do_not_wait_for_each_other(void **state)
{
    struct comm *all = fake(), *near, *far, *shards;
    struct kops k = *kops_cpu();

    (void)state;
    all->flight = flight_open();
    k.stream_watch = watch_stream;
    comm_watch(all, &k, NULL);
    assert_int_equal(comm_split(all, 0, &near), 0);
    assert_int_equal(comm_split(all, 0, &far), 0);
    assert_int_equal(comm_split(far, 0, &shards), 0); /* 3 */
    post(near);                                       /* 4 */
    post(shards);
    post(near);
    post(all); /* 7 */
    assert_int_equal(done(all), 3);
    complete_to(shards, 0); /* later than what waits on another stream */
    assert_int_equal(done(all), 3);
    complete_to(near, 6);
    assert_int_equal(done(all), 5);
    complete_to(near, 0);
    assert_int_equal(done(all), 6);
    complete_to(all, 0);
    assert_int_equal(done(all), 7);
    post(shards);
    assert_int_equal(done(all), 7);
    comm_close(&shards);
    comm_close(&near);
    comm_close(&far);
    comm_close(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_streams_do_not_wait_for_each_other)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
