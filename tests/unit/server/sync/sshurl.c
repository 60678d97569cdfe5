/* URLs of ssh upstreams, and what could be more than that. */
#include "server/sync/sshurl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void good_ones(void **state)
{
    static const struct {
        const char *url, *user, *host, *path;
        unsigned port;
    } all[] = {
        {"ssh://far/srv/tree/", "", "far", "/srv/tree/", 0},
        {"ssh://me@far.example:2222/srv/", "me", "far.example", "/srv/", 2222},
        {"ssh://me@[2001:db8::1]:22/", "me", "[2001:db8::1]", "/", 22},
        {"ssh://[::1]/a b/", NULL, NULL, NULL, 0},
        {"ssh://far/~/tree/", "", "far", "tree/", 0},
        {"ssh://far/~/", "", "far", "./", 0},
        {"ssh://far/\xc3\xa9t\xc3\xa9/", "", "far", "/\xc3\xa9t\xc3\xa9/", 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct ssh_url u;
        int rc = ssh_url_parse(slice_str(all[i].url), &u, NULL);
        if (all[i].host == NULL) {
            assert_int_equal(rc, E_INVALID);
            continue;
        }
        assert_int_equal(rc, 0);
        assert_true(slice_eqs(u.user, all[i].user) && slice_eqs(u.host, all[i].host));
        assert_true(slice_eqs(u.path, all[i].path) && u.port == all[i].port);
    }
}

static void bad_ones(void **state)
{
    static const char *const all[] = {
        "ssh://",          "ssh:///a/",        "ssh://far",          "ssh://far/a",
        "ssh://far:0/a/",  "ssh://far:x/a/",   "ssh://far:70000/a/", "ssh://-oProxyCommand=x/a/",
        "ssh://-l@far/a/", "ssh://@far/a/",    "ssh://me@/a/",       "ssh://far/a;b/",
        "ssh://far/$(x)/", "ssh://far/a\nb/",  "ssh://far/*/",       "ssh://far/~/-x/",
        "ssh://[::1/a/",   "ssh://[::1]x/a/",  "ssh://[]/a/",        "ssh://fa r/a/",
        "rsync://far/a/",  "ssh://me:@far/a/", "ssh://far/`x`/",     "ssh://far/'a'/",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct ssh_url u;
        assert_int_equal(ssh_url_parse(slice_str(all[i]), &u, NULL), E_INVALID);
    }
}

static void no_password_is_shown(void **state)
{
    struct ssh_url u;
    struct err e = {.code = 0};

    (void)state;
    assert_int_equal(ssh_url_parse(SLICE("ssh://me:hush@far/a/"), &u, &e), E_INVALID);
    assert_null(strstr(e.text, "hush"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_ones),
        cmocka_unit_test(bad_ones),
        cmocka_unit_test(no_password_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
