#include "agent/train/shard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

enum { TOKENS = 5 };

static char path[32];

static int make_file(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/shard.XXXXXX");
    int fd = mkstemp(path);
    return fd == -1 || close(fd) != 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

/* A good shard of 5 bytes, then `change` at byte `at` (none when at is negative), cut or grown to `size`. */
static int open_changed(long at, uint8_t change, long size, struct shard *s)
{
    uint8_t file[SHARD_HEADER_BYTES + TOKENS];
    struct digest d;
    FILE *f = fopen(path, "wb");

    memcpy(file + SHARD_HEADER_BYTES, "hello", TOKENS);
    digest_of(SLICE("hello"), &d);
    shard_header(TOKENS, 256, "bytes", &d, file);
    if (at >= 0) {
        file[at] = change;
    }
    assert_non_null(f);
    assert_int_equal(fwrite(file, 1, sizeof file, f), sizeof file);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(path, size), 0);
    return shard_open(path, s, NULL);
}

enum { FULL = SHARD_HEADER_BYTES + TOKENS };

static void test_good(void **state)
{
    int32_t token[TOKENS];
    struct shard s;

    (void)state;
    assert_int_equal(open_changed(-1, 0, FULL, &s), 0);
    assert_int_equal(s.tokens, TOKENS);
    assert_int_equal(shard_read(&s, 1, 4, token, NULL), 0);
    assert_int_equal(token[0], 'e');
    assert_int_equal(shard_read(&s, TOKENS, 0, token, NULL), 0);
    assert_int_equal(shard_verify(&s, NULL), 0);
    shard_close(&s);
}

static void test_damaged(void **state)
{
    static const struct {
        long at;
        uint8_t change;
        long size;
    } bad[] = {
        {0, 'x', FULL}, /* magic */
        {8, 2, FULL},   /* version */
        {12, 2, FULL},  /* bytes a token */
        {12, 0, FULL},
        {16, 6, FULL}, /* more tokens than there are */
        {16, 4, FULL},
        {23, 0xff, FULL},  /* far more */
        {25, 0, FULL},     /* vocabulary 0 */
        {27, 0x80, FULL},  /* beyond int32 */
        {95, 'x', FULL},   /* a tokenizer's name without its end */
        {-1, 0, FULL - 1}, /* cut */
        {-1, 0, FULL + 1},
        {-1, 0, SHARD_HEADER_BYTES},
        {-1, 0, SHARD_HEADER_BYTES - 1},
        {-1, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct shard s;

        if (open_changed(bad[i].at, bad[i].change, bad[i].size, &s) != E_CORRUPT) {
            fail_msg("accepted: byte %ld = %d, size %ld", bad[i].at, bad[i].change, bad[i].size);
        }
        assert_null(s.map);
    }
}

static void test_token_count_that_wraps(void **state)
{
    uint8_t header[SHARD_HEADER_BYTES];
    struct shard s;
    FILE *f = fopen(path, "wb");

    (void)state;
    /* 2^62 tokens of 4 bytes are 0 bytes in 64 bits. */
    shard_header(UINT64_C(1) << 62, 100000, "t", &(struct digest){{0}}, header);
    assert_int_equal(fwrite(header, 1, sizeof header, f), sizeof header);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(shard_open(path, &s, NULL), E_CORRUPT);
}

static void test_changed_token_fails_verification(void **state)
{
    struct shard s;

    (void)state;
    assert_int_equal(open_changed(FULL - 1, 'O', FULL, &s), 0);
    assert_int_equal(shard_verify(&s, NULL), E_CORRUPT);
    shard_close(&s);
    assert_int_equal(shard_open("/tmp/there/is/none", &s, NULL), E_NOTFOUND);
    assert_int_equal(shard_open("/tmp", &s, NULL), E_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_token_count_that_wraps),
        cmocka_unit_test(test_changed_token_fails_verification),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
