#include "agent/train/rendezvous.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/os/clock.h"

enum { WORLD = 4, BYTES = 128 };

struct member {
    struct rendezvous r;
    char bytes[BYTES];
    int rc;
};

static void *join(void *arg)
{
    struct member *m = arg;

    m->rc = rendezvous_share(&m->r, m->bytes, sizeof m->bytes, NULL);
    return NULL;
}

/* A port that was free a moment ago, below those that connections get: who calls before rank 0
 * listens would get to itself there, now and then. */
static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int rc = -1;

    for (unsigned i = 0; rc != 0 && i < 1000; i++) {
        a.sin_port = htons((uint16_t)(10000 + (clock_now_ns() / 1000 + i * 7919) % 20000));
        rc = bind(fd, (struct sockaddr *)&a, sizeof a);
    }
    assert_int_equal(rc, 0);
    close(fd);
    return ntohs(a.sin_port);
}

static struct rendezvous member(int port, int rank, const char *run_id, uint64_t timeout_ms)
{
    return (struct rendezvous){.host = "127.0.0.1",
                               .port = port,
                               .rank = rank,
                               .world = WORLD,
                               .run_id = run_id,
                               .generation = "1",
                               .timeout_ms = timeout_ms};
}

static void test_all_ranks_get_the_bytes(void **state)
{
    struct member m[WORLD];
    pthread_t thread[WORLD];
    int port = free_port();

    (void)state;
    for (int i = WORLD - 1; i >= 0; i--) { /* rank 0 comes last: the others wait for it */
        m[i] = (struct member){.r = member(port, i, "run-1", 120000), .rc = -1};
        memset(m[i].bytes, i == 0 ? 'k' : 0, BYTES);
        assert_int_equal(pthread_create(&thread[i], NULL, join, &m[i]), 0);
    }
    for (int i = 0; i < WORLD; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(m[i].rc, 0);
        assert_int_equal(m[i].bytes[0], 'k');
        assert_int_equal(m[i].bytes[BYTES - 1], 'k');
    }
}

/* From now on this process is on such a host; false where that cannot be. */
static bool lose_ipv6(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void test_a_host_without_ipv6(void **state)
{
    enum { MET = 3, NO_FILTER = 77 };
    struct member one = {.rc = -1};
    int port = free_port(), status = 0;
    pid_t child = fork();

    (void)state;
    if (child == 0) {
        struct member zero = {.r = member(port, 0, "run-1", 60000), .rc = -1};

        zero.r.world = 2;
        if (!lose_ipv6()) {
            _exit(NO_FILTER);
        }
        join(&zero);
        _exit(zero.rc == 0 ? MET : 1);
    }
    assert_true(child > 0);
    one.r = member(port, 1, "run-1", 60000);
    one.r.world = 2;
    if (waitpid(child, &status, WNOHANG) == 0) {
        join(&one);
        assert_int_equal(waitpid(child, &status, 0), child);
    }
    if (WEXITSTATUS(status) == NO_FILTER) {
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), MET);
    assert_int_equal(one.rc, 0);
}

static void test_another_run_does_not_get_in(void **state)
{
    struct member zero = {.rc = -1}, stranger = {.rc = -1};
    pthread_t a, b;
    int port = free_port();

    (void)state;
    zero.r = member(port, 0, "run-1", 300);
    stranger.r = member(port, 1, "run-0", 200);
    assert_int_equal(pthread_create(&a, NULL, join, &zero), 0);
    assert_int_equal(pthread_create(&b, NULL, join, &stranger), 0);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    assert_int_equal(zero.rc, E_TIMEOUT);
    assert_int_equal(stranger.rc, E_TIMEOUT);
    assert_int_equal(stranger.bytes[0], 0);
}

/* A late process of the attempt before: the same run, rank and port. */
static void test_an_earlier_generation_does_not_get_in(void **state)
{
    struct member zero = {.rc = -1}, late = {.rc = -1};
    pthread_t a, b;
    int port = free_port();

    (void)state;
    zero.r = member(port, 0, "run-1", 300);
    zero.r.generation = "2";
    zero.r.world = 2;
    late.r = member(port, 1, "run-1", 200);
    late.r.world = 2;
    assert_int_equal(pthread_create(&a, NULL, join, &zero), 0);
    assert_int_equal(pthread_create(&b, NULL, join, &late), 0);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    assert_int_equal(zero.rc, E_TIMEOUT);
    assert_int_equal(late.rc, E_TIMEOUT);
}

