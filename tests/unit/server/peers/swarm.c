#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "server/peers/swarm.h"

enum { CHUNKS = 150 };

static const uint8_t key[SWARM_KEY] = {7, 8, 9};
static const struct swarm_rules rules = {.again_s = 5, .lease_ms = 60000, .members = 1000};

/* Node n of 10.0.0.0/8, or of 127.0.0.0/8. */
static void address(uint8_t out[SWARM_ADDRESS], uint8_t net, uint32_t n)
{
    memset(out, 0, SWARM_ADDRESS);
    out[10] = out[11] = 0xff;
    out[12] = net;
    out[13] = (uint8_t)(n >> 16);
    out[14] = (uint8_t)(n >> 8);
    out[15] = (uint8_t)n;
}

static struct node_announcement said(uint32_t n, uint8_t have[(CHUNKS + 7) / 8], unsigned take)
{
    struct node_announcement a = {.port = 4000, .take = take, .have = have, .have_bytes = 19};

    memcpy(a.id, &n, sizeof n);
    return a;
}

static void put(uint8_t *have, size_t chunk)
{
    have[chunk / 8] |= (uint8_t)(0x80 >> chunk % 8);
}

static struct swarm_answer come(struct swarm *s, uint32_t n, uint8_t *have, unsigned take,
                                uint64_t now_ms)
{
    struct node_announcement a = said(n, have, take);
    uint8_t from[SWARM_ADDRESS];
    struct swarm_answer out;
    struct err e = {0};

    address(from, 10, n);
    swarm_expire(s, &rules, now_ms);
    assert_int_equal(swarm_announce(s, &a, from, &rules, now_ms, &out, &e), 0);
    return out;
}

static void takes(const struct swarm_answer *a, size_t n, ...)
{
    va_list ap;

    va_start(ap, n);
    assert_int_equal(a->takes, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(a->take[i], va_arg(ap, int));
    }
    va_end(ap);
}

/* The lowest that nobody has or was asked for; its own are told again until somebody has them. */
static void each_chunk_is_asked_of_one(void **state)
{
    struct swarm *s = swarm_new(CHUNKS, key, 1);
    uint8_t a[19] = {0}, b[19] = {0}, c[19] = {0};
    struct swarm_answer out;
    struct swarm_count n;

    (void)state;
    put(b, 0);
    put(b, 3);
    out = come(s, 2, b, 0, 0);
    takes(&out, 0);
    assert_memory_equal(out.key, key, sizeof key);
    out = come(s, 1, a, 3, 0);
    takes(&out, 3, 1, 2, 4);
    out = come(s, 2, b, 2, 0);
    takes(&out, 2, 5, 6);
    out = come(s, 1, a, 0, 1000);
    takes(&out, 3, 1, 2, 4);
    put(a, 1);
    out = come(s, 1, a, 1, 1000);
    takes(&out, 3, 2, 4, 7);
    put(c, 2); /* from somewhere: it is nobody's to bring any more */
    (void)come(s, 3, c, 0, 1000);
    out = come(s, 1, a, 0, 1000);
    takes(&out, 2, 4, 7);
    swarm_count(s, &n);
    assert_int_equal(n.chunks, CHUNKS);
    assert_int_equal(n.had, 4);
    assert_int_equal(n.asked, 4);
    assert_int_equal(n.members, 3);
    assert_int_equal(n.givers, 3);
    assert_int_equal(swarm_handed(s), 6);
    swarm_free(&s);
    assert_null(s);
}

static void what_a_member_had_is_open_when_it_goes(void **state)
{
    struct swarm *s = swarm_new(CHUNKS, key, 1);
    uint8_t none[19] = {0}, b[19] = {0};
    struct swarm_answer out;
    struct node_announcement gone = said(2, b, 0);

    (void)state;
    put(b, 0);
    put(b, 1);
    out = come(s, 2, b, 2, 0);
    takes(&out, 2, 2, 3);
    out = come(s, 1, none, 1, 0);
    takes(&out, 1, 4);
    swarm_leave(s, gone.id);
    swarm_leave(s, gone.id);
    assert_int_equal(swarm_members(s), 1);
    out = come(s, 1, none, 5, 0);
    takes(&out, 6, 4, 0, 1, 2, 3, 5);
    (void)come(s, 2, b, 0, 14000);
    out = come(s, 3, none, 1, 15000); /* 1 has been silent for three times `again` */
    takes(&out, 1, 2);
    assert_int_equal(swarm_members(s), 2);
    swarm_expire(s, &rules, 29000);
    assert_int_equal(swarm_members(s), 1);
    swarm_expire(s, &rules, 30000);
    assert_int_equal(swarm_members(s), 0);
    out = come(s, 4, b, 3, 30000);
    takes(&out, 3, 2, 3, 4);
    swarm_free(&s);
}

