#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "server/peers/peers.h"

static const struct peers_settings on = {.again_s = 5, .lease_s = 60, .members = 3};

static struct digest name(uint32_t n)
{
    struct digest d = {{0}};

    memcpy(d.b, &n, sizeof n);
    return d;
}

/* A file of `chunks`; member n of it, a client's, has none of them. */
static int come_of(struct peers *p, uint64_t client, uint32_t file, size_t chunks, uint32_t n,
                   uint64_t now_ms, struct swarm_answer *out, bool *began)
{
    static const uint8_t from[SWARM_ADDRESS] = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 1};
    struct node_announcement a = {
        .port = 1, .take = 1, .have = calloc(1, chunks), .have_bytes = (chunks + 7) / 8};
    struct digest d = name(file);
    struct err e = {0};
    bool first;
    int rc;

    memcpy(a.id, &n, sizeof n);
    rc = peers_announce(p, &d, (chunks - 1) * CHUNK_BYTES + 1, client, &a, from, now_ms, out,
                        &first, &e);
    if (began != NULL) {
        *began = first;
    }
    assert_true((rc == 0) == (e.text[0] == '\0'));
    announcement_free(&a);
    return rc;
}

static int come(struct peers *p, uint32_t file, size_t chunks, uint32_t n, uint64_t now_ms,
                struct swarm_answer *out, bool *began)
{
    return come_of(p, 1, file, chunks, n, now_ms, out, began);
}

static void leaves_file(struct peers *p, uint32_t file, uint32_t n)
{
    const uint8_t from[SWARM_ADDRESS] = {0};
    struct node_announcement a = {.leave = true};
    const struct digest d = name(file);
    struct swarm_answer out;
    struct err e = {0};
    bool began;

    memcpy(a.id, &n, sizeof n);
    assert_int_equal(peers_announce(p, &d, CHUNK_BYTES, 1, &a, from, 0, &out, &began, &e), 0);
    assert_false(began);
}

static struct peers_stats stats(struct peers *p)
{
    struct peers_stats s;

    peers_stats(p, &s);
    return s;
}

static void a_swarm_lives_as_long_as_members(void **state)
{
    struct peers *p = peers_open(&on);
    struct swarm_answer a, b;
    struct swarm_view v[4];
    struct digest one = name(1), two = name(2);
    bool began;

    (void)state;
    assert_int_equal(come(p, 1, 10, 7, 0, &a, &began), 0);
    assert_true(began);
    peers_name(p, &one, SLICE("hf"), SLICE("models/x"));
    peers_name(p, &two, SLICE("nobody"), SLICE("shares it"));
    assert_int_equal(come(p, 1, 10, 8, 0, &b, &began), 0);
    assert_false(began);
    assert_memory_equal(a.key, b.key, SWARM_KEY);
    assert_int_equal(come(p, 2, 10, 8, 1000, &b, &began), 0);
    assert_true(began && memcmp(a.key, b.key, SWARM_KEY) != 0);
    assert_int_equal(peers_look(p, 3000, v, 4), 2);
    assert_int_equal(peers_look(p, 3000, v, 1), 1);
    assert_string_equal(v[0].key, "models/x");
    assert_string_equal(v[1].key, "");
    assert_int_equal(v[0].age_ms, 3000);
    assert_int_equal(v[0].count.members, 2);
    assert_int_equal(v[0].count.asked, 2);
    assert_int_equal(stats(p).members, 3);
    leaves_file(p, 1, 7);
    leaves_file(p, 1, 7);
    leaves_file(p, 1, 8);
    assert_int_equal(stats(p).swarms, 1);
    assert_int_equal(come(p, 1, 10, 7, 3000, &b, &began), 0);
    assert_true(began && memcmp(a.key, b.key, SWARM_KEY) != 0);
    peers_tick(p, 15999);
    assert_int_equal(stats(p).members, 2);
    peers_tick(p, 16000);
    assert_int_equal(stats(p).members, 1);
    a = b;
    assert_int_equal(come(p, 1, 10, 9, 18000, &b, &began), 0); /* the other is just gone */
    assert_true(began && memcmp(a.key, b.key, SWARM_KEY) != 0);
    assert_int_equal(b.members, 1);
    assert_int_equal(stats(p).announcements, 5);
    assert_int_equal(stats(p).handed, 5);
    peers_close(&p);
    assert_null(p);
}

