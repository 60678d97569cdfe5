#include "agent/nodes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const char *const *table; /* name, value, ..., NULL */

static const char *env(const char *name)
{
    for (size_t i = 0; table[i] != NULL; i += 2) {
        if (strcmp(table[i], name) == 0) {
            return table[i + 1];
        }
    }
    return NULL;
}

static struct nodes found;
static struct err why;

static int find(struct nodes_said said, const char *hostname, const char *const *t)
{
    table = t;
    why.text[0] = '\0';
    return nodes_find(&said, env, hostname, &found, &why);
}

#define ENV(...)  ((const char *const[]){__VA_ARGS__, NULL})
#define NOTHING   ENV("HOME", "/")
#define SAID(...) ((struct nodes_said){__VA_ARGS__})

static void is(unsigned min, unsigned max, unsigned rank, const char *host, unsigned port)
{
    assert_int_equal(found.min, min);
    assert_int_equal(found.max, max);
    assert_int_equal(found.rank, rank);
    assert_string_equal(found.host, host);
    assert_int_equal(found.port, port);
}

static void test_what_is_said(void **state)
{
    (void)state;
    assert_int_equal(find(SAID(0), "h", NOTHING), 0);
    assert_int_equal(found.max, 1);
    assert_int_equal(
        find(SAID(.nodes = 2, .node_rank = "1", .rendezvous = "n0:777", .id = "x"), "h", NOTHING),
        0);
    is(2, 2, 1, "n0", 777);
    assert_string_equal(found.id, "x");
    assert_true(found.join_ms == 600000 && found.lost_ms == 30000);
    assert_int_equal(
        find(SAID(.elastic = "1:4", .node_rank = "3", .rendezvous = "[fd00::1]:5"), "h", NOTHING),
        0);
    is(1, 4, 3, "fd00::1", 5);
    assert_string_equal(found.id, "fd00::1:5");
    assert_int_equal(find(SAID(.nodes = 2, .node_rank = "0", .rendezvous = "n0"), "h", NOTHING), 0);
    is(2, 2, 0, "n0", 29400);
}