static void a_lease_ends(void **state)
{
    struct swarm *s = swarm_new(CHUNKS, key, 1);
    uint8_t none[19] = {0};
    struct swarm_answer out;

    (void)state;
    out = come(s, 1, none, 1, 0);
    takes(&out, 1, 0);
    for (uint64_t t = 10000; t < 60000; t += 10000) {
        out = come(s, 1, none, 0, t);
        takes(&out, 1, 0);
        out = come(s, 2, none, t == 10000, t);
        takes(&out, 1, 1);
    }
    out = come(s, 2, none, 1, 60000);
    takes(&out, 2, 1, 0);
    out = come(s, 1, none, 1, 60000);
    takes(&out, 1, 2);
    swarm_free(&s);
}

/* Sixteen that want all they can get: what is asked of each follows from how fast it comes. */
static void as_many_as_come_in_seconds(void **state)
{
    enum { NODES = 16, ROUNDS = 40, MANY = 100000, BYTES = MANY / 8 };
    static uint8_t have[NODES][BYTES];
    const struct {
        uint64_t took_ms;
        size_t least, most;
    } cases[] = {{200, 64, 64}, {2000, 4, 4}, {6000, 1, 1}};

    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        struct swarm *s = swarm_new(MANY, key, 1);
        size_t takes[NODES] = {0};
        memset(have, 0, sizeof have);
        for (unsigned round = 0; round < ROUNDS; round++) {
            for (uint32_t n = 0; n < NODES; n++) {
                struct node_announcement a = said(n, have[n], 64);
                uint8_t from[SWARM_ADDRESS];
                struct swarm_answer out;
                address(from, 10, n);
                a.have_bytes = BYTES;
                assert_int_equal(
                    swarm_announce(s, &a, from, &rules, round * cases[c].took_ms, &out, NULL), 0);
                for (size_t i = 0; i < out.takes; i++) {
                    put(have[n], out.take[i]);
                }
                takes[n] = out.takes;
            }
            if (round == 0) {
                assert_int_equal(takes[0], 64); /* alone at that moment */
                assert_int_equal(takes[1], 32);
                assert_int_equal(takes[15], 4);
            }
        }
        for (uint32_t n = 0; n < NODES; n++) {
            assert_in_range(takes[n], cases[c].least, cases[c].most);
        }
        swarm_free(&s);
    }
}

static void bounds(void **state)
{
    struct swarm *s = swarm_new(CHUNKS, key, 1);
    const struct swarm_rules two = {.again_s = 5, .lease_ms = 60000, .members = 2};
    uint8_t have[20] = {0}, from[SWARM_ADDRESS];
    struct node_announcement a = said(1, have, 64);
    struct swarm_answer out;
    struct err e;

    (void)state;
    address(from, 10, 1);
    a.have_bytes = 18;
    assert_int_equal(swarm_announce(s, &a, from, &two, 0, &out, &e), E_INVALID);
    a.have_bytes = 20;
    assert_int_equal(swarm_announce(s, &a, from, &two, 0, &out, &e), E_INVALID);
    a.have_bytes = 19;
    have[18] = 0x02; /* chunk 150 */
    assert_int_equal(swarm_announce(s, &a, from, &two, 0, &out, &e), E_INVALID);
    assert_non_null(strstr(e.text, "behind the last"));
    assert_int_equal(swarm_members(s), 0);
    have[18] = 0x04;
    for (unsigned i = 0; i < 3; i++) { /* no more than 64 at a time, whatever it says */
        assert_int_equal(swarm_announce(s, &a, from, &two, 0, &out, &e), 0);
        assert_int_equal(out.takes, 64);
        assert_int_equal(out.take[63], 63);
    }
    a = said(2, have, 64);
    assert_int_equal(swarm_announce(s, &a, from, &two, 0, &out, &e), 0);
    a = said(3, have, 64);
    assert_int_equal(swarm_announce(s, &a, from, &two, 0, &out, &e), E_BUSY);
    assert_int_equal(swarm_members(s), 2);
    memset(have, 0xff, sizeof have);
    have[18] = 0xfc;
    a = said(1, have, 64);
    assert_int_equal(swarm_announce(s, &a, from, &two, 0, &out, &e), 0);
    assert_int_equal(out.takes, 0);
    swarm_free(&s);
}

