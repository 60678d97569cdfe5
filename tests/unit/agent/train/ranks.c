#include "agent/train/ranks.h"

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

static int read_table(const char *const *t, struct ranks *r)
{
    table = t;
    return ranks_read(env, r, NULL);
}

#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_launchers(void **state)
{
    struct ranks r;

    (void)state;
    assert_int_equal(read_table(ENV("HOME", "/"), &r), 0);
    assert_true(r.rank == 0 && r.world == 1 && r.launcher == LAUNCHER_NONE);
    assert_int_equal(read_table(ENV("RANK", "3", "WORLD_SIZE", "8", "LOCAL_RANK", "1",
                                    "MASTER_ADDR", "n1", "MASTER_PORT", "1234",
                                    "OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "2"),
                                &r),
                     0);
    assert_true(r.launcher == LAUNCHER_TORCHRUN && r.rank == 3 && r.world == 8);
    assert_true(r.local_rank == 1 && r.master_port == 1234 && strcmp(r.master_addr, "n1") == 0);
    /* trainagent takes Open MPI's variables from what it launches: this mpirun was started by the
     * rank. */
    assert_int_equal(read_table(ENV("RANK", "0", "WORLD_SIZE", "1", "TRAINAGENT_GENERATION", "1",
                                    "OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2"),
                                &r),
                     0);
    assert_true(r.launcher == LAUNCHER_OPENMPI && r.rank == 1 && r.world == 2);
    assert_int_equal(read_table(ENV("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2"), &r),
                     0);
    assert_true(r.launcher == LAUNCHER_OPENMPI && r.rank == 1 && r.world == 2);
    assert_int_equal(read_table(ENV("SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "4",
                                    "SLURM_LOCALID", "1", "SLURM_JOB_ID", "77"),
                                &r),
                     0);
    assert_string_equal(r.run_id, "77");
    assert_true(r.launcher == LAUNCHER_SLURM && r.rank == 1 && r.world == 4 && r.local_rank == 1);
    assert_null(r.master_addr);
    assert_int_equal(
        read_table(ENV("SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "4", "SLURM_JOB_ID", "77",
                       "SLURM_STEP_ID", "3", "SLURM_RESTART_COUNT", "2", "SLURM_STEP_NODELIST",
                       "gpu[07-09]"),
                   &r),
        0);
    assert_string_equal(r.master_addr, "gpu07");
    assert_true(r.master_port >= 29400 && r.master_port < 29400 + 1024);
    assert_string_equal(r.generation, "3.2");
    assert_int_equal(read_table(ENV("SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "4", "MASTER_ADDR",
                                    "m", "MASTER_PORT", "7", "SLURM_STEP_NODELIST", "gpu[07-09]"),
                                &r),
                     0);
    assert_true(strcmp(r.master_addr, "m") == 0 && r.master_port == 7);
    assert_int_equal(
        read_table(
            ENV("SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "4", "SLURM_STEP_NODELIST", "[]"), &r),
        E_CONFIG);
    assert_int_equal(read_table(ENV("RANK", "0", "WORLD_SIZE", "2", "TRAINAGENT_GENERATION", "3",
                                    "TORCHELASTIC_RESTART_COUNT", "9"),
                                &r),
                     0);
    assert_string_equal(r.generation, "3");
    /* A batch script: srun did not start it. */
    assert_int_equal(read_table(ENV("SLURM_PROCID", "0", "SLURM_NTASKS", "4"), &r), 0);
    assert_int_equal(r.world, 1);
}

static void test_nonsense(void **state)
{
    struct ranks r;

    (void)state;
    assert_int_equal(read_table(ENV("RANK", "2", "WORLD_SIZE", "2"), &r), E_CONFIG);
    assert_int_equal(read_table(ENV("RANK", "-1", "WORLD_SIZE", "2"), &r), E_CONFIG);
    assert_int_equal(read_table(ENV("RANK", "0", "WORLD_SIZE", "0"), &r), E_CONFIG);
    assert_int_equal(read_table(ENV("RANK", "0", "WORLD_SIZE", "99999999999"), &r), E_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launchers),
        cmocka_unit_test(test_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
