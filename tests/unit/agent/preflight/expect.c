#include "agent/preflight/expect.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int read_text(const char *text, struct expect *x, struct err *e)
{
    char path[] = "/tmp/expect.XXXXXX";
    int fd = mkstemp(path);
    int rc;

    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    rc = expect_file(path, x, e);
    unlink(path);
    return rc;
}

static void test_a_nodes_file(void **state)
{
    struct expect x = {0};
    struct err why = {0};
    uint64_t n = 77;

    (void)state;
    assert_int_equal(
        read_text("preflight {\n gpus = 8 driver = \"550.54\" disk_free = \"100g\" timeout = 2s\n"
                  " drain = yes start_on = ok skip = {\"nofile\", \"shm\"} warn = {\"disk\"} }\n",
                  &x, &why),
        0);
    assert_true(expect_u64(&x, EXPECT_gpus, &n));
    assert_int_equal(n, 8);
    assert_true(expect_u64(&x, EXPECT_disk_free, &n));
    assert_int_equal(n, UINT64_C(100) << 30);
    assert_true(expect_u64(&x, EXPECT_timeout, &n));
    assert_int_equal(n, 2000);
    assert_string_equal(x.is[EXPECT_driver].text, "550.54");
    assert_int_equal(x.is[EXPECT_drain].n, 1);
    assert_int_equal(x.is[EXPECT_start_on].n, 0);
    assert_int_equal(x.skip, 1u << CHECK_nofile | 1u << CHECK_shm);
    assert_int_equal(x.warn, 1u << CHECK_disk);
    n = 77;
    assert_false(expect_u64(&x, EXPECT_memory, &n));
    assert_int_equal(n, 77);
}

static void test_who_wins(void **state)
{
    struct expect x, node = {0}, job = {0};
    uint64_t n;

    (void)state;
    assert_int_equal(expect_word("gpus=8", &node, NULL), 0);
    assert_int_equal(expect_word("memory=1g", &node, NULL), 0);
    assert_int_equal(expect_word("gpus=4", &job, NULL), 0);
    node.skip = 1;
    job.skip = 2;
    expect_init(&x);
    assert_true(expect_u64(&x, EXPECT_nofile, &n));
    assert_int_equal(n, 65536);
    expect_lay(&x, &node);
    expect_lay(&x, &job);
    assert_true(expect_u64(&x, EXPECT_gpus, &n));
    assert_int_equal(n, 4);
    assert_true(expect_u64(&x, EXPECT_memory, &n));
    assert_int_equal(n, 1 << 30);
    assert_int_equal(x.skip, 3);
    job = (struct expect){.only = 2};
    job.is[EXPECT_ONLY].set = true;
    expect_lay(&x, &job);
    assert_int_equal(x.skip, 1); /* who names a check wants it */
    assert_int_equal(x.only, 2);
}

static void test_complaints_of_files(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"",
         ":1: the file sets no expectation and would have no effect; write one such as preflight "
         "{ gpus = 8 }"},
        {"gpus = 8", ":1: unknown key \"gpus\""},
        {"preflight { gpu = 8 }", "did you mean \"gpus\"?"},
        {"preflight {\n gpus = many }",
         ":2: gpus = \"many\": it is not a number; write one such as 8"},
        {"preflight { gpus = -1 }", "it is not a number"},
        {"preflight { driver = \"new\" }", "it is not a version; write one such as 550.54"},
        {"preflight { driver = \"550.\" gpus = 1 }", NULL},
        {"preflight { driver = \"5..5\" }", "it is not a version"},
        {"preflight { disk_free = plenty }", "it is not a size"},
        {"preflight { timeout = 5 }", "it is not a time span"},
        {"preflight { drain = maybe }", "it is neither yes nor no"},
        {"preflight { start_on = never }", "it is not a verdict; write ok, warn or crit"},
        {"preflight { skip = {\"dsik\"} }", "there is no such check; did you mean \"disk\"?"},
        {"preflight { warn = {\"everything\"} }", "`trainagent preflight --list` lists them"},
        {"preflight { gpus = 8 }\npreflight { gpus = 4 }", ":2: section preflight appears again"},
        {"preflight { gpus = \"00000000000000000000000000000000000000008\" }", "it is too long"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct expect x = {0};
        struct err why = {0};
        int rc = read_text(bad[i].text, &x, &why);

        if (bad[i].says == NULL) {
            assert_int_equal(rc, 0);
            continue;
        }
        assert_int_equal(rc, E_CONFIG);
        if (strstr(why.text, bad[i].says) == NULL) {
            fail_msg("%s: %s", bad[i].text, why.text);
        }
    }
    assert_int_equal(expect_file("/nonexistent/preflight.conf", &(struct expect){0}, NULL),
                     E_NOTFOUND);
}

static void test_complaints_of_words(void **state)
{
    static const char *const bad[][2] = {{"gpus", "is empty"},
                                         {"gpus=", "is empty"},
                                         {"gpu=8", "did you mean gpus?"},
                                         {"=8", "write KEY=VALUE"},
                                         {"", "write KEY=VALUE"},
                                         {"skip=disk", "write KEY=VALUE"},
                                         {"gpus=x", "it is not a number"}};
    struct expect x = {0};
    uint64_t bits;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err why = {0};
        assert_int_equal(expect_word(bad[i][0], &x, &why), E_USAGE);
        if (strstr(why.text, bad[i][1]) == NULL) {
            fail_msg("%s: %s", bad[i][0], why.text);
        }
    }
    assert_int_equal(expect_names("disk,ib", &bits, NULL), 0);
    assert_int_equal(bits, 1u << CHECK_disk | 1u << CHECK_ib);
    assert_int_equal(expect_names("", &bits, NULL), E_USAGE);
    assert_int_equal(expect_names("disk,,ib", &bits, NULL), E_USAGE);
    assert_int_equal(expect_names("Disk", &bits, NULL), E_USAGE);
}

static void test_versions(void **state)
{
    (void)state;
    assert_true(version_cmp("550.54.15", "550") == 0);
    assert_true(version_cmp("550.54.15", "550.54.15") == 0);
    assert_true(version_cmp("550.54", "550.54.15") < 0);
    assert_true(version_cmp("535.183.01", "550") < 0);
    assert_true(version_cmp("1000.1", "550") > 0);
    assert_true(version_cmp("5.15.0-91-generic", "5.12") > 0);
    assert_true(version_cmp("5.9-rc1", "5.12") < 0);
    assert_true(version_cmp("", "1") < 0);
    assert_true(version_cmp("2.18.5-1", "2.18.5") == 0);
    assert_true(version_cmp("anything", "") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_nodes_file),
        cmocka_unit_test(test_who_wins),
        cmocka_unit_test(test_complaints_of_files),
        cmocka_unit_test(test_complaints_of_words),
        cmocka_unit_test(test_versions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
