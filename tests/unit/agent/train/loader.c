#include "agent/train/loader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/os/newfile.h"

enum { TOKENS = 1000, SEQ = 8 };

static char path[48];
static struct data *data;

static int begin(void **state)
{
    const struct shard about = {.vocab = 60000, .tokenizer = "test"};
    struct shard_writer *w;
    char dir[] = "/tmp/loader.XXXXXX";

    (void)state;
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/data.bin", dir);
    assert_int_equal(shard_create(path, &about, &w, NULL), 0);
    for (uint16_t i = 0; i < TOKENS; i++) {
        assert_int_equal(shard_write(w, &i, sizeof i, NULL), 0);
    }
    assert_int_equal(shard_commit(&w, NULL, NULL), 0);
    return data_open(path, SEQ, 1, &data, NULL);
}

static int end(void **state)
{
    (void)state;
    data_close(&data);
    *strrchr(path, '/') = '\0';
    return dir_remove_tree(path, NULL);
}

static struct loader *open_loader(uint64_t first, int64_t batch, int64_t micros, int rank,
                                  int ranks)
{
    const struct loader_plan p = {first, batch, micros, SEQ, rank, ranks};
    struct loader *l;

    assert_int_equal(loader_open(data, kops_cpu(), &p, &l, NULL), 0);
    return l;
}

static void check_sample(const int32_t *token, const int32_t *target, uint64_t number)
{
    int32_t want[SEQ], next[SEQ];

    assert_int_equal(data_sample(data, number, want, next, NULL), 0);
    assert_memory_equal(token, want, sizeof want);
    assert_memory_equal(target, next, sizeof next);
}

/* Through more than an epoch; what a step takes is the same set of samples for every division of
 * it. */
static void test_every_division_of_a_step(void **state)
{
    static const struct {
        int64_t batch, micros;
        int ranks;
    } way[] = {{12, 1, 1}, {3, 4, 1}, {3, 1, 4}, {3, 2, 2}, {1, 4, 3}};

    (void)state;
    for (size_t w = 0; w < ARRAY_LEN(way); w++) {
        for (int rank = 0; rank < way[w].ranks; rank++) {
            struct loader *l = open_loader(24, way[w].batch, way[w].micros, rank, way[w].ranks);

            for (uint64_t step = 0; step < 14; step++) {
                const int32_t *token, *target;

                assert_int_equal(loader_next(l, &token, &target, NULL), 0);
                for (int64_t i = 0; i < way[w].micros * way[w].batch; i++) {
                    int64_t micro = i / way[w].batch;
                    int64_t number =
                        (micro * way[w].ranks + rank) * way[w].batch + i % way[w].batch;

                    check_sample(token + i * SEQ, target + i * SEQ,
                                 24 + 12 * step + (uint64_t)number);
                }
            }
            loader_close(&l);
        }
    }
}

static void test_given_up(void **state)
{
    (void)state;
    for (int steps = 0; steps < 4; steps++) {
        struct loader *l = open_loader(0, 2, 1, 0, 1);
        const int32_t *token, *target;

        for (int i = 0; i < steps; i++) {
            assert_int_equal(loader_next(l, &token, &target, NULL), 0);
        }
        loader_close(&l);
    }
}

/* A file that is cut under the run: the steps before are whole, then there is one clear error, and
 * no signal. */
static void test_cut_under_the_run(void **state)
{
    struct loader *l = open_loader(0, 4, 1, 0, 1);
    const int32_t *token, *target;
    struct err e;
    int rc;

    (void)state;
    assert_int_equal(loader_next(l, &token, &target, NULL), 0);
    assert_int_equal(truncate(path, SHARD_HEADER_BYTES + 2 * 20), 0);
    for (int i = 0; (rc = loader_next(l, &token, &target, &e)) == 0; i++) {
        assert_true(i < 2); /* what was read ahead */
    }
    assert_int_equal(rc, E_CORRUPT);
    assert_non_null(strstr(e.text, "data.bin"));
    loader_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_division_of_a_step),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_cut_under_the_run),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
