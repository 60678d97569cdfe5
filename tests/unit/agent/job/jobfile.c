#include "agent/job/jobfile.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int read_text(const char *text, struct jobfile *j, struct err *e)
{
    char path[] = "/tmp/job.XXXXXX";
    int fd = mkstemp(path);
    int rc;

    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    rc = jobfile_read(path, j, e);
    unlink(path);
    return rc;
}

static void test_a_whole_job(void **state)
{
    struct jobfile j;
    struct err why = {0};

    (void)state;
    assert_int_equal(
        read_text(
            "mirror = \"http://m:8080\"\n"
            "artifact \"corpus\" { from = \"d/w.tar.zst\" unpack = true }\n"
            "artifact \"model\" { from = \"hf/o/gpt2/\" include = {\"*.safetensors\", "
            "\"*.json\"} }\n"
            "run { command = {\"trainer\", \"--out\", \"{out}\"} ranks = auto restarts = 3 grace "
            "= 5s\n"
            "      elastic = \"1:2\" node_rank = 1 rendezvous = \"n0:29400\" rendezvous_id = x "
            "join_timeout = 3m node_timeout = 9s }\n"
            "publish { from = \"{out}\" to = \"models/me/x\" }\n",
            &j, &why),
        0);
    assert_string_equal(j.mirror, "http://m:8080");
    assert_int_equal(j.nartifacts, 2);
    assert_true(j.artifact[0].unpack && !j.artifact[1].unpack);
    assert_int_equal(j.artifact[1].ninclude, 2);
    assert_string_equal(j.artifact[1].include[1], "*.json");
    assert_int_equal(j.ncommand, 3);
    assert_null(j.command[3]);
    assert_int_equal(j.ranks, 0);
    assert_int_equal(j.restarts, 3);
    assert_int_equal(j.grace_ms, 5000);
    assert_int_equal(j.nodes.nodes, 0);
    assert_string_equal(j.nodes.elastic, "1:2");
    assert_string_equal(j.nodes.node_rank, "1");
    assert_string_equal(j.nodes.rendezvous, "n0:29400");
    assert_string_equal(j.nodes.id, "x");
    assert_true(j.nodes.join_ms == 180000 && j.nodes.lost_ms == 9000);
    assert_string_equal(j.publish[0].to, "models/me/x");
    jobfile_fini(&j);
}

