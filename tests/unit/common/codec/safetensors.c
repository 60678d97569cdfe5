#include "common/codec/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

/* A file of `json` and `data_bytes` zeros behind it; `claim` overrides the header length when it is
 * not 0. */
static int parse(const char *json, size_t data_bytes, uint64_t claim, struct safetensors **out,
                 struct err *e)
{
    struct buf b = BUF_INIT(1 << 20);
    uint64_t n = claim != 0 ? claim : strlen(json);
    int rc;

    for (int i = 0; i < 8; i++) {
        buf_byte(&b, (uint8_t)(n >> (8 * i)));
    }
    buf_str(&b, json);
    for (size_t i = 0; i < data_bytes; i++) {
        buf_byte(&b, 0);
    }
    rc = safetensors_parse(buf_slice(&b), b.n, out, e);
    buf_free(&b);
    return rc;
}

static void test_good(void **state)
{
    struct safetensors *s;
    struct err e;

    (void)state;
    assert_int_equal(
        parse("{\"__metadata__\":{\"format\":\"pt\"},"
              "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
              "\"a\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]},"
              "\"empty\":{\"dtype\":\"U8\",\"shape\":[0,7],\"data_offsets\":[24,24]}}   ",
              26, 0, &s, &e),
        0);
    assert_int_equal(safetensors_count(s), 3);
    const struct st_tensor *b = safetensors_find(s, SLICE("b"));
    assert_true(b != NULL && b->rank == 2 && b->shape[1] == 3 && b->size_bytes == 24);
    assert_true(slice_eqs(safetensors_at(s, 0)->name, "a"));
    assert_null(safetensors_find(s, SLICE("c")));
    safetensors_close(&s);
    assert_int_equal(parse("{}", 0, 0, &s, &e), 0);
    safetensors_close(&s);
}

#define ONE(shape, offsets)                                                                        \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void test_hostile(void **state)
{
    static const struct {
        const char *json;
        size_t data;
        uint64_t claim;
    } bad[] = {
        {"", 0, 0},
        {" {}", 0, 0},
        {"[]", 0, 0},
        {"{}", 1, 0},          /* bytes left over */
        {"{}", 0, 3},          /* header longer than the file */
        {"{}", 0, UINT64_MAX}, /* and beyond any arithmetic */
        {"{}", 0, UINT64_MAX - 7},
        {"{}", 0, 100000001},
        {"{\"a\":1}", 0, 0},
        {"{\"a\":{}}", 0, 0},
        {"{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, 0},
        {ONE("[1]", "[0,5]"), 5, 0},
        {ONE("[1]", "[4,8]"), 8, 0}, /* a hole before it */
        {ONE("[1]", "[4,0]"), 4, 0},
        {ONE("[1]", "[-4,0]"), 4, 0},
        {ONE("[1]", "[0,4.0]"), 4, 0},
        {ONE("[1]", "[0,4e0]"), 4, 0},
        {ONE("[1]", "[0]"), 4, 0},
        {ONE("[1]", "[0,4,4]"), 4, 0},
        {ONE("[-1]", "[0,4]"), 4, 0},
        {ONE("[1.0]", "[0,4]"), 4, 0},
        {ONE("\"1\"", "[0,4]"), 4, 0},
        {ONE("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, 0},
        {ONE("[4611686018427387904,4]", "[0,0]"), 0, 0}, /* 2^64 bytes wrap to 0 */
        {ONE("[9223372036854775807,9223372036854775807]", "[0,4]"), 4, 0},
        {ONE("[99999999999999999999]", "[0,4]"), 4, 0},
        {ONE("[[1]]", "[0,4]"), 4, 0},
        {ONE("[[[1]]]", "[0,4]"), 4, 0},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1, 0},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
         1, 0},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         3, 0},
        {"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, 0},
        {"{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, 0},
        {"{\"__metadata__\":[]}", 0, 0},
        {"{\"__metadata__\":{\"a\":1}}", 0, 0},
        {"{}}", 0, 0},
        {"}", 0, 0},
        {"{\"a", 0, 0},
        {"{\"a\\", 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct safetensors *s;
        struct err e;

        if (parse(bad[i].json, bad[i].data, bad[i].claim, &s, &e) != E_CORRUPT) {
            fail_msg("accepted: %s", bad[i].json);
        }
        assert_null(s);
    }
}

static void test_short_prefix(void **state)
{
    struct safetensors *s;

    (void)state;
    for (size_t n = 0; n < 8; n++) {
        assert_int_equal(safetensors_parse(slice_of("\2\0\0\0\0\0\0\0{}", n), n, &s, NULL),
                         E_CORRUPT);
    }
}

static void test_depth_and_names(void **state)
{
    struct safetensors *s;
    char deep[4096];

    (void)state;
    memset(deep, '[', sizeof deep);
    deep[0] = '{';
    deep[sizeof deep - 1] = '\0';
    assert_int_equal(parse(deep, 0, 0, &s, NULL), E_CORRUPT);
    snprintf(deep, sizeof deep,
             "{\"%0600d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    assert_int_equal(parse(deep, 1, 0, &s, NULL), E_CORRUPT);
}

static void test_written_files_read_back(void **state)
{
    struct st_tensor t[] = {
        {.name = SLICE("small"), .dtype = ST_U8, .rank = 1, .shape = {3}},
        {.name = SLICE("z"), .dtype = ST_F32, .rank = 2, .shape = {1, 2}},
        {.name = SLICE("a"), .dtype = ST_F32, .rank = 0},
    };
    struct buf b = BUF_INIT(1 << 16);
    struct safetensors *s = NULL;
    char path[] = "/tmp/safetensors.XXXXXX";
    int fd = mkstemp(path);
    char got[8];
    struct err e;

    (void)state;
    assert_int_equal(safetensors_header(t, 3, "pt", &b, &e), 0);
    assert_int_equal(b.n % 8, 0);
    assert_true(slice_eqs(t[0].name, "a") && slice_eqs(t[2].name, "small"));
    buf_add(&b, (float[]){1, 2, 3}, 12);
    buf_add(&b, "xyz", 3);
    assert_int_equal(write(fd, b.p, b.n), (ssize_t)b.n);
    close(fd);
    assert_int_equal(safetensors_open(path, &s, &e), 0);
    assert_int_equal(safetensors_read(s, safetensors_find(s, SLICE("small")), 1, got, 2, &e), 0);
    assert_memory_equal(got, "yz", 2);
    assert_int_equal(safetensors_read(s, safetensors_find(s, SLICE("z")), 0, got, 8, &e), 0);
    assert_memory_equal(got, ((float[]){2, 3}), 8);
    /* Cut under the reader: an error for what is gone, and nothing worse. */
    assert_int_equal(truncate(path, (off_t)b.n - 1), 0);
    assert_int_equal(safetensors_read(s, safetensors_find(s, SLICE("small")), 0, got, 2, &e), 0);
    assert_int_equal(safetensors_read(s, safetensors_find(s, SLICE("small")), 0, got, 3, &e),
                     E_CORRUPT);
    assert_non_null(strstr(e.text, path));
    safetensors_close(&s);
    assert_int_equal(safetensors_open(path, &s, &e), E_CORRUPT);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(safetensors_open(path, &s, &e), E_CORRUPT);
    unlink(path);
    assert_int_equal(safetensors_open(path, &s, &e), E_NOTFOUND);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_short_prefix),
        cmocka_unit_test(test_depth_and_names),
        cmocka_unit_test(test_written_files_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
