#include "agent/job/jobfile.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

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
            "artifact \"model\" { from = \"hf/o/gpt2/\" include = {\"*.safetensors\", \"*.json\"} }\n"
            "run { command = {\"trainer\", \"--out\", \"{out}\"} ranks = auto restarts = 3 grace = 5s }\n"
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
    assert_string_equal(j.publish[0].to, "models/me/x");
    jobfile_fini(&j);
}

static void test_complaints(void **state)
{
    static const char *const bad[] = {
        "nonsense = 1",
        "artifact { from = \"x/y\" }",
        "artifact \"a\" { from = \"x/y\" }\nartifact \"a\" { from = \"x/z\" }",
        "artifact \"out\" { from = \"x/y\" }",
        "artifact \"../a\" { from = \"x/y\" }",
        "artifact \"a\" { from = \"x/y\" unpack = maybe }",
        "run { command = {\"x\"} ranks = 0 }",
        "run { command = {\"x\"} ranks = many }",
        "run { command = {\"x\"} restarts = -1 }",
        "run { command = {\"x\"} grace = soon }",
        "run { command = {\"x\"} }\nrun { command = {\"y\"} }",
        "run { command = {} }",
        "run { command = {\"x\"",
    };
    struct jobfile j;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err why = {0};
        if (read_text(bad[i], &j, &why) != E_CONFIG || why.text[0] == '\0') {
            fail_msg("%s: %d %s", bad[i], why.code, why.text);
        }
    }
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
        int rc = jobfile_fill(t[i].text, value, NULL, &b, NULL);
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
