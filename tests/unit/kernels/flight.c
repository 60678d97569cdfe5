#include "kernels/flight.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "kernels/comm.h"

static char folder[] = "/tmp/flight.XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static const char *in_folder(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static char *read_all(const char *path)
{
    enum { ROOM = 1 << 20 };
    char *text = calloc(1, ROOM);
    int fd = open(path, O_RDONLY);

    assert_true(fd != -1 && read(fd, text, ROOM - 1) > 0);
    close(fd);
    return text;
}

static int lines(const char *text)
{
    int n = 0;

    for (; *text != '\0'; text++) {
        n += *text == '\n';
    }
    return n;
}

static void test_the_oldest_unfinished_is_what_is_waited_for(void **state)
{
    struct flight *f = flight_open();
    struct flight_view v;

    (void)state;
    flight_look(f, &v);
    assert_true(v.posted == 0 && v.done == 0 && v.waits.seq == 0);
    flight_allow(f, 600000);
    assert_int_equal(flight_post(f, FLIGHT_ALLREDUCE, DT_F32, 7, "nccl"), 1);
    flight_allow(f, 1800000);
    assert_int_equal(flight_post(f, FLIGHT_BARRIER, DT_F32, 0, "nccl"), 2);
    flight_look(f, &v);
    assert_true(v.posted == 2 && v.done == 0 && v.waits.seq == 1 && v.waits.count == 7);
    assert_true(v.returned == 0);
    flight_returned(f, 2);
    flight_look(f, &v);
    assert_true(v.returned == 2 && v.done == 0 && v.waits.seq == 1);
    assert_true(v.waits.limit_ms == 600000 && v.limit_ms == 1800000 && v.waits.done_ns == 0);
    assert_int_equal(flight_bytes(&v.waits), 28);
    flight_done(f, 1);
    flight_look(f, &v);
    assert_true(v.done == 1 && v.waits.seq == 2 && v.waits.op == FLIGHT_BARRIER);
    flight_done(f, 2);
    flight_look(f, &v);
    assert_true(v.done == 2 && v.waits.seq == 0);
    flight_close(&f);
}

static void test_what_is_written(void **state)
{
    struct flight *f = flight_open();
    char *text;

    (void)state;
    for (int i = 0; i < FLIGHT_ENTRIES + 10; i++) {
        uint64_t seq = flight_post(f, FLIGHT_ALLREDUCE, DT_F64, 3, "mpi");
        if (i < FLIGHT_ENTRIES + 9) {
            flight_done(f, seq);
        }
    }
    assert_int_equal(flight_write(f, in_folder("x.json"), "{\"rank\": 0}"), 0);
    text = read_all(in_folder("x.json"));
    assert_int_equal(lines(text), 1 + FLIGHT_ENTRIES);
    assert_true(strstr(text, "{\"rank\": 0}\n{\"seq\": 11, \"op\": \"allreduce\", ") == text);
    assert_non_null(
        strstr(text, "{\"seq\": 1034, \"op\": \"allreduce\", \"dtype\": \"f64\", \"count\": 3, "
                     "\"bytes\": 24, \"comm\": \"mpi\", \"posted_unix_ms\": "));
    assert_non_null(strstr(text, "\"done_unix_ms\": null}\n"));
    assert_int_equal(access(in_folder("x.json.part"), F_OK), -1);
    free(text);
    unlink(in_folder("x.json"));
    assert_true(flight_write(f, in_folder("no/x.json"), "{}") < 0);
    flight_close(&f);
}

/* Where the disk is full there is no half of a record. */
static void test_no_half_of_a_record(void **state)
{
    struct flight *f = flight_open();

    (void)state;
    assert_int_equal(symlink("/dev/full", in_folder("y.json.part")), 0);
    assert_true(flight_write(f, in_folder("y.json"), "{}") < 0);
    assert_int_equal(access(in_folder("y.json"), F_OK), -1);
    assert_int_equal(access(in_folder("y.json.part"), F_OK), -1);
    flight_close(&f);
}

/* A comm whose operations before that one are complete; 0: all are. */
static uint64_t oldest;
static int lost;

static int post_alone(struct comm *c, struct kstream *ks, enum dtype dt, void *buf, int64_t n)
{
    (void)c;
    (void)ks;
    (void)dt;
    (void)buf;
    (void)n;
    return 0;
}

static int poll_alone(struct comm *c, uint64_t *out)
{
    (void)c;
    *out = oldest;
    return lost;
}

static int (*poll_stream)(void *arg);
static void *poll_arg;

static void watch_stream(struct kstream *ks, int (*poll)(void *arg), void *arg)
{
    (void)ks;
    poll_stream = poll;
    poll_arg = arg;
}

static void test_every_collective_is_an_entry(void **state)
{
    struct comm later = {
        .name = "later", .size = 2, .post_allreduce = post_alone, .poll = poll_alone};
    const struct kops k = {.stream_watch = watch_stream};
    struct comm *c = NULL;
    struct flight_view v;
    float x = 3;

    (void)state;
    assert_int_equal(comm_open_self(&c), 0);
    assert_int_equal(comm_allreduce(c, NULL, DT_F32, &x, 1), 0);
    assert_int_equal(comm_barrier(c, NULL), 0);
    flight_look(c->flight, &v);
    assert_true(v.posted == 2 && v.done == 2);
    comm_watch(c, &k, NULL);
    assert_null(poll_stream);
    comm_close(&c);
    assert_null(c);

    later.flight = flight_open();
    comm_watch(&later, &k, NULL);
    assert_int_equal(comm_allreduce(&later, NULL, DT_F32, &x, 1), 0);
    assert_int_equal(comm_allreduce(&later, NULL, DT_F32, &x, 1), 0);
    oldest = 2;
    assert_int_equal(poll_stream(poll_arg), 0);
    flight_look(later.flight, &v);
    assert_true(v.posted == 2 && v.done == 1 && strcmp(v.waits.comm, "later") == 0);
    oldest = 0;
    lost = -12;
    assert_int_equal(poll_stream(poll_arg), -12);
    flight_look(later.flight, &v);
    assert_true(v.done == 1);
    flight_close(&later.flight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_oldest_unfinished_is_what_is_waited_for),
        cmocka_unit_test(test_what_is_written),
        cmocka_unit_test(test_no_half_of_a_record),
        cmocka_unit_test(test_every_collective_is_an_entry),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