static void off_is_off(void **state)
{
    const struct peers_settings off = {0};
    struct peers *p = peers_open(&off);
    struct swarm_answer a;

    (void)state;
    assert_false(peers_on(p));
    assert_int_equal(come(p, 1, 10, 1, 0, &a, NULL), E_NOTFOUND);
    peers_set(p, &on);
    assert_int_equal(come(p, 1, 10, 1, 0, &a, NULL), 0);
    peers_set(p, &off);
    assert_int_equal(stats(p).swarms + stats(p).members, 0);
    assert_int_equal(come(p, 1, 10, 1, 0, &a, NULL), E_NOTFOUND);
    peers_close(&p);
}

/* What members make it keep has an end, whoever they are; and is given back. */
static void bounds(void **state)
{
    const struct peers_settings wide = {.again_s = 5, .lease_s = 60, .members = 65535};
    struct peers *p = peers_open(&on);
    struct swarm_answer a;
    bool began;
    uint32_t n;

    (void)state;
    for (n = 0; n < 3; n++) {
        assert_int_equal(come(p, 1, 10, n, 0, &a, NULL), 0);
    }
    assert_int_equal(come(p, 1, 10, 3, 0, &a, NULL), E_BUSY);
    for (n = 2; n <= SWARMS_MAX; n++) {
        assert_int_equal(come(p, n, 1, 1, 0, &a, NULL), 0);
    }
    assert_int_equal(come(p, n, 1, 1, 0, &a, NULL), E_BUSY);
    assert_int_equal(come(p, 2, 1, 1, 0, &a, NULL), 0);
    assert_int_equal(come(p, 1, 11 * 8, 1, 0, &a, NULL), E_INVALID); /* of another size */
    assert_int_equal(stats(p).refused, 2);
    peers_tick(p, 15000);
    assert_int_equal(stats(p).swarms, 0);
    peers_set(p, &wide);
    for (n = 0; come(p, 1, 1500000, n, 15000, &a, NULL) == 0; n++) { /* some 190 KB each */
    }
    assert_in_range(n, 1000, 1400);
    assert_int_equal(come(p, 1, 1500000, 0, 15000, &a, NULL), 0);
    assert_int_equal(come(p, 2, 1500000, 1, 15000, &a, &began), E_BUSY);
    peers_tick(p, 30000);
    assert_int_equal(come(p, 2, 1500000, 1, 30000, &a, &began), 0);
    assert_true(began);
    peers_close(&p);
}

static void who_has_most_gives_way(void **state)
{
    enum { GREEDY = 1, MODEST, THIRD };
    struct peers *p = peers_open(&on);
    struct swarm_answer a;
    bool began;
    uint32_t n;

    (void)state;
    for (n = 0; n < SWARMS_MAX; n++) {
        assert_int_equal(come_of(p, GREEDY, n, 1, 1, 0, &a, NULL), 0);
    }
    assert_int_equal(come_of(p, GREEDY, n, 1, 1, 0, &a, NULL), E_BUSY);
    for (uint32_t i = 0; i < SWARMS_MAX / 2; i++) { /* as many as the other keeps */
        assert_int_equal(come_of(p, MODEST, n + i, 1, 1, 0, &a, &began), 0);
        assert_true(began);
    }
    assert_int_equal(come_of(p, MODEST, 2 * n, 1, 1, 0, &a, NULL), E_BUSY);
    assert_int_equal(come_of(p, GREEDY, 3 * n, 1, 1, 0, &a, NULL), E_BUSY);
    assert_int_equal(come_of(p, THIRD, 4 * n, 1, 1, 0, &a, &began), 0);
    assert_true(began);
    assert_int_equal(stats(p).swarms, SWARMS_MAX);
    assert_int_equal(come_of(p, MODEST, 0, 1, 2, 0, &a, &began), 0); /* the oldest stayed */
    assert_false(began);
    peers_close(&p);
}

