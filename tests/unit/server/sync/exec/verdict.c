/* What an end of the rsync program means. */
#include "server/sync/exec/verdict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static int judge(int exit_code, const char *said, bool *partial, struct err *e)
{
    struct exec_ended x = {.exit_code = exit_code, .said = slice_str(said)};

    *e = (struct err){.code = 0};
    return exec_verdict(&x, partial, e);
}

static void ends(void **state)
{
    static const struct {
        int exit_code;
        const char *said;
        int rc;
        bool partial;
    } all[] = {
        {0, "", 0, false},
        {24, "rsync warning: some files vanished\n", 0, false},
        {23, "rsync: [sender] opendir \"a\" failed: Permission denied (13)\n", 0, true},
        {23, "rsync: [sender] change_dir \"/x\" failed: No such file or directory (2)\n",
         E_NOTFOUND, true},
        {23, "rsync: [sender] change_dir \"/x\" failed: Permission denied (13)\n", E_DENIED, true},
        {23, "rsync: [receiver] write failed on \"a\": No space left on device (28)\n", E_NOSPACE,
         true},
        {11, "rsync: [receiver] write failed on \"a\": No space left on device (28)\n", E_NOSPACE,
         false},
        {11, "something else\n", E_IO, false},
        {5, "@ERROR: Unknown module 'x'\nrsync error: error starting\n", E_NOTFOUND, false},
        {5, "@ERROR: auth failed on module m\n", E_DENIED, false},
        {5, "@ERROR: max connections (2) reached -- try again later\n", E_BUSY, false},
        {12, "", E_NETWORK, false},
        {255, "me@far: Permission denied (publickey).\n", E_DENIED, false},
        {255, "ssh: Could not resolve hostname far: unknown\n", E_NETWORK, false},
        {127, "sh: rsync: command not found\n", E_CONFIG, false},
        {14, "rsync: [Receiver] Failed to exec nossh: No such file\n", E_CONFIG, false},
        {1, "rsync: --x: unknown option\n", E_CONFIG, false},
        {2, "protocol version mismatch -- is your shell clean?\n", E_UNSUPPORTED, false},
        {30, "", E_TIMEOUT, false},
        {35, "", E_TIMEOUT, false},
        {20, "", E_AGAIN, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct err e;
        bool partial;
        assert_int_equal(judge(all[i].exit_code, all[i].said, &partial, &e), all[i].rc);
        assert_int_equal(partial, all[i].partial);
        assert_int_equal(e.code, all[i].rc);
    }
}

static void the_words_that_tell_why(void **state)
{
    struct err e;
    bool partial;

    (void)state;
    (void)!judge(
        12,
        "me@far: Permission denied (publickey).\n"
        "rsync: [Receiver] safe_write failed to write 4 bytes to socket: Broken pipe (32)\n"
        "rsync: connection unexpectedly closed (0 bytes received so far) [Receiver]\n"
        "rsync error: error in rsync protocol data stream (code 12) at io.c(1)\n",
        &partial, &e);
    assert_int_equal(e.code, E_DENIED);
    assert_non_null(strstr(e.text, "exited with 12: me@far: Permission denied (publickey)."));
    (void)!judge(12, "rsync error: the only line\n\n", &partial, &e);
    assert_non_null(strstr(e.text, "the only line"));
    (void)!judge(12, "", &partial, &e);
    assert_non_null(strstr(e.text, "it printed no reason"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends),
        cmocka_unit_test(the_words_that_tell_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
