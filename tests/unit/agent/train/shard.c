#include "agent/train/shard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

enum { TOKENS = 5, FULL = SHARD_HEADER_BYTES + TOKENS };

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

static void write_file(const void *p, size_t n, long size)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(path, size), 0);
}

/* A good shard of 5 bytes, then `change` at byte `at` (none when at is negative), cut or grown to
 * `size`. */
static int open_changed(long at, uint8_t change, long size, struct shard *s)
{
    struct shard about = {.tokens = TOKENS, .vocab = 256, .tokenizer = "bytes"};
    uint8_t file[FULL];

    memcpy(file + SHARD_HEADER_BYTES, "hello", TOKENS);
    digest_of(SLICE("hello"), &about.digest);
    shard_header(&about, file);
    if (at >= 0) {
        file[at] = change;
    }
    write_file(file, sizeof file, size);
    return shard_open(path, s, NULL);
}

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
        {64, '"', FULL},   /* a tokenizer's name that is none */
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
        assert_null(s.path);
    }
}

static void test_token_count_that_wraps(void **state)
{
    struct shard s, about = {.tokens = UINT64_C(1) << 62, .vocab = 100000, .tokenizer = "t"};
    uint8_t header[SHARD_HEADER_BYTES];

    (void)state;
    /* 2^62 tokens of 4 bytes are 0 bytes in 64 bits. */
    shard_header(&about, header);
    write_file(header, sizeof header, sizeof header);
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

/* Were it mapped, this would be a SIGBUS. */
static void test_cut_while_open(void **state)
{
    int32_t token[TOKENS];
    struct shard s;
    struct err e;

    (void)state;
    assert_int_equal(open_changed(-1, 0, FULL, &s), 0);
    assert_int_equal(truncate(path, FULL - 2), 0);
    assert_int_equal(shard_read(&s, 0, 3, token, &e), 0);
    assert_int_equal(shard_read(&s, 0, 4, token, &e), E_CORRUPT);
    assert_non_null(strstr(e.text, path));
    assert_int_equal(shard_verify(&s, &e), E_CORRUPT);
    shard_close(&s);
}

/* --- llm.c's ---------------------------------------------------------------------------------- */

static int open_foreign(uint32_t magic, uint32_t version, uint32_t count, long bytes,
                        struct shard *s)
{
    uint32_t file[256 + 8] = {magic, version, count};

    file[256] = 50256; /* also, little-endian, the uint16 50256 and 0 */
    file[257] = 128255;
    write_file(file, sizeof file, 1024 + bytes);
    return shard_open(path, s, NULL);
}

static void test_foreign(void **state)
{
    int32_t token[2];
    struct shard s;

    (void)state;
    assert_int_equal(open_foreign(20240520, 1, 2, 4, &s), 0);
    assert_int_equal(s.vocab, 50257);
    assert_string_equal(s.tokenizer, "gpt2");
    assert_int_equal(shard_read(&s, 0, 2, token, NULL), 0);
    assert_true(token[0] == 50256 && token[1] == 0);
    assert_int_equal(shard_verify(&s, NULL), 0);
    shard_close(&s);
    assert_int_equal(open_foreign(20240801, 7, 2, 8, &s), 0);
    assert_string_equal(s.tokenizer, "llama3");
    assert_int_equal(shard_read(&s, 0, 2, token, NULL), 0);
    assert_true(token[0] == 50256 && token[1] == 128255);
    shard_close(&s);

    assert_int_equal(open_foreign(20240520, 7, 2, 4, &s), E_CORRUPT);
    assert_int_equal(open_foreign(20240801, 1, 2, 8, &s), E_CORRUPT);
    assert_int_equal(open_foreign(20240520, 1, 3, 4, &s), E_CORRUPT);
    assert_int_equal(open_foreign(20240520, 1, 0xfffffffe, 4, &s), E_CORRUPT);
    assert_int_equal(open_foreign(20240520, 1, 0, -1, &s), E_CORRUPT);
    assert_int_equal(open_foreign(20240327, 1, 2, 4, &s), E_CORRUPT);
    /* uint16 may say what GPT-2 has not. */
    assert_int_equal(open_foreign(20240520, 1, 4, 8, &s), 0);
    assert_int_equal(shard_read(&s, 2, 1, token, NULL), E_CORRUPT);
    assert_int_equal(shard_verify(&s, NULL), E_CORRUPT);
    shard_close(&s);
}

/* --- writing ---------------------------------------------------------------------------------- */

static void test_written_is_read(void **state)
{
    const struct shard about = {.vocab = 70000, .tokenizer = "llama3", .identity = {{7}}};
    const int32_t token[] = {69999, 0, 1};
    struct shard_writer *w;
    struct shard s, made;
    int32_t got[3];

    (void)state;
    assert_int_equal(shard_create(path, &about, &w, NULL), 0);
    assert_int_equal(shard_write(w, token, 4, NULL), 0);
    assert_int_equal(shard_write(w, token + 1, 8, NULL), 0);
    assert_int_equal(shard_written(w), 3);
    assert_int_equal(shard_commit(&w, &made, NULL), 0);
    assert_null(w);
    assert_int_equal(made.tokens, 3);
    assert_int_equal(shard_open(path, &s, NULL), 0);
    assert_true(shard_alike(&s, &about) && digest_eq(&s.digest, &made.digest));
    assert_int_equal(shard_read(&s, 0, 3, got, NULL), 0);
    assert_memory_equal(got, token, sizeof token);
    assert_int_equal(shard_verify(&s, NULL), 0);
    shard_close(&s);
}

static void test_alike(void **state)
{
    const struct shard a = {.vocab = 5, .tokenizer = "gpt2", .identity = {{1}}};
    struct shard b = a;

    (void)state;
    assert_true(shard_alike(&a, &b));
    b.identity.b[0] = 2;
    assert_false(shard_alike(&a, &b));
    b.identity.b[0] = 0; /* not known */
    assert_true(shard_alike(&a, &b));
    b.vocab = 6;
    assert_false(shard_alike(&a, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_token_count_that_wraps),
        cmocka_unit_test(test_changed_token_fails_verification),
        cmocka_unit_test(test_cut_while_open),
        cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_written_is_read),
        cmocka_unit_test(test_alike),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
