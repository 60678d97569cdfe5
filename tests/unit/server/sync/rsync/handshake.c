#include "server/sync/rsync/handshake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static int talk(struct handshake *g, const char *text, struct err *e)
{
    struct slice in = slice_str(text);

    handshake_init(g, 31, SLICE("debian"), SLICE("me"), SLICE("secret"));
    err_clear(e);
    return handshake_feed(g, &in, e);
}

static void agrees(void **state)
{
    struct handshake g;
    struct err e;

    (void)state;
    assert_int_equal(
        talk(&g, "@RSYNCD: 32.0 sha512 sha256 sha1 md5 md4\nWelcome\n\n@RSYNCD: OK\n\0rest", &e),
        0);
    assert_true(g.done);
    assert_int_equal(g.version, 31);
    assert_true(slice_eq(buf_slice(&g.motd), SLICE("Welcome\n\n")));
    assert_true(slice_eq(buf_slice(&g.out), SLICE("@RSYNCD: 31.0 sha512 sha256 md5\ndebian\n")));
    handshake_fini(&g);
    assert_int_equal(talk(&g, "@RSYNCD: 30.0\n@RSYNCD: OK\n", &e), 0);
    assert_int_equal(g.version, 30);
    handshake_fini(&g);
}

/* md5("secret" "abc"), as any program computes it. */
static void answers_a_challenge(void **state)
{
    struct handshake g;
    struct err e;

    (void)state;
    assert_int_equal(talk(&g, "@RSYNCD: 31.0\n@RSYNCD: AUTHREQD abc\n", &e), 0);
    assert_false(g.done);
    assert_true(slice_ends(buf_slice(&g.out), SLICE("\nme xCuToaw7OC6IBxUQKWqWzg\n")));
    handshake_fini(&g);
    assert_int_equal(talk(&g, "@RSYNCD: 31.0 blake9\n@RSYNCD: AUTHREQD abc\n", &e), E_UNSUPPORTED);
    handshake_fini(&g);
}

static void refusals_have_their_codes(void **state)
{
    static const struct {
        const char *text;
        int code;
    } v[] = {
        {"HTTP/1.1 400 Bad Request\n", E_PROTOCOL},
        {"@RSYNCD: 29.0\n", E_UNSUPPORTED},
        {"@RSYNCD: 31.0 md5\n@ERROR: max connections (10) reached -- try again later\n", E_BUSY},
        {"@RSYNCD: 31.0 md5\n@ERROR: Unknown module 'debian'\n", E_NOTFOUND},
        {"@RSYNCD: 31.0 md5\n@ERROR: auth failed on module debian\n", E_DENIED},
        {"@RSYNCD: 31.0 md5\n@ERROR: something else\n", E_REFUSED},
        {"@RSYNCD: 31.0 md5\n@RSYNCD: EXIT\n", E_PROTOCOL},
        {"@RSYNCD: 99999999999999999999.0\n", E_PROTOCOL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        struct handshake g;
        struct err e;
        assert_int_equal(talk(&g, v[i].text, &e), v[i].code);
        assert_true(e.text[0] != '\0');
        handshake_fini(&g);
    }
}

static void no_end_has_a_bound(void **state)
{
    struct handshake g;
    struct err e = {.code = 0};
    int rc = 0;

    (void)state;
    handshake_init(&g, 31, SLICE("m"), SLICE_NONE, SLICE_NONE);
    for (int i = 0; i < 100000 && rc == 0; i++) {
        struct slice in = SLICE("xxxxxxxxxxxxxxxx");
        rc = handshake_feed(&g, &in, &e);
    }
    assert_int_equal(rc, E_TOOBIG);
    handshake_fini(&g);
    assert_int_equal(talk(&g, "@RSYNCD: 31.0\n", &e), 0);
    for (int i = 0; i < 100000 && rc != 0; i++) {
        struct slice in = SLICE("a line of the day\n");
        if (handshake_feed(&g, &in, &e) == E_TOOBIG) {
            rc = 0;
        }
    }
    assert_int_equal(rc, 0);
    handshake_fini(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees),
        cmocka_unit_test(answers_a_challenge),
        cmocka_unit_test(refusals_have_their_codes),
        cmocka_unit_test(no_end_has_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
