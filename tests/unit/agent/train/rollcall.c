/* Rank 0 and rank 1 in one process; strangers come to the port between them. */
#include "agent/train/rollcall.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

enum { WORLD = 2, MANY = 64, ADDRESS = 256 };

/* What rank 0 shares, a double a byte. */
static double address[ADDRESS];

/* --- accept4() counts, and fails to order ----------------------------------------------------- */

static int accept_error, accept_calls, accepted, accepted_fd;

int accept4(int fd, struct sockaddr *at, socklen_t *size, int flags)
{
    int got;

    accept_calls++;
    if (accept_error != 0) {
        errno = accept_error;
        return -1;
    }
    got = (int)syscall(SYS_accept4, fd, at, size, flags);
    accepted += got != -1;
    accepted_fd = got != -1 ? got : accepted_fd;
    return got;
}

/* --- ranks ------------------------------------------------------------------------------------ */

static int share(struct comm *c, struct kstream *ks, enum dtype dt, void *buf, int64_t n)
{
    (void)ks;
    assert_true(dt == DT_F64 && n <= ADDRESS);
    if (c->rank == 0) {
        memcpy(address, buf, (size_t)n * sizeof *address);
    } else {
        memcpy(buf, address, (size_t)n * sizeof *address);
    }
    return 0;
}

struct rank {
    struct comm comm;
    struct rollcall *roll;
    atomic_bool connected;
    int heard[ROLL_LOST + 1];
};

static void *connect_rank(void *arg)
{
    struct rank *r = arg;

    assert_int_equal(rollcall_connect(r->roll, kops_cpu(), NULL, &r->comm, "127.0.0.1"), 0);
    atomic_store(&r->connected, true);
    return NULL;
}

static void open_rank(struct rank *r, int rank)
{
    *r = (struct rank){
        .comm = {.rank = rank, .size = WORLD, .flight = flight_open(), .post_allreduce = share},
        .roll = rollcall_open(rank, WORLD)};
}

static void close_rank(struct rank *r)
{
    rollcall_close(&r->roll);
    flight_close(&r->comm.flight);
}

static void on_message(void *arg, const struct roll_message *m)
{
    struct rank *r = arg;

    r->heard[m->kind]++;
}

static void poll_rank(struct rank *r, int timeout_ms)
{
    rollcall_poll(r->roll, timeout_ms, on_message, r);
}