/* Of 100 that give and 20 that do not: 16 different others, and in the long run each. Those of this machine among themselves. */
static void drawn_from_all_that_give(void **state)
{
    struct swarm *s = swarm_new(1, key, 12345);
    uint8_t have[1] = {0}, from[SWARM_ADDRESS];
    unsigned told[256] = {0};
    struct swarm_answer out;
    struct err e;

    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        for (uint32_t n = 0; n < 120; n++) {
            struct node_announcement a = {
                .port = (uint16_t)(n < 100 ? 4000 + n : 0), .have = have, .have_bytes = 1};
            memcpy(a.id, &n, sizeof n);
            address(from, n < 3 ? 127 : 10, n);
            assert_int_equal(swarm_announce(s, &a, from, &rules, 0, &out, &e), 0);
            if (round == 0) {
                continue;
            }
            assert_int_equal(out.peers, 16);
            for (size_t i = 0; i < out.peers; i++) {
                unsigned who = out.peer[i].port - 4000u;
                assert_int_not_equal(who, n);
                assert_true(n < 3 || who >= 3);
                assert_int_equal(out.peer[i].address[15], who);
                told[who]++;
                for (size_t k = 0; k < i; k++) {
                    assert_int_not_equal(out.peer[k].port, out.peer[i].port);
                }
            }
        }
    }
    for (unsigned who = 3; who < 100; who++) { /* some 199 * 120 * 16 / 97 = 3940 */
        assert_in_range(told[who], 3500, 4400);
    }
    assert_true(told[0] > 0 && told[2] > 0);
    swarm_free(&s);
}

/* Announcements at random, beside a plain model: what is counted is what is there, and nothing is asked of two. */
static void as_the_plain_model(void **state)
{
    enum { MEMBERS = 9 };
    struct swarm *s = swarm_new(CHUNKS, key, 99);
    uint8_t have[MEMBERS][19];
    bool in[MEMBERS] = {false};
    size_t owner[CHUNKS];
    uint64_t dice = 88172645463325252u;

    (void)state;
    memset(have, 0, sizeof have);
    for (size_t c = 0; c < CHUNKS; c++) {
        owner[c] = MEMBERS;
    }
    for (unsigned step = 0; step < 20000; step++) {
        struct swarm_answer out;
        struct swarm_count n;
        size_t had = 0;
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        size_t who = dice % MEMBERS, chunk = (dice >> 8) % CHUNKS;
        if ((dice >> 20) % 16 == 0) {
            struct node_announcement a = said((uint32_t)who, have[who], 0);
            swarm_leave(s, a.id);
            in[who] = false;
            memset(have[who], 0, sizeof have[who]);
            for (size_t c = 0; c < CHUNKS; c++) {
                owner[c] = owner[c] == who ? MEMBERS : owner[c];
            }
            continue;
        }
        have[who][chunk / 8] ^= (uint8_t)(0x80 >> chunk % 8);
        out = come(s, (uint32_t)who, have[who], (dice >> 30) % 8, 0);
        in[who] = true;
        for (size_t c = 0; c < CHUNKS; c++) {
            bool some = false;
            for (size_t m = 0; m < MEMBERS; m++) {
                some |= in[m] && (have[m][c / 8] & (0x80 >> c % 8)) != 0;
            }
            had += some;
            owner[c] = owner[c] == who ? MEMBERS : owner[c];
        }
        for (size_t i = 0; i < out.takes; i++) {
            assert_int_equal(owner[out.take[i]], MEMBERS);
            owner[out.take[i]] = who;
            for (size_t m = 0; m < MEMBERS; m++) {
                assert_false(in[m] && (have[m][out.take[i] / 8] & (0x80 >> out.take[i] % 8)) != 0);
            }
        }
        swarm_count(s, &n);
        assert_int_equal(n.had, had);
        assert_true(n.had + n.asked <= CHUNKS);
    }
    swarm_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_chunk_is_asked_of_one),
        cmocka_unit_test(what_a_member_had_is_open_when_it_goes),
        cmocka_unit_test(a_lease_ends),
        cmocka_unit_test(as_many_as_come_in_seconds),
        cmocka_unit_test(bounds),
        cmocka_unit_test(drawn_from_all_that_give),
        cmocka_unit_test(as_the_plain_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
