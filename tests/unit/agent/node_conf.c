#include "agent/node_conf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static int read_text(const char *text, struct node_conf *n, struct err *e)
{
    char path[] = "/tmp/node.XXXXXX";
    int fd = mkstemp(path);
    int rc;

    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    rc = node_read(path, n, e);
    unlink(path);
    return rc;
}

static void test_what_holds_without_a_file(void **state)
{
    struct node_conf n;

    (void)state;
    assert_int_equal(read_text("", &n, NULL), 0);
    assert_null(n.mirror);
    assert_null(n.token_file);
    assert_string_equal(n.cache, "/var/cache/trainagent");
    assert_string_equal(n.user, "trainagent");
    assert_int_equal(n.slurm.deadline, 30000);
    assert_int_equal(n.slurm.wait, 1800000);
    assert_null(n.slurm.stage);
    assert_null(n.slurm.export);
    assert_true(n.slurm.comments && !n.slurm.comment_token && !n.slurm.stage_required);
    assert_int_equal(n.slurm.on_disk_full, ACT_FAIL);
    assert_false(n.peers.on);
    assert_int_equal(n.peers.min_size, 64 << 20);
    assert_string_equal(n.peers.address, "::");
    node_fini(&n);
}

static void test_the_former_name_of_the_cache(void **state)
{
    struct node_conf n;

    (void)state;
    assert_int_equal(read_text("shelf = \"/s\"\n", &n, NULL), 0);
    assert_string_equal(n.cache, "/s");
    node_fini(&n);
    assert_int_equal(read_text("shelf = \"/s\"\ncache = \"/c\"\n", &n, NULL), 0);
    assert_string_equal(n.cache, "/c");
    node_fini(&n);
}

static void test_all_of_it(void **state)
{
    struct node_conf n;

    (void)state;
    assert_int_equal(
        read_text("mirror = \"http://m:8080\"\ncache = \"/s\"\nplaintext_token = true\n"
                  "slurm { deadline = 5s stage = {\"a/b\", \"c/d/\"} export = {}\n"
                  "comments = false on_missing = warn }\n"
                  "peers { port = 7171 uploads = 3 min_size = 1g linger = 10m }\n",
                  &n, NULL),
        0);
    assert_string_equal(n.mirror, "http://m:8080");
    assert_string_equal(n.cache, "/s");
    assert_true(n.plaintext_token && !n.slurm.comments);
    assert_int_equal(n.slurm.deadline, 5000);
    assert_string_equal(n.slurm.stage[1], "c/d/");
    assert_null(n.slurm.stage[2]);
    assert_non_null(n.slurm.export); /* written, and empty */
    assert_null(n.slurm.export[0]);
    assert_int_equal(n.slurm.on_missing, ACT_WARN);
    assert_int_equal(n.slurm.on_late, ACT_FAIL);
    assert_true(n.peers.on);
    assert_int_equal(n.peers.port, 7171);
    assert_int_equal(n.peers.uploads, 3);
    assert_int_equal(n.peers.min_size, 1 << 30);
    assert_int_equal(n.peers.linger, 600000);
    node_fini(&n);
}

static void test_complaints(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"mirorr = \"x\"\n", "mirror"},
        {"slurm { deadline = soon }\n", "is not a time span"},
        {"slurm { on_late = perhaps }\n", "neither fail nor warn"},
        {"slurm { comments = 5 }\n", "neither true nor false"},
        {"peers { port = 65536 }\n", "is not a port"},
        {"peers { uploads = 0 }\n", "is not a number from 1 to 256"},
        {"peers { min_size = some }\n", "is not a size"},
        {"peers { prot = 5 }\n", "port"},
        {"slurm { }\nslurm { }\n", "appears again"},
    };
    struct node_conf n;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err why = {0};
        assert_int_equal(read_text(bad[i].text, &n, &why), E_CONFIG);
        assert_non_null(strstr(why.text, bad[i].says));
        assert_string_equal(n.user, "trainagent"); /* nothing of it counts */
        node_fini(&n);
    }
    assert_int_equal(node_read("/nonexistent/node.conf", &n, NULL), E_NOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_holds_without_a_file),
        cmocka_unit_test(test_the_former_name_of_the_cache),
        cmocka_unit_test(test_all_of_it),
        cmocka_unit_test(test_complaints),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
