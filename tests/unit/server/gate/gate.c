/* The gate over a store of a few rows in memory: what is tested is who passes, not the disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/codec/base64.h"
#include "common/os/clock.h"
#include "server/gate/gate.h"

/* --- the store --- */

enum { ROWS = 8 };
static struct row {
    char key[DIGEST_BYTES];
    char value[512];
    size_t n;
} rows[ROWS];
static int commit_rc;
static void (*before_commit)(void); /* what another mirror does; once */

struct batch {
    bool put, requires;
    struct row row;
    int (*check)(struct store *s, void *arg, struct err *e);
    void *check_arg;
};

struct batch *batch_new(void)
{
    return NEW(struct batch);
}

void batch_free(struct batch **bp)
{
    free(*bp);
    *bp = NULL;
}

void batch_require_absent(struct batch *b, enum table t, struct slice key)
{
    (void)b;
    (void)key;
    assert_int_equal(t, TABLE_TOKEN);
}

void batch_require_value(struct batch *b, enum table t, struct slice key, struct slice value)
{
    (void)value;
    batch_del(b, t, key);
    b->requires = true;
}

void batch_check(struct batch *b, int (*check)(struct store *s, void *arg, struct err *e),
                 void *arg)
{
    b->check = check;
    b->check_arg = arg;
}

void batch_put(struct batch *b, enum table t, struct slice key, struct slice value)
{
    assert_int_equal(t, TABLE_TOKEN);
    assert_int_equal(key.n, DIGEST_BYTES);
    assert_true(value.n < sizeof(b->row.value));
    memcpy(b->row.key, key.p, key.n);
    memcpy(b->row.value, value.p, value.n);
    b->row.n = value.n;
    b->put = true;
}

void batch_del(struct batch *b, enum table t, struct slice key)
{
    assert_int_equal(t, TABLE_TOKEN);
    memcpy(b->row.key, key.p, key.n);
}

static int apply(const struct batch *b, struct err *e)
{
    size_t i = 0;

    while (i < ROWS &&
           (b->put ? rows[i].n != 0
                   : rows[i].n == 0 || memcmp(rows[i].key, b->row.key, DIGEST_BYTES) != 0)) {
        i++;
    }
    if (i == ROWS) {
        assert_true(b->requires);
        return err_set(e, E_CHANGED, "the row is not there");
    }
    rows[i] = b->row;
    rows[i].n = b->put ? b->row.n : 0;
    return 0;
}

int store_commit(struct store *s, struct batch **bp, enum durability how, struct err *e)
{
    struct batch *b = *bp;
    void (*first)(void) = before_commit;
    int rc = commit_rc;

    *bp = NULL;
    assert_int_equal(how, COMMIT_SYNC);
    before_commit = NULL;
    if (first != NULL) {
        first();
    }
    if (rc != 0) {
        err_set(e, rc, "the disk says no");
    } else if (b->check != NULL) {
        rc = b->check(s, b->check_arg, e);
    }
    rc = rc != 0 ? rc : apply(b, e);
    free(b);
    return rc;
}

int store_scan(struct store *s, enum table t, struct slice from, struct slice to,
               int (*row)(void *arg, struct slice key, struct slice value), void *arg,
               struct err *e)
{
    (void)s;
    (void)from;
    (void)to;
    (void)e;
    assert_int_equal(t, TABLE_TOKEN);
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].n != 0 && row(arg, slice_of(rows[i].key, DIGEST_BYTES),
                                  slice_of(rows[i].value, rows[i].n)) != 0) {
            return -1;
        }
    }
    return 0;
}

static int forget_rows(void **state)
{
    (void)state;
    memset(rows, 0, sizeof(rows));
    commit_rc = 0;
    return 0;
}

/* --- asking --- */

static struct sockaddr_storage peer_at(const char *address)
{
    struct sockaddr_storage ss = {.ss_family = AF_INET};

    assert_int_equal(inet_pton(AF_INET, address, &((struct sockaddr_in *)&ss)->sin_addr), 1);
    return ss;
}

static struct gate *gate_of(const struct limit_conf *limits, size_t count)
{
    struct gate *g = NULL;

    assert_int_equal(gate_open(NULL, limits, count, false, &g, NULL), 0);
    return g;
}

struct ask {
    const char *from, *authorization;
    bool tls;
};

