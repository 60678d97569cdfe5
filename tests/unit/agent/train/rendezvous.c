#include "agent/train/rendezvous.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
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

/* A port that was free a moment ago, below those that connections get: who calls before rank 0 listens would get to
 * itself there, now and then. */
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
    return (struct rendezvous){"127.0.0.1", port, rank, WORLD, run_id, timeout_ms};
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
        cmocka_unit_test(test_another_run_does_not_get_in),
        cmocka_unit_test(test_one_rank_needs_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
