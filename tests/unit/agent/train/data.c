#include "agent/train/data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/os/newfile.h"

static char dir[32];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/data.XXXXXX");
    return mkdtemp(dir) == NULL;
}

static int remove_dir(void **state)
{
    (void)state;
    return dir_remove_tree(dir, NULL);
}

/* A shard of the tokens first, first + 1, ..., two bytes each. */
static void write_shard(const char *name, unsigned first, unsigned n, uint32_t vocab)
{
    uint8_t header[SHARD_HEADER_BYTES], *body = mem_array(n + 1, 2);
    struct shard about = {.tokens = n, .vocab = vocab, .tokenizer = "test"};
    char path[128];
    FILE *f;

    for (unsigned i = 0; i < n; i++) {
        body[2 * i] = (uint8_t)(first + i);
        body[2 * i + 1] = (uint8_t)((first + i) >> 8);
    }
    digest_of(slice_of(body, 2 * (size_t)n), &about.digest);
    shard_header(&about, header);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(header, 1, sizeof header, f), sizeof header);
    assert_int_equal(fwrite(body, 2, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(body);
}

static struct data *open_all(int64_t seq, uint64_t seed)
{
    char pattern[128];
    struct data *d;

    snprintf(pattern, sizeof pattern, "%s/*.bin", dir);
    assert_int_equal(data_open(pattern, seq, seed, &d, NULL), 0);
    return d;
}

static void test_permutation(void **state)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 100, 1000};

    (void)state;
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        for (uint64_t key = 0; key < 3; key++) {
            uint8_t seen[1000] = {0};

            for (uint64_t i = 0; i < sizes[s]; i++) {
                uint64_t to = permute(i, sizes[s], key);
                assert_true(to < sizes[s] && !seen[to]);
                seen[to] = 1;
            }
        }
    }
    /* Large sets need no table. */
    assert_true(permute(UINT64_C(1) << 60, (UINT64_C(1) << 60) + 1, 9) <= UINT64_C(1) << 60);
}

static void test_windows_cover_all_shards_in_order(void **state)
{
    int32_t token[4], target[4];
    struct data *d;

    (void)state;
    write_shard("a.bin", 0, 10, 5000);    /* windows at 0, 4; the last token is left over */
    write_shard("b.bin", 1000, 3, 5000);  /* too short for any */
    write_shard("c.bin", 2000, 13, 5000); /* 2000, 2004, 2008 */
    d = open_all(4, 1);
    assert_int_equal(data_count(d), 5);
    assert_int_equal(data_window(d, 1, token, target, NULL), 0);
    assert_true(token[0] == 4 && target[0] == 5 && token[3] == 7 && target[3] == 8);
    assert_int_equal(data_window(d, 2, token, target, NULL), 0);
    assert_true(token[0] == 2000 && target[3] == 2004);
    assert_int_equal(data_window(d, 4, token, target, NULL), 0);
    assert_true(target[3] == 2012);
    data_close(&d);
}

static void test_every_epoch_takes_every_window_once(void **state)
{
    uint64_t order[3] = {0};
    struct data *d;

    (void)state;
    write_shard("a.bin", 0, 33, 5000); /* windows at 0, 8, 16, 24 */
    write_shard("b.bin", 32, 25, 5000);
    write_shard("c.bin", 56, 5, 5000); /* too short for any */
    write_shard("d.bin", 56, 25, 5000);
    d = open_all(8, 7);
    assert_int_equal(data_count(d), 10);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        unsigned seen = 0;

        for (uint64_t i = 0; i < 10; i++) {
            int32_t token[8], target[8];

            data_expect(d, epoch * 10 + i);
            assert_int_equal(data_sample(d, epoch * 10 + i, token, target, NULL), 0);
            assert_true(token[0] % 8 == 0 && token[7] == token[0] + 7 && target[0] == token[1] &&
                        target[7] == token[0] + 8);
            seen |= 1u << (token[0] / 8);
            order[epoch] = order[epoch] * 10 + (uint64_t)(token[0] / 8);
        }
        assert_int_equal(seen, 0x3ff);
    }
    assert_true(order[0] != order[1] && order[1] != order[2]);
    data_close(&d);
}

static void test_token_beyond_the_vocabulary(void **state)
{
    int32_t token[4], target[4];
    struct data *d;
    struct err e;

    (void)state;
    write_shard("a.bin", 998, 9, 1000);
    d = open_all(4, 1);
    assert_int_equal(data_window(d, 0, token, target, &e), E_CORRUPT);
    assert_non_null(strstr(e.text, "1000"));
    data_close(&d);
}

static void test_what_cannot_be_opened(void **state)
{
    char pattern[128];
    struct data *d;

    (void)state;
    snprintf(pattern, sizeof pattern, "%s/*.bin", dir);
    assert_int_equal(data_open(pattern, 4, 1, &d, NULL), E_NOTFOUND);
    write_shard("a.bin", 0, 4, 5000);
    assert_int_equal(data_open(pattern, 4, 1, &d, NULL), E_INVALID); /* one too few */
    write_shard("a.bin", 0, 5, 5000);
    write_shard("b.bin", 0, 5, 4000); /* another vocabulary */
    assert_int_equal(data_open(pattern, 4, 1, &d, NULL), E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutation),
        cmocka_unit_test_setup_teardown(test_windows_cover_all_shards_in_order, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(test_every_epoch_takes_every_window_once, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(test_token_beyond_the_vocabulary, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_opened, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