static int identify(struct gate *g, const struct ask *a, struct principal *who, struct err *e)
{
    struct sockaddr_storage peer = peer_at(a->from != NULL ? a->from : "203.0.113.9");
    struct http_field f = {SLICE("authorization"), slice_str(a->authorization)};
    struct http_req r = {
        .tls = a->tls, .fields = &f, .nfields = a->authorization != NULL, .peer = &peer};

    return gate_identify(g, &r, who, e);
}

static void make(struct gate *g, const char *name, const char *scope, uint64_t expires_unix_s,
                 char secret[TOKEN_TEXT])
{
    assert_int_equal(token_create(g, slice_str(name), &scope, 1, expires_unix_s, secret, NULL), 0);
}

static void token_life(void **state)
{
    struct gate *g = gate_of(NULL, 0);
    char secret[TOKEN_TEXT], other[TOKEN_TEXT], bearer[200], user[200], basic[400];
    struct principal who, later;
    struct err e;

    (void)state;
    make(g, "ci", "publish:models/*", 0, secret);
    assert_int_equal(strlen(secret), 65);
    assert_memory_equal(secret, "mrd_", 4);
    assert_null(strstr(rows[0].value, secret + 13)); /* nothing of the secret is stored */
    snprintf(bearer, sizeof(bearer), "Bearer %s", secret);
    assert_int_equal(identify(g, &(struct ask){.authorization = bearer, .tls = true}, &who, &e), 0);
    assert_true(slice_eqs(who.name, "ci"));
    assert_true(gate_allows(&who, "publish", SLICE("models/me/x")));
    assert_true(gate_allows(&who, "read", SLICE("models/me/x")));
    assert_false(gate_allows(&who, "publish", SLICE("other/x")));
    /* Held by a request under way, it is revoked for all later ones. */
    assert_int_equal(token_revoke(g, SLICE("ci"), NULL), 0);
    assert_true(gate_allows(&who, "read", SLICE("models/x")));
    gate_hold(g, &who, &later);
    gate_release(g, &who);
    assert_true(gate_allows(&later, "read", SLICE("models/x")));
    gate_release(g, &later);
    assert_int_equal(identify(g, &(struct ask){.authorization = bearer, .tls = true}, &who, &e),
                     E_DENIED);
    assert_null(who.token);
    assert_int_equal(token_revoke(g, SLICE("ci"), NULL), E_NOTFOUND);
    /* As pip and twine send it; and found again by a new process. */
    make(g, "twine", "publish:*", 0, other);
    gate_close(&g);
    g = gate_of(NULL, 0);
    snprintf(user, sizeof(user), "__token__:%s", other);
    snprintf(basic, sizeof(basic), "basic ");
    base64_encode(user, strlen(user), basic + 6);
    assert_int_equal(identify(g, &(struct ask){.authorization = basic, .tls = true}, &who, &e), 0);
    assert_true(slice_eqs(who.name, "twine"));
    gate_release(g, &who);
    gate_close(&g);
}

static char elsewhere[TOKEN_TEXT];

/* Another mirror knows the same rows. */
static void create_elsewhere(void)
{
    struct gate *g = gate_of(NULL, 0);

    make(g, "ci", "read:*", 0, elsewhere);
    gate_close(&g);
}

static void replace_elsewhere(void)
{
    struct gate *g = gate_of(NULL, 0);

    assert_int_equal(token_revoke(g, SLICE("ci"), NULL), 0);
    gate_close(&g);
    create_elsewhere();
}

static void changes_of_other_mirrors(void **state)
{
    struct gate *g = gate_of(NULL, 0);
    const char *scope = "read:*";
    char secret[TOKEN_TEXT];
    struct err e;

    (void)state;
    before_commit = create_elsewhere;
    assert_int_equal(token_create(g, SLICE("ci"), &scope, 1, 0, secret, &e), E_EXISTS);
    assert_non_null(strstr(e.text, "exists already"));
    before_commit = replace_elsewhere;
    assert_int_equal(token_revoke(g, SLICE("ci"), NULL), 0);
    for (size_t i = 0; i < ROWS; i++) {
        assert_int_equal(rows[i].n, 0);
    }
    assert_int_equal(token_revoke(g, SLICE("ci"), NULL), E_NOTFOUND);
    gate_close(&g);
}

