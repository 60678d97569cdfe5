#include "server/rsync/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define ARGS(text) SLICE(text)

static void a_usual_client(void **state)
{
    struct client_options o;
    struct err e;

    (void)state;
    assert_int_equal(options_parse(ARGS("--server\0--sender\0-vlHogDtpre.iLsfxCIvu\0--numeric-ids\0"
                                        "--bwlimit=10\0.\0m/a b/\0"),
                                   &o, &e),
                     0);
    assert_true(o.sender && o.folders == FOLDERS_ENTERED);
    assert_true(o.facts.links && o.facts.owner && o.facts.group && o.facts.numeric_ids &&
                o.facts.hard_links);
    assert_false(o.dry_run || o.compression.wanted);
    assert_int_equal(o.seed, -1);
    assert_true(slice_eq(o.abilities, SLICE(".iLsfxCIvu")));
    assert_true(slice_eq(o.paths, SLICE("m/a b/\0")));
    assert_int_equal(o.bwlimit_bytes_per_s, 10240);
}

static void a_client_with_a_list(void **state)
{
    struct client_options o;

    (void)state;
    assert_int_equal(options_parse(ARGS("--server\0--sender\0-tRe.LsfxCIvu\0--ignore-missing-args\0"
                                        "--files-from=-\0--from0\0.\0m/a\0"),
                                   &o, NULL),
                     0);
    assert_true(o.names && o.absent_is_fine && o.relative && o.folders == FOLDERS_THEMSELVES);
}

static void what_is_not_served_is_named(void **state)
{
    static const struct {
        struct slice args;
        const char *word;
    } v[] = {
        {ARGS("--server\0--sender\0-lc\0.\0m/\0"), "-c"},
        {ARGS("--server\0--sender\0-rX\0.\0m/\0"), "-X"},
        {ARGS("--server\0--sender\0--files-from\0list\0.\0m/\0"), "--files-from=FILE"},
        {ARGS("--server\0--sender\0--files-from=list\0.\0m/\0"), "--files-from=FILE"},
        {ARGS("--server\0--sender\0--delete-missing-args\0.\0m/\0"), "--delete-missing-args"},
        {ARGS("--server\0--sender\0--append\0.\0m/\0"), "--append"},
        {ARGS("--server\0--sender\0stray\0.\0m/\0"), "stray"},
        {ARGS("--server\0--sender\0"), "no path"},
        {ARGS("--server\0--sender\0-kr\0.\0m/\0"), "-k is not supported: links"},
        {ARGS("--server\0--sender\0-r\0--copy-unsafe-links\0.\0m/\0"), "--copy-unsafe-links"},
        {ARGS("--server\0--sender\0-r\0--iconv=utf8\0.\0m/\0"), "names are sent as"},
        {ARGS("--server\0-re.vf\0.\0m/\0"), "module is read only"},
        {ARGS("--server\0-Xre.vf\0.\0m/--sender\0"), "module is read only"},
        {SLICE(""), "module is read only"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        struct client_options o;
        struct err e = {.code = 0};
        assert_int_not_equal(options_parse(v[i].args, &o, &e), 0);
        if (strstr(e.text, v[i].word) == NULL) {
            fail_msg("%s: %s", v[i].word, e.text);
        }
    }
}

static void abilities_are_known_although_something_is_refused(void **state)
{
    struct client_options o;

    (void)state;
    assert_int_not_equal(options_parse(ARGS("--server\0-re.vf\0--append\0.\0m/\0"), &o, NULL), 0);
    assert_true(slice_eq(o.abilities, SLICE(".vf")));
}

static void a_second_list_is_announced_by_a_letter(void **state)
{
    (void)state;
    assert_true(options_secluded(ARGS("--server\0--sender\0-sre.iLsfxCIvu\0")));
    assert_true(options_secluded(ARGS("--server\0-se.LsfxCIvu\0")));
    assert_false(options_secluded(ARGS("--server\0--sender\0-re.iLsfxCIvu\0.\0m/-s\0")));
    assert_false(options_secluded(ARGS("--server\0--sender\0--safe-links\0-r\0.\0-s\0")));
    assert_false(options_secluded(SLICE("")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_usual_client),
        cmocka_unit_test(a_client_with_a_list),
        cmocka_unit_test(what_is_not_served_is_named),
        cmocka_unit_test(a_second_list_is_announced_by_a_letter),
        cmocka_unit_test(abilities_are_known_although_something_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