/* While rank 0's watchdog polls, as it does in a run. */
static void connect_to_first(struct rank *first, struct rank *r)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, connect_rank, r), 0);
    while (!atomic_load(&r->connected)) {
        poll_rank(first, 10);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static int call_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_port = htons((uint16_t)((int)address[0] + 256 * (int)address[1]));
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static int open_first(struct rank *first)
{
    accept_error = accept_calls = accepted = 0;
    open_rank(first, 0);
    return rollcall_connect(first->roll, kops_cpu(), NULL, &first->comm, "127.0.0.1");
}

/* --- tests ------------------------------------------------------------------------------------ */

static void test_silent_strangers_keep_no_rank_out(void **state)
{
    struct rank first, second;
    int stranger[MANY];

    (void)state;
    assert_int_equal(open_first(&first), 0);
    for (int i = 0; i < MANY; i++) {
        stranger[i] = call_port();
        while (accepted <= i) {
            poll_rank(&first, 10);
        }
    }
    open_rank(&second, 1);
    connect_to_first(&first, &second);
    while (!rollcall_has_met(first.roll, 1)) {
        assert_int_equal(second.heard[ROLL_LOST], 0);
        poll_rank(&first, 10);
        poll_rank(&second, 10);
    }
    rollcall_send(first.roll, &(struct roll_message){.kind = ROLL_CALL});
    while (second.heard[ROLL_CALL] == 0) {
        poll_rank(&second, 10);
    }
    for (int i = 0; i < MANY; i++) { /* rank 1 is not the one that has to go for them */
        close(stranger[i]);
        stranger[i] = call_port();
        poll_rank(&first, 10);
    }
    assert_true(rollcall_reaches(first.roll, 1));
    assert_true(first.heard[ROLL_LOST] == 0 && second.heard[ROLL_LOST] == 0);
    for (int i = 0; i < MANY; i++) {
        close(stranger[i]);
    }
    close_rank(&second);
    while (first.heard[ROLL_LOST] ==
           0) { /* a rank that has answered and ends without a word has died */
        poll_rank(&first, 10);
    }
    close_rank(&first);
}

/* What answers at that address need not be rank 0. */
static void *refuse(void *arg)
{
    int *listener = arg, fd = (int)syscall(SYS_accept4, *listener, NULL, NULL, 0);

    close(*listener);
    close(fd);
    return NULL;
}

static void test_a_first_rank_that_never_answered_has_not_died(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct rank second;
    pthread_t thread;

    (void)state;
    assert_int_equal(bind(listener, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    address[0] = ntohs(at.sin_port) % 256;
    address[1] = ntohs(at.sin_port) / 256;
    assert_int_equal(pthread_create(&thread, NULL, refuse, &listener), 0);
    open_rank(&second, 1);
    connect_rank(&second);
    assert_int_equal(pthread_join(thread, NULL), 0);
    while (rollcall_reaches(second.roll, 0)) {
        poll_rank(&second, 10);
    }
    assert_int_equal(second.heard[ROLL_LOST], 0);
    close_rank(&second);
}

/* What is waiting at the port stays there: without a pause each poll would return at once, for as
 * long as the run lasts. */
static void test_no_descriptor_is_left(void **state)
{
    struct rank first;
    int stranger;

    (void)state;
    assert_int_equal(open_first(&first), 0);
    accept_error = EMFILE;
    stranger = call_port();
    while (accept_calls == 0) {
        poll_rank(&first, 10);
    }
    for (int i = 0; i < 1000; i++) {
        poll_rank(&first, 0);
    }
    assert_true(accept_calls < 100);
    accept_error = 0;
    while (accepted == 0) {
        poll_rank(&first, 10);
    }
    close(stranger);
    close_rank(&first);
}

static void assert_kept_alive(int fd)
{
    int on = 0, idle_s = 0;
    socklen_t size = sizeof on;

    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &size), 0);
    size = sizeof idle_s;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, &size), 0);
    assert_true(on == 1 && idle_s <= 60);
}

static void test_a_large_world_may_open_its_connections(void **state)
{
    struct rlimit before, r;
    struct rollcall *x;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    if (before.rlim_max < 3000) {
        skip();
    }
    r = (struct rlimit){.rlim_cur = 1024, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
    x = rollcall_open(1, 2000);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
    assert_int_equal(r.rlim_cur, 1024);
    rollcall_close(&x);
    x = rollcall_open(0, 2000);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
    assert_true(r.rlim_cur > 2000);
    rollcall_close(&x);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* One end may be an IPv4-mapped address: the port tells which socket it is. */
static bool is_at(int fd, const struct sockaddr_storage *want)
{
    struct sockaddr_storage got;
    socklen_t size = sizeof got;

    return getsockname(fd, (struct sockaddr *)&got, &size) == 0 && got.ss_family == AF_INET &&
           ((struct sockaddr_in *)&got)->sin_port == ((const struct sockaddr_in6 *)want)->sin6_port;
}

static void test_silent_connections_are_kept_alive(void **state)
{
    struct rank first, second;
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    int end = -1;

    (void)state;
    assert_int_equal(open_first(&first), 0);
    open_rank(&second, 1);
    connect_to_first(&first, &second);
    assert_kept_alive(accepted_fd);
    assert_int_equal(getpeername(accepted_fd, (struct sockaddr *)&at, &size), 0);
    for (int fd = 0; fd < 1024 && end == -1; fd++) {
        end = is_at(fd, &at) ? fd : -1;
    }
    assert_kept_alive(end);
    close_rank(&second);
    close_rank(&first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silent_strangers_keep_no_rank_out),
        cmocka_unit_test(test_a_first_rank_that_never_answered_has_not_died),
        cmocka_unit_test(test_no_descriptor_is_left),
        cmocka_unit_test(test_a_large_world_may_open_its_connections),
        cmocka_unit_test(test_silent_connections_are_kept_alive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