static void strangers(void **state)
{
    static const char *const anonymous[] = {
        NULL,          "",      "Bearer hf_someoneelses", "Basic dXNlcjpwYXNz", "Basic !!!",
        "Digest mrd_", "Bearer"};
    struct gate *g = gate_of(NULL, 0);
    char secret[TOKEN_TEXT], bearer[200];
    struct principal who;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(anonymous); i++) {
        assert_int_equal(identify(g, &(struct ask){.authorization = anonymous[i]}, &who, &e), 0);
        assert_null(who.token);
        assert_false(gate_allows(&who, "read", SLICE("x")));
    }
    make(g, "a", "read:*", 0, secret);
    secret[20] ^= 1; /* a typo is told by the checksum */
    snprintf(bearer, sizeof(bearer), "Bearer %s", secret);
    assert_int_equal(identify(g, &(struct ask){.authorization = bearer, .tls = true}, &who, &e),
                     E_DENIED);
    assert_non_null(strstr(e.text, "checksum"));
    assert_int_equal(
        identify(g, &(struct ask){.authorization = "Bearer mrd_", .tls = true}, &who, &e),
        E_DENIED);
    gate_close(&g);
}

static void clear_text(void **state)
{
    struct gate *g = gate_of(NULL, 0);
    char secret[TOKEN_TEXT], bearer[200];
    struct principal who;
    struct err e;

    (void)state;
    make(g, "a", "read:*", 0, secret);
    snprintf(bearer, sizeof(bearer), "Bearer %s", secret);
    assert_int_equal(identify(g, &(struct ask){.authorization = bearer}, &who, &e), E_DENIED);
    assert_non_null(strstr(e.text, "plain HTTP"));
    assert_int_equal(
        identify(g, &(struct ask){.authorization = bearer, .from = "127.0.0.1"}, &who, &e), 0);
    gate_release(g, &who);
    gate_set_limits(g, NULL, 0, true);
    assert_int_equal(identify(g, &(struct ask){.authorization = bearer}, &who, &e), 0);
    gate_release(g, &who);
    gate_close(&g);
}

static void refused_tokens(void **state)
{
    struct gate *g = gate_of(NULL, 0);
    const char *good = "read:*", *bad = "write:*";
    char secret[TOKEN_TEXT], bearer[200];
    struct principal who;
    struct err e;

    (void)state;
    assert_int_equal(token_create(g, SLICE("a"), &bad, 1, 0, secret, &e), E_INVALID);
    assert_int_equal(token_create(g, SLICE("a"), &good, 0, 0, secret, &e), E_INVALID);
    assert_int_equal(token_create(g, SLICE("a b"), &good, 1, 0, secret, &e), E_INVALID);
    assert_int_equal(token_create(g, SLICE("anonymous"), &good, 1, 0, secret, &e), E_INVALID);
    make(g, "a", good, 0, secret);
    assert_int_equal(token_create(g, SLICE("a"), &good, 1, 0, secret, &e), E_EXISTS);
    commit_rc = E_NOSPACE; /* what did not reach the disk does not exist */
    assert_int_equal(token_create(g, SLICE("b"), &good, 1, 0, secret, &e), E_NOSPACE);
    assert_string_equal(secret, "");
    commit_rc = 0;
    make(g, "b", good, clock_unix_s() - 1, secret);
    snprintf(bearer, sizeof(bearer), "Bearer %s", secret);
    assert_int_equal(identify(g, &(struct ask){.authorization = bearer, .tls = true}, &who, &e),
                     E_DENIED);
    assert_non_null(strstr(e.text, "expired"));
    gate_close(&g);
}

static bool pass(struct gate *g, const struct principal *who, const char *from, uint64_t now_ms,
                 struct gate_decision *v)
{
    struct sockaddr_storage peer = peer_at(from);

    gate_spend(g, who, &peer, now_ms, v);
    pace_release(&v->pace);
    return v->pass;
}