static void who_holds_most_memory_gives_way(void **state)
{
    enum { GREEDY = 1, MODEST };
    const struct peers_settings wide = {.again_s = 5, .lease_s = 60, .members = 65535};
    struct peers *p = peers_open(&wide);
    struct swarm_answer a;
    bool began;
    uint32_t file = 0;

    (void)state;
    while (come_of(p, GREEDY, file, 1500000, 1, 0, &a, NULL) == 0) {
        file++;
    }
    assert_in_range(file, 20, SWARMS_MAX - 1);
    assert_int_equal(come_of(p, MODEST, file, 1500000, 1, 0, &a, &began), 0);
    assert_true(began);
    assert_int_equal(come_of(p, MODEST, file, 1500000, 2, 0, &a, NULL), 0);
    peers_close(&p);
}

static void a_swarm_that_nobody_got_into_is_none(void **state)
{
    struct peers *p = peers_open(&on);
    struct node_announcement a = {.port = 1, .have = calloc(1, 9), .have_bytes = 9};
    const uint8_t from[SWARM_ADDRESS] = {0};
    struct digest d = name(1);
    struct swarm_answer out;
    bool began;

    (void)state;
    assert_int_equal(peers_announce(p, &d, CHUNK_BYTES, 1, &a, from, 0, &out, &began, NULL),
                     E_INVALID);
    assert_int_equal(stats(p).swarms, 0);
    announcement_free(&a);
    peers_close(&p);
}

/* --- one swarm --- */

enum { CHUNKS = 150 };

static const struct peers_settings many = {.again_s = 5, .lease_s = 60, .members = 1000};

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

static int announce(struct peers *p, size_t chunks, const struct node_announcement *a,
                    const uint8_t from[SWARM_ADDRESS], uint64_t now_ms, struct swarm_answer *out,
                    struct err *e)
{
    const struct digest d = name(1);
    bool began;

    return peers_announce(p, &d, chunks * CHUNK_BYTES, 1, a, from, now_ms, out, &began, e);
}

static struct swarm_answer comes(struct peers *p, uint32_t n, uint8_t *have, unsigned take,
                                 uint64_t now_ms)
{
    struct node_announcement a = said(n, have, take);
    uint8_t from[SWARM_ADDRESS];
    struct swarm_answer out;
    struct err e = {0};

    address(from, 10, n);
    assert_int_equal(announce(p, CHUNKS, &a, from, now_ms, &out, &e), 0);
    return out;
}

static void leaves(struct peers *p, uint32_t n)
{
    leaves_file(p, 1, n);
}

static struct swarm_count counted(struct peers *p)
{
    struct swarm_view v;

    assert_int_equal(peers_look(p, 0, &v, 1), 1);
    return v.count;
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
    struct peers *p = peers_open(&many);
    uint8_t a[19] = {0}, b[19] = {0}, c[19] = {0}, key[SWARM_KEY];
    struct swarm_answer out;
    struct swarm_count n;

    (void)state;
    put(b, 0);
    put(b, 3);
    out = comes(p, 2, b, 0, 0);
    takes(&out, 0);
    memcpy(key, out.key, sizeof key);
    out = comes(p, 1, a, 3, 0);
    takes(&out, 3, 1, 2, 4);
    assert_memory_equal(out.key, key, sizeof key);
    out = comes(p, 2, b, 2, 0);
    takes(&out, 2, 5, 6);
    out = comes(p, 1, a, 0, 1000);
    takes(&out, 3, 1, 2, 4);
    put(a, 1);
    out = comes(p, 1, a, 1, 1000);
    takes(&out, 3, 2, 4, 7);
    put(c, 2); /* from somewhere: it is nobody's to bring any more */
    (void)comes(p, 3, c, 0, 1000);
    out = comes(p, 1, a, 0, 1000);
    takes(&out, 2, 4, 7);
    n = counted(p);
    assert_int_equal(n.chunks, CHUNKS);
    assert_int_equal(n.had, 4);
    assert_int_equal(n.asked, 4);
    assert_int_equal(n.members, 3);
    assert_int_equal(n.givers, 3);
    assert_int_equal(stats(p).handed, 6);
    peers_close(&p);
    assert_null(p);
}