static void test_what_is_missing_is_named(void **state)
{
    static const struct {
        struct nodes_said said;
        const char *says;
    } bad[] = {
        {{.nodes = 2, .node_rank = "0"}, "give --rendezvous HOST:PORT"},
        {{.nodes = 2, .rendezvous = "n0:1"}, "give --node-rank (0 to 1)"},
        {{.nodes = 2, .node_rank = "2", .rendezvous = "n0:1"}, "node rank 2 is not less than"},
        {{.nodes = 2, .node_rank = "x", .rendezvous = "n0:1"}, "--node-rank is \"x\""},
        {{.nodes = 2, .node_rank = "0", .rendezvous = "n0:0"}, "--rendezvous is \"0\""},
        {{.nodes = 2, .node_rank = "0", .rendezvous = ":1"}, "--rendezvous is empty"},
        {{.nodes = 2, .node_rank = "0", .rendezvous = "[::1]1"}, "write HOST:PORT"},
        {{.elastic = "0:2"}, "--elastic is \"0:2\""},
        {{.elastic = "3:2"}, "--elastic is \"3:2\""},
        {{.elastic = "1:9999999"}, "--elastic is \"1:9999999\""},
        {{.elastic = "1:2:3"}, "--elastic is \"1:2:3\""},
        {{.elastic = "1:2", .nodes = 3}, "contradict"},
        {{.nodes = 2, .node_rank = "0", .external = true},
         "--rendezvous-external needs --rendezvous HOST:PORT"},
        {{.nodes = 2, .node_rank = "0", .rendezvous = "n0:1", .lost_ms = 999},
         "--node-timeout must be at least 1s"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(find(bad[i].said, "h", NOTHING), E_CONFIG);
        if (strstr(why.text, bad[i].says) == NULL) {
            fail_msg("%s: %s", bad[i].says, why.text);
        }
    }
}

/* It runs where no scheduler says anything, and the agents must find the same id. */
static void test_an_external_rendezvous_has_no_id_of_a_scheduler(void **state)
{
    (void)state;
    assert_int_equal(
        find(SAID(.rendezvous = "login:5", .external = true), "h",
             ENV("SLURM_JOB_ID", "7", "SLURM_STEP_NUM_NODES", "2", "SLURM_STEP_NUM_TASKS", "2",
                 "SLURM_NODEID", "1", "SLURM_STEP_NODELIST", "n[0-1]")),
        0);
    is(2, 2, 1, "login", 5);
    assert_true(found.external);
    assert_string_equal(found.id, "login:5");
    assert_int_equal(
        find(SAID(.external = true), "h",
             ENV("SLURM_JOB_ID", "7", "SLURM_STEP_NUM_NODES", "2", "SLURM_STEP_NUM_TASKS", "2",
                 "SLURM_NODEID", "1", "SLURM_STEP_NODELIST", "n[0-1]")),
        E_CONFIG);
}

static void test_a_node_alone_has_rank_0(void **state)
{
    (void)state;
    assert_int_equal(find(SAID(.nodes = 1), "h", ENV("PET_NNODES", "4", "PET_NODE_RANK", "3")), 0);
    is(1, 1, 0, "", found.port);
    assert_int_equal(find(SAID(0), "h", ENV("PET_NNODES", "1", "PET_NODE_RANK", "3")), 0);
    is(1, 1, 0, "", found.port);
    assert_int_equal(find(SAID(.nodes = 1, .node_rank = "2", .rendezvous = "n0:1"), "h", NOTHING),
                     0);
    assert_int_equal(found.rank, 0);
}

static void test_a_place_among_others_needs_their_number(void **state)
{
    (void)state;
    assert_int_equal(find(SAID(.node_rank = "1", .rendezvous = "n0:1"), "h", NOTHING), E_CONFIG);
    assert_non_null(strstr(why.text, "give --nodes"));
    assert_int_equal(find(SAID(.node_rank = "0"), "h", NOTHING), E_CONFIG);
    assert_int_equal(find(SAID(.rendezvous = "n0:1"), "h", NOTHING), E_CONFIG);
    /* A scheduler that says one node is heard. */
    assert_int_equal(find(SAID(.rendezvous = "n0:1"), "h", ENV("PET_NNODES", "1")), 0);
    assert_int_equal(found.max, 1);
}

static void test_torchruns_variables(void **state)
{
    (void)state;
    assert_int_equal(find(SAID(0), "h",
                          ENV("PET_NNODES", "1:4", "PET_NODE_RANK", "2", "PET_MASTER_ADDR", "m",
                              "PET_MASTER_PORT", "23456", "PET_RDZV_ID", "job")),
                     0);
    is(1, 4, 2, "m", 23456);
    assert_string_equal(found.id, "job");
    assert_int_equal(find(SAID(.node_rank = "1"), "h",
                          ENV("PET_NNODES", "2", "PET_NODE_RANK", "0", "PET_RDZV_ENDPOINT", "r:9")),
                     0);
    is(2, 2, 1, "r", 9);
}

#define STEP                                                                                       \
    "SLURM_JOB_ID", "77", "SLURM_STEP_ID", "1", "SLURM_STEP_NUM_NODES", "4",                       \
        "SLURM_STEP_NUM_TASKS", "4", "SLURM_NODEID", "3"

static void test_slurm(void **state)
{
    unsigned port;

    (void)state;
    assert_int_equal(find(SAID(0), "h", ENV(STEP, "SLURM_STEP_NODELIST", "gpu[03-06]")), 0);
    port = found.port;
    is(4, 4, 3, "gpu03", port);
    assert_true(port >= 29400 && port < 29400 + 1024);
    assert_string_equal(found.id, "slurm-77-1-0");
    assert_int_equal(
        find(SAID(.elastic = "2:4"), "h",
             ENV(STEP, "SLURM_JOB_NODELIST", "gpu[03-06]", "SLURM_RESTART_COUNT", "2")),
        0);
    is(2, 4, 3, "gpu03", port); /* agreed on by all: it comes of the job's id alone */
    assert_string_equal(found.id, "slurm-77-1-2");
    /* Never localhost. */
    assert_int_equal(find(SAID(0), "h", ENV(STEP)), E_CONFIG);
    assert_non_null(strstr(why.text, "give --rendezvous"));
    /* Eight agents a node would each start all ranks of the node. */
    assert_int_equal(
        find(SAID(0), "h",
             ENV("SLURM_JOB_ID", "77", "SLURM_STEP_NUM_NODES", "1", "SLURM_STEP_NUM_TASKS", "8")),
        E_CONFIG);
    assert_non_null(strstr(why.text, "--ntasks-per-node=1"));
    assert_int_equal(find(SAID(.nodes = 1), "h", ENV(STEP)), 0);
    assert_int_equal(found.max, 1);
    /* A batch script that calls us itself. */
    assert_int_equal(find(SAID(0), "h", ENV("SLURM_JOB_ID", "77", "SLURM_JOB_NUM_NODES", "4")), 0);
    assert_int_equal(found.max, 1);
}

static void test_openmpi(void **state)
{
    (void)state;
    assert_int_equal(find(SAID(.rendezvous = "n0:5"), "h",
                          ENV("OMPI_COMM_WORLD_SIZE", "3", "OMPI_COMM_WORLD_RANK", "2",
                              "PMIX_NAMESPACE", "1234")),
                     0);
    is(3, 3, 2, "n0", 5);
    assert_string_equal(found.id, "1234");
    assert_int_equal(
        find(SAID(0), "h", ENV("OMPI_COMM_WORLD_SIZE", "3", "OMPI_COMM_WORLD_RANK", "2")),
        E_CONFIG);
    assert_non_null(strstr(why.text, "give --rendezvous"));
    assert_int_equal(
        find(SAID(0), "h", ENV("OMPI_COMM_WORLD_SIZE", "1", "OMPI_COMM_WORLD_RANK", "0")), 0);
    assert_int_equal(found.max, 1);
}

static void test_kubernetes(void **state)
{
    static const char pod[] = "train-12.train.default.svc.cluster.local";

    (void)state;
    assert_int_equal(find(SAID(.nodes = 16), pod, ENV("KUBERNETES_SERVICE_HOST", "10.0.0.1")), 0);
    is(16, 16, 12, "train-0.train.default.svc.cluster.local", 29400);
    assert_int_equal(
        find(SAID(.nodes = 16), "train-12", ENV("KUBERNETES_SERVICE_HOST", "10.0.0.1")), E_CONFIG);
    assert_non_null(strstr(why.text, "give --rendezvous"));
    assert_int_equal(find(SAID(.nodes = 2, .rendezvous = "job-0.svc"), "job-x7k2p",
                          ENV("KUBERNETES_SERVICE_HOST", "10.0.0.1", "JOB_COMPLETION_INDEX", "1")),
                     0);
    is(2, 2, 1, "job-0.svc", 29400);
    assert_int_equal(find(SAID(.nodes = 2), pod, NOTHING),
                     E_CONFIG); /* a name like that elsewhere */
    assert_int_equal(find(SAID(0), pod, ENV("KUBERNETES_SERVICE_HOST", "10.0.0.1")), 0);
    assert_int_equal(found.max, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_said),
        cmocka_unit_test(test_what_is_missing_is_named),
        cmocka_unit_test(test_an_external_rendezvous_has_no_id_of_a_scheduler),
        cmocka_unit_test(test_a_node_alone_has_rank_0),
        cmocka_unit_test(test_a_place_among_others_needs_their_number),
        cmocka_unit_test(test_torchruns_variables),
        cmocka_unit_test(test_slurm),
        cmocka_unit_test(test_openmpi),
        cmocka_unit_test(test_kubernetes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