static void limited(void **state)
{
    static const struct limit_conf limits[] = {
        {"anonymous", 1, 2, 1000, 1},
        {"10.0.0.0/8", 0, 1, 0, 0},
        {"10.1.0.0/16", 1, 1, 0, 0},
        {"ci", 100, 100, 5, 0},
    };
    struct gate *g = gate_of(limits, ARRAY_LEN(limits));
    struct principal nobody = {.name = SLICE("")}, who;
    struct gate_decision v;
    struct sockaddr_storage peer = peer_at("203.0.113.9");
    char secret[TOKEN_TEXT], bearer[200];

    (void)state;
    assert_true(pass(g, &nobody, "203.0.113.9", 1000, &v));
    assert_int_equal(v.limit, 2);
    assert_int_equal(v.remaining, 1);
    assert_true(pass(g, &nobody, "203.0.113.9", 1000, &v));
    assert_false(pass(g, &nobody, "203.0.113.9", 1000, &v));
    assert_int_equal(v.retry_after_s, 1);
    assert_int_equal(v.reset_s, 2);
    assert_true(pass(g, &nobody, "203.0.113.10", 1000, &v));
    for (unsigned i = 0; i < 50; i++) {
        assert_true(pass(g, &nobody, "10.2.3.4", 1000, &v)); /* its network has no limit */
    }
    assert_true(pass(g, &nobody, "10.1.3.4", 1000, &v)); /* the narrower one counts */
    assert_false(pass(g, &nobody, "10.1.3.4", 1000, &v));
    make(g, "ci", "read:*", 0, secret);
    snprintf(bearer, sizeof(bearer), "Bearer %s", secret);
    assert_int_equal(identify(g, &(struct ask){.authorization = bearer, .tls = true}, &who, NULL),
                     0);
    assert_true(pass(g, &who, "203.0.113.9", 1000, &v)); /* a token's own, wherever it comes from */
    assert_int_equal(v.remaining, 99);
    gate_release(g, &who);
    assert_true(gate_connect(g, &peer));
    assert_false(gate_connect(g, &peer));
    gate_set_limits(g, NULL, 0, false);
    assert_true(gate_connect(g, &peer));
    assert_true(pass(g, &nobody, "203.0.113.9", 1000, &v));
    assert_int_equal(v.limit, 0);
    gate_disconnect(g, &peer);
    gate_disconnect(g, &peer);
    gate_close(&g);
}

static void paces_are_shared(void **state)
{
    static const struct limit_conf limits[] = {{"anonymous", 0, 1, 1000000, 0}};
    struct gate *g = gate_of(limits, ARRAY_LEN(limits));
    struct principal nobody = {.name = SLICE("")};
    struct sockaddr_storage one = peer_at("203.0.113.9"), other = peer_at("203.0.113.10");
    struct gate_decision a, b, c;
    uint64_t burst;

    (void)state;
    gate_spend(g, &nobody, &one, 1000, &a);
    gate_spend(g, &nobody, &one, 1000, &b);
    gate_spend(g, &nobody, &other, 1000, &c);
    assert_ptr_equal(a.pace, b.pace);
    assert_ptr_not_equal(a.pace, c.pace);
    burst = pace_allows(a.pace, UINT64_MAX, 1000);
    assert_int_equal(burst, 125000);
    pace_charge(a.pace, burst, 1000);
    assert_int_equal(pace_allows(b.pace, 1 << 20, 1000), 0);
    assert_int_equal(pace_allows(c.pace, 100, 1000), 100);
    assert_int_equal(pace_allows(b.pace, 1 << 20, 1010), 10000);
    pace_charge(b.pace, 260000, 1010); /* two loops that looked at once: paid back */
    assert_int_equal(pace_allows(a.pace, 1 << 20, 1110), 0);
    assert_int_equal(pace_allows(a.pace, 1 << 20, 100000), 125000);
    gate_set_limits(g, limits, 1, false); /* those under way keep theirs */
    pace_release(&b.pace);
    gate_spend(g, &nobody, &one, 1000, &b);
    assert_ptr_not_equal(a.pace, b.pace);
    pace_release(&a.pace);
    pace_release(&b.pace);
    pace_release(&c.pace);
    gate_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(token_life, forget_rows),
        cmocka_unit_test(paces_are_shared),
        cmocka_unit_test_setup(strangers, forget_rows),
        cmocka_unit_test_setup(clear_text, forget_rows),
        cmocka_unit_test_setup(refused_tokens, forget_rows),
        cmocka_unit_test_setup(changes_of_other_mirrors, forget_rows),
        cmocka_unit_test_setup(limited, forget_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