static void what_a_member_had_is_open_when_it_goes(void **state)
{
    struct peers *p = peers_open(&many);
    uint8_t none[19] = {0}, b[19] = {0};
    struct swarm_answer out;

    (void)state;
    put(b, 0);
    put(b, 1);
    out = comes(p, 2, b, 2, 0);
    takes(&out, 2, 2, 3);
    out = comes(p, 1, none, 1, 0);
    takes(&out, 1, 4);
    leaves(p, 2);
    leaves(p, 2);
    assert_int_equal(stats(p).members, 1);
    out = comes(p, 1, none, 5, 0);
    takes(&out, 6, 4, 0, 1, 2, 3, 5);
    (void)comes(p, 2, b, 0, 14000);
    out = comes(p, 3, none, 1, 15000); /* 1 has been silent for three times `again` */
    takes(&out, 1, 2);
    assert_int_equal(stats(p).members, 2);
    peers_tick(p, 29000);
    assert_int_equal(stats(p).members, 1);
    peers_tick(p, 30000);
    assert_int_equal(stats(p).members, 0);
    out = comes(p, 4, b, 3, 30000);
    takes(&out, 3, 2, 3, 4);
    peers_close(&p);
}

static void a_lease_ends(void **state)
{
    struct peers *p = peers_open(&many);
    uint8_t none[19] = {0};
    struct swarm_answer out;

    (void)state;
    out = comes(p, 1, none, 1, 0);
    takes(&out, 1, 0);
    for (uint64_t t = 10000; t < 60000; t += 10000) {
        out = comes(p, 1, none, 0, t);
        takes(&out, 1, 0);
        out = comes(p, 2, none, t == 10000, t);
        takes(&out, 1, 1);
    }
    out = comes(p, 2, none, 1, 60000);
    takes(&out, 2, 1, 0);
    out = comes(p, 1, none, 1, 60000);
    takes(&out, 1, 2);
    peers_close(&p);
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
        struct peers *p = peers_open(&many);
        size_t takes[NODES] = {0};
        memset(have, 0, sizeof have);
        for (unsigned round = 0; round < ROUNDS; round++) {
            for (uint32_t n = 0; n < NODES; n++) {
                struct node_announcement a = said(n, have[n], 64);
                uint8_t from[SWARM_ADDRESS];
                struct swarm_answer out;
                address(from, 10, n);
                a.have_bytes = BYTES;
                assert_int_equal(announce(p, MANY, &a, from, round * cases[c].took_ms, &out, NULL),
                                 0);
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
        peers_close(&p);
    }
}

static void bounds_of_a_swarm(void **state)
{
    const struct peers_settings two = {.again_s = 5, .lease_s = 60, .members = 2};
    struct peers *p = peers_open(&two);
    uint8_t have[20] = {0}, from[SWARM_ADDRESS];
    struct node_announcement a = said(1, have, 64);
    struct swarm_answer out;
    struct err e;

    (void)state;
    address(from, 10, 1);
    a.have_bytes = 18;
    assert_int_equal(announce(p, CHUNKS, &a, from, 0, &out, &e), E_INVALID);
    a.have_bytes = 20;
    assert_int_equal(announce(p, CHUNKS, &a, from, 0, &out, &e), E_INVALID);
    a.have_bytes = 19;
    have[18] = 0x02; /* chunk 150 */
    assert_int_equal(announce(p, CHUNKS, &a, from, 0, &out, &e), E_INVALID);
    assert_non_null(strstr(e.text, "after the last"));
    assert_int_equal(stats(p).members, 0);
    have[18] = 0x04;
    for (unsigned i = 0; i < 3; i++) { /* no more than 64 at a time, whatever it says */
        assert_int_equal(announce(p, CHUNKS, &a, from, 0, &out, &e), 0);
        assert_int_equal(out.takes, 64);
        assert_int_equal(out.take[63], 63);
    }
    a = said(2, have, 64);
    assert_int_equal(announce(p, CHUNKS, &a, from, 0, &out, &e), 0);
    a = said(3, have, 64);
    assert_int_equal(announce(p, CHUNKS, &a, from, 0, &out, &e), E_BUSY);
    assert_int_equal(stats(p).members, 2);
    memset(have, 0xff, sizeof have);
    have[18] = 0xfc;
    a = said(1, have, 64);
    assert_int_equal(announce(p, CHUNKS, &a, from, 0, &out, &e), 0);
    assert_int_equal(out.takes, 0);
    peers_close(&p);
}

/* Of 100 that give and 20 that do not: 16 different others, and in the long run each. Those of this
 * machine among themselves. */
static void drawn_from_all_that_give(void **state)
{
    struct peers *p = peers_open(&many);
    uint8_t have[1] = {0}, from[SWARM_ADDRESS];
    unsigned reported[256] = {0};
    struct swarm_answer out;
    struct err e;

    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        for (uint32_t n = 0; n < 120; n++) {
            struct node_announcement a = {
                .port = (uint16_t)(n < 100 ? 4000 + n : 0), .have = have, .have_bytes = 1};
            memcpy(a.id, &n, sizeof n);
            address(from, n < 3 ? 127 : 10, n);
            assert_int_equal(announce(p, 1, &a, from, 0, &out, &e), 0);
            if (round == 0) {
                continue;
            }
            assert_int_equal(out.peers, 16);
            for (size_t i = 0; i < out.peers; i++) {
                unsigned who = out.peer[i].port - 4000u;
                assert_int_not_equal(who, n);
                assert_true(n < 3 || who >= 3);
                assert_int_equal(out.peer[i].address[15], who);
                reported[who]++;
                for (size_t k = 0; k < i; k++) {
                    assert_int_not_equal(out.peer[k].port, out.peer[i].port);
                }
            }
        }
    }
    for (unsigned who = 3; who < 100; who++) { /* some 199 * 120 * 16 / 97 = 3940 */
        assert_in_range(reported[who], 3500, 4400);
    }
    assert_true(reported[0] > 0 && reported[2] > 0);
    peers_close(&p);
}

