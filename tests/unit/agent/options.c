#include "agent/options.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct agent agent;
static struct verb_line line;

static int setup(void **state)
{
    (void)state;
    agent = (struct agent){0};
    line = (struct verb_line){.agent = &agent};
    return 0;
}

/* Words are cut at blanks. */
static int read_words(const char *text, uint64_t *said, struct err *e)
{
    static char words[4096];
    static char *argv[128];
    int argc = 0;

    snprintf(words, sizeof words, "trainagent %s", text);
    for (char *at = strtok(words, " "); at != NULL; at = strtok(NULL, " ")) {
        argv[argc++] = at;
    }
    argv[argc] = NULL;
    return options_read(&line, argc, argv, said, e);
}

static void test_every_option_fills_its_field(void **state)
{
    static const char every[] =
        "--mirror http://m --mirror http://n,http://o "
        "--cache=/s --state /st --node-file /n --token-file /t "
        "--plaintext-token --ca-file /ca --connections 9 --idle-timeout 70 --tries 3 VERB "
        "--to here --unpack --sha256 ab --copy --jitter 2s --ranks 4 --restarts 5 --checkpoints "
        "/ck "
        "--nodes 2 --node-rank 1 --rendezvous h:1 --rendezvous-id x --elastic 1:2 "
        "--rendezvous-external --join-timeout 3m "
        "--node-timeout 4s --grace 6s "
        "--if-match root --keep 3k --age 2m --full --only a --skip b --expect gpus=8 -c "
        "/c --expect numa=2 --textfile /p --explain --root /r --list --deadline 4s --json "
        "-q -v -- --rest";
    const struct preflight_line *p = &line.preflight;
    struct err e = {0};
    uint64_t said;

    (void)state;
    if (read_words(every, &said, &e) != OPTIONS_DONE) {
        fail_msg("%s", e.text);
    }
    assert_true(slice_eqs(agent.mirror, "http://m,http://n,http://o"));
    assert_string_equal(agent.local_cache_dir, "/s");
    assert_string_equal(agent.state_dir, "/st");
    assert_string_equal(agent.conf_file, "/n");
    assert_string_equal(agent.token_file, "/t");
    assert_string_equal(agent.ca_file, "/ca");
    assert_true(agent.plaintext_token && agent.copy && agent.json && agent.quiet);
    assert_int_equal(agent.connections, 9);
    assert_int_equal(agent.idle_timeout_s, 70);
    assert_int_equal(agent.tries, 3);
    assert_string_equal(line.to, "here");
    assert_string_equal(line.sha256, "ab");
    assert_string_equal(line.if_match, "root");
    assert_true(line.unpack);
    assert_int_equal(line.jitter_ms, 2000);
    assert_int_equal(line.ranks, 4);
    assert_int_equal(line.restarts, 5);
    assert_int_equal(line.nodes.nodes, 2);
    assert_string_equal(line.nodes.node_rank, "1");
    assert_string_equal(line.nodes.rendezvous, "h:1");
    assert_string_equal(line.nodes.id, "x");
    assert_string_equal(line.nodes.elastic, "1:2");
    assert_true(line.nodes.external);
    assert_int_equal(line.nodes.join_ms, 180000);
    assert_int_equal(line.nodes.lost_ms, 4000);
    assert_int_equal(line.grace_ms, 6000);
    assert_int_equal(line.keep_bytes, 3 << 10);
    assert_int_equal(line.keep_age_s, 120);
    assert_int_equal(line.deadline_ms, 4000);
    assert_true(p->full && p->explain && p->list);
    assert_string_equal(p->only, "a");
    assert_string_equal(p->skip, "b");
    assert_string_equal(p->config, "/c");
    assert_string_equal(p->textfile, "/p");
    assert_string_equal(p->root, "/r");
    assert_int_equal(p->nexpect, 2);
    assert_string_equal(p->expect[1], "numa=2");
    assert_int_equal(line.argc, 2);
    assert_string_equal(line.argv[0], "VERB");
    assert_string_equal(line.argv[1], "--rest");
    assert_null(line.argv[2]);
}

static void test_what_ends_the_line(void **state)
{
    uint64_t said;

    (void)state;
    assert_int_equal(read_words("--quiet --help", &said, NULL), OPTIONS_HELP);
    assert_int_equal(line.argc, 0);
    assert_int_equal(read_words("--help pull --copy", &said, NULL), OPTIONS_HELP);
    assert_string_equal(line.argv[0], "pull");
    assert_int_equal(read_words("launch --help -- true", &said, NULL), OPTIONS_HELP);
    assert_string_equal(line.argv[0], "launch");
    assert_int_equal(read_words("launch -- true --help", &said, NULL), OPTIONS_DONE);
    assert_int_equal(read_words("--version --bananas", &said, NULL), OPTIONS_VERSION);
    assert_int_equal(read_words("-- --version", &said, NULL), OPTIONS_DONE);
    assert_int_equal(line.argc, 1);
}

static void test_what_is_no_option(void **state)
{
    static const struct {
        const char *words, *says;
    } cases[] = {
        {"--jiter=1s x", "did you mean --jitter?"},
        {"--bananas x", "--bananas is not an option; try trainagent --help"},
        {"-z x", "-z is not an option"},
        {"--connections 65", "--connections does not accept \"65\""},
        {"--connections 0", "--connections does not accept \"0\""},
        {"--ranks all", "--ranks does not accept \"all\""},
        {"--deadline 0s", "--deadline does not accept \"0s\""},
        {"--keep much", "--keep does not accept \"much\""},
        {"pull --to", "--to needs a value"},
    };
    uint64_t said;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = {0};
        assert_int_equal(read_words(cases[i].words, &said, &e), E_USAGE);
        if (strstr(e.text, cases[i].says) == NULL) {
            fail_msg("%s: %s", cases[i].words, e.text);
        }
    }
}

static void test_as_many_expectations_as_there_is_room_for(void **state)
{
    char words[(EXPECT_WORDS + 1) * 16 + 1] = "";
    uint64_t said;

    (void)state;
    for (int i = 0; i < EXPECT_WORDS; i++) {
        strcat(words, "--expect=gpus=8 ");
    }
    assert_int_equal(read_words(words, &said, NULL), OPTIONS_DONE);
    line.preflight.nexpect = 0;
    strcat(words, "--expect=gpus=8 ");
    assert_int_equal(read_words(words, &said, NULL), E_USAGE);
}

static void test_whose_option_it_is(void **state)
{
    struct err e;
    uint64_t said;

    (void)state;
    assert_int_equal(read_words("--copy --json", &said, NULL), OPTIONS_DONE);
    assert_int_equal(options_check("pull", said, &e), 0);
    assert_int_equal(options_check("run", said, &e), 0);
    assert_int_equal(options_check("gc", said, &e), E_USAGE);
    assert_string_equal(e.text, "--copy does not belong to gc, which has --keep --age");
    assert_int_equal(options_check("status", said, &e), E_USAGE);
    assert_string_equal(e.text,
                        "--copy does not belong to status, which has no options of its own");
    assert_int_equal(read_words("--json -v", &said, NULL), OPTIONS_DONE);
    assert_int_equal(options_check("status", said, &e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_every_option_fills_its_field, setup),
        cmocka_unit_test_setup(test_what_ends_the_line, setup),
        cmocka_unit_test_setup(test_what_is_no_option, setup),
        cmocka_unit_test_setup(test_as_many_expectations_as_there_is_room_for, setup),
        cmocka_unit_test_setup(test_whose_option_it_is, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