/* The file is named "job" in these. */
static void test_complaints(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"",
         "job:1: the file has no artifact, run or publish, so there is nothing to do; write run"},
        {"# later\nmirror = \"http://m:8080\"\n",
         "job:1: the file has no artifact, run or publish"},
        {"nonsense = 1",
         "job:1: unknown key \"nonsense\": the file has no such key; see trainagent(1)"},
        {"artefact \"a\" { from = \"x/y\" }",
         "job:1: unknown key \"artefact\": the file has no such "
         "key; did you mean \"artifact\"?"},
        {"# a comment\n\nartifact \"a\" {\n  form = \"x/y\"\n}",
         "job:4: unknown key \"form\": section artifact has no such key; did you mean \"from\"?"},
        {"run { command = {\"x\"} nodes = many }",
         "job:1: nodes = \"many\": it is not a number of nodes; write auto or 1 to 4096"},
        {"run { comand = {\"x\"} }",
         "job:1: unknown key \"comand\": section run has no such key; did you mean \"command\"?"},
        {"artifact { from = \"x/y\" }", "job:1: "},
        {"artifact \"a\" { from = \"x/y\" }\nartifact \"a\" { from = \"x/z\" }",
         "job:2: the title \"a\" is used twice"},
        {"artifact \"a\" { from = \"x/y\" from = \"x/z\" }",
         "job:1: from is set twice, first at job:1; remove one of them"},
        {"\nartifact \"out\" { from = \"x/y\" }",
         "job:2: artifact \"out\": a name consists of letters, digits, '-' and '_', and out is "
         "reserved; rename it"},
        {"artifact \"../a\" { from = \"x/y\" }",
         "job:1: artifact \"../a\": a name consists of letters"},
        {"artifact \"a\" {\n}",
         "job:1: artifact \"a\" has no from, so there is nothing to fetch; write from = "
         "\"<repo>/<path>\""},
        {"artifact \"a\" {\nfrom = \"x/y\"\nsha256 = \"12\" }",
         "job:3: sha256 = \"12\": it is not a SHA-256; write 64 hex digits or leave it out"},
        {"artifact \"a\" { from = \"x/y\" unpack = maybe }",
         "job:1: unpack = \"maybe\": it is neither true nor false; write one of them"},
        {"run { command = {\"x\"} ranks = 0 }",
         "job:1: ranks = \"0\": it is not a number of processes; write auto or 1 to 1024"},
        {"run { command = {\"x\"} ranks = many }", "job:1: ranks = \"many\": it is not a number"},
        {"run { command = {\"x\"}\n\nrestarts = -1 }",
         "job:3: restarts = \"-1\": it is not a count; write 0 to 1000000"},
        {"run { command = {\"x\"} grace = soon }",
         "job:1: grace = \"soon\": it is not a time span; write one such as 25s"},
        {"run { command = {\"x\"} }\nrun { command = {\"y\"} }",
         "job:2: section run appears again, first at job:1; merge the two"},
        {"\nrun { command = {} }", "job:2: run has no command, so there is nothing to start; write "
                                   "command = {\"program\", \"argument\"}"},
        {"run { command = {\"sh\", \"-c\", \"one\ntwo\"}\n ranks = 0 }", "job:3: ranks"},
        {"run { command = {\"sh\",\n\"one\ntwo } }",
         "job:2: a string is not closed: the file ends"},
        {"run { command = {\"x\"", "job:1: a brace is not closed"},
        {"publish { to = \"r/o/n\" }",
         "job:1: publish has no from, so there is nothing to send; write "
         "from = \"{out}\""},
        {"publish { from = \"{out}\" }",
         "job:1: publish has no to, so there is no destination; write to = "
         "\"<repo>/<owner>/<name>\""},
        {"publish { from = \"{out}\"\n to = \"models/me\" }",
         "job:2: to = \"models/me\": it is not a tree of a repository; write "
         "<repo>/<owner>/<name>"},
        {"artifact \"corpus\" { from = \"x/y\" }\nrun { command = {\"x\",\n\"{corpsu}/*\"} }",
         "job:3: {corpsu} is neither an artifact of this job nor {out}, did you mean {corpus}? "
         "(write {{ for a literal brace)"},
        {"publish { from = \"{}\" to = \"r/o/n\" }",
         "job:1: {} is neither an artifact of this job nor {out}"},
    };
    char here[PATH_MAX];
    char folder[] = "/tmp/job.XXXXXX";
    struct jobfile j;

    (void)state;
    assert_non_null(getcwd(here, sizeof here));
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err why = {0};
        FILE *f = fopen("job", "w");
        assert_non_null(f);
        fputs(bad[i].text, f);
        fclose(f);
        if (jobfile_read("job", &j, &why) != E_CONFIG ||
            strncmp(why.text, bad[i].says, strlen(bad[i].says)) != 0) {
            fail_msg("%s: %d %s", bad[i].text, why.code, why.text);
        }
    }
    unlink("job");
    assert_int_equal(chdir(here), 0);
    rmdir(folder);
    assert_int_equal(jobfile_read("/does/not/exist", &j, NULL), E_NOTFOUND);
}

static const char *value(void *arg, struct slice name)
{
    (void)arg;
    return slice_eq(name, SLICE("a")) ? "/x y" : slice_eq(name, SLICE("out")) ? "/o" : NULL;
}

static void test_placeholders(void **state)
{
    static const struct {
        const char *text;
        const char *want;
    } t[] = {{"", ""},
             {"plain", "plain"},
             {"{a}/*.bin", "/x y/*.bin"},
             {"-{out}{a}-", "-/o/x y-"},
             {"{{a}", "{a}"},
             {"}", "}"},
             {"{b}", NULL},
             {"{", NULL},
             {"{}", NULL},
             {"{a", NULL}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct buf b = BUF_INIT(100);
        struct slice unknown;
        int rc = jobfile_fill(t[i].text, value, NULL, &b, &unknown, NULL);
        if ((rc == 0) != (t[i].want != NULL) || (rc == 0 && strcmp(buf_cstr(&b), t[i].want) != 0)) {
            fail_msg("%s: %d %s", t[i].text, rc, buf_cstr(&b));
        }
        buf_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_whole_job),
        cmocka_unit_test(test_complaints),
        cmocka_unit_test(test_placeholders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