/* Announcements at random, beside a plain model: what is counted is what is there, and nothing is
 * asked of two. */
static void as_the_plain_model(void **state)
{
    enum { MEMBERS = 9 };
    struct peers *p = peers_open(&many);
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
            leaves(p, (uint32_t)who);
            in[who] = false;
            memset(have[who], 0, sizeof have[who]);
            for (size_t c = 0; c < CHUNKS; c++) {
                owner[c] = owner[c] == who ? MEMBERS : owner[c];
            }
            continue;
        }
        have[who][chunk / 8] ^= (uint8_t)(0x80 >> chunk % 8);
        out = comes(p, (uint32_t)who, have[who], (dice >> 30) % 8, 0);
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
        n = counted(p);
        assert_int_equal(n.had, had);
        assert_true(n.had + n.asked <= CHUNKS);
    }
    peers_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_swarm_lives_as_long_as_members),
        cmocka_unit_test(off_is_off),
        cmocka_unit_test(bounds),
        cmocka_unit_test(who_has_most_gives_way),
        cmocka_unit_test(who_holds_most_memory_gives_way),
        cmocka_unit_test(a_swarm_that_nobody_got_into_is_none),
        cmocka_unit_test(each_chunk_is_asked_of_one),
        cmocka_unit_test(what_a_member_had_is_open_when_it_goes),
        cmocka_unit_test(a_lease_ends),
        cmocka_unit_test(as_many_as_come_in_seconds),
        cmocka_unit_test(bounds_of_a_swarm),
        cmocka_unit_test(drawn_from_all_that_give),
        cmocka_unit_test(as_the_plain_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