static int dial_port(int port, const char *address)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(inet_pton(AF_INET, address, &a.sin_addr), 1);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == -1) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Each of them would have cost five seconds, one after the other. */
static void test_strangers_hold_nobody_up(void **state)
{
    enum { STRANGERS = 100 };
    struct member m[WORLD];
    pthread_t thread[WORLD];
    int fd[STRANGERS];
    int port = free_port();
    uint64_t began_ms;

    (void)state;
    m[0] = (struct member){.r = member(port, 0, "run-1", 400000), .rc = -1};
    memset(m[0].bytes, 'k', BYTES);
    assert_int_equal(pthread_create(&thread[0], NULL, join, &m[0]), 0);
    for (int i = 0; i < STRANGERS; i++) {
        while ((fd[i] = dial_port(port, "127.0.0.1")) == -1) {
            usleep(1000);
        }
        if (i % 2 == 0) {
            assert_int_equal(send(fd[i], "mrdhello", 8, MSG_NOSIGNAL), 8); /* and no more */
        }
    }
    assert_int_equal(dial_port(port, "127.0.0.9"), -1); /* it listens at the address it was given */
    began_ms = clock_now_ms();
    for (int i = 1; i < WORLD; i++) {
        m[i] = (struct member){.r = member(port, i, "run-1", 400000), .rc = -1};
        assert_int_equal(pthread_create(&thread[i], NULL, join, &m[i]), 0);
    }
    for (int i = 0; i < WORLD; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(m[i].rc, 0);
        assert_int_equal(m[i].bytes[BYTES - 1], 'k');
    }
    assert_true(clock_now_ms() - began_ms < STRANGERS * 5000 / 2);
    for (int i = 0; i < STRANGERS; i++) {
        close(fd[i]);
    }
}

struct talker {
    int listener;
    int answers;
};

/* Something else listens on the port, takes the greeting and answers with as many bytes as were
 * wanted. */
static void *talk(void *arg)
{
    struct talker *t = arg;
    char bytes[4096];

    memset(bytes, 'x', sizeof bytes);
    for (; t->answers > 0; t->answers--) {
        int fd = accept(t->listener, NULL, NULL);
        (void)!recv(fd, bytes, 8, 0);
        (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
        close(fd);
    }
    close(t->listener);
    return NULL;
}

static void test_a_port_in_use(void **state)
{
    struct member m[2];
    pthread_t thread[3];
    int port = free_port(), yes = 1;
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct talker t = {.listener = socket(AF_INET, SOCK_STREAM, 0), .answers = 3};

    (void)state;
    assert_int_equal(setsockopt(t.listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    assert_int_equal(bind(t.listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(t.listener, 8), 0);
    for (int i = 0; i < 2; i++) {
        m[i] = (struct member){.r = member(port, i, "run-1", 120000), .rc = -1};
        m[i].r.world = 2;
        memset(m[i].bytes, i == 0 ? 'k' : 0, BYTES);
        assert_int_equal(pthread_create(&thread[i], NULL, join, &m[i]), 0);
    }
    assert_int_equal(pthread_create(&thread[2], NULL, talk, &t), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(m[i].rc, 0);
        assert_int_equal(m[i].bytes[0], 'k'); /* and not what the other program said */
    }
}

/* A listener whose queue is full drops SYNs, as a firewall does. */
static void test_a_host_that_does_not_answer(void **state)
{
    enum { WAITING = 4 };
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), waiting[WAITING];
    socklen_t n = sizeof at;
    struct rendezvous r;
    char bytes[4];

    (void)state;
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    for (int i = 0; i < WAITING; i++) {
        waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(waiting[i], (struct sockaddr *)&at, sizeof at);
    }
    r = member(ntohs(at.sin_port), 1, "run", 300);
    alarm(60); /* a blocking connect() takes minutes */
    assert_int_equal(rendezvous_share(&r, bytes, sizeof bytes, NULL), E_TIMEOUT);
    alarm(0);
    for (int i = 0; i < WAITING; i++) {
        close(waiting[i]);
    }
    close(listener);
}

static void test_one_rank_needs_nobody(void **state)
{
    struct rendezvous r = {.world = 1};

    (void)state;
    assert_int_equal(rendezvous_share(&r, NULL, 0, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ranks_get_the_bytes),
        cmocka_unit_test(test_a_host_without_ipv6),
        cmocka_unit_test(test_another_run_does_not_get_in),
        cmocka_unit_test(test_an_earlier_generation_does_not_get_in),
        cmocka_unit_test(test_strangers_hold_nobody_up),
        cmocka_unit_test(test_a_port_in_use),
        cmocka_unit_test(test_a_host_that_does_not_answer),
        cmocka_unit_test(test_one_rank_needs_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
