#include "agent/train/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <cmocka.h>

#include "common/base/buf.h"
#include "common/os/newfile.h"

enum { TEXT_BYTES = 1 << 20, PACKED_MAX = 2 << 20 };

static char dir[32];
static char text[TEXT_BYTES];

static int begin(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/source.XXXXXX");
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (char)(i * i >> 7 ^ i % 191);
    }
    return mkdtemp(dir) == NULL;
}

static int end(void **state)
{
    (void)state;
    return dir_remove_tree(dir, NULL);
}

static char *write_file(const char *name, const void *p, size_t n)
{
    static char path[64];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

/* Everything the file holds, in pieces of an odd size. */
static int read_all(const char *path, struct buf *out, struct err *e)
{
    struct source *s;
    size_t n;
    int rc = source_open(path, &s, e);

    buf_clear(out);
    if (rc != 0) {
        return rc;
    }
    do {
        char piece[9973];

        rc = source_read(s, piece, sizeof piece, &n, e);
        buf_add(out, piece, n);
    } while (rc == 0 && n > 0);
    source_close(&s);
    return rc;
}

static size_t pack_gzip(const void *p, size_t n, char *out)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)p,
                  .avail_in = (uInt)n,
                  .next_out = (Bytef *)out,
                  .avail_out = PACKED_MAX};

    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    assert_int_equal(deflateEnd(&z), Z_OK);
    return z.total_out;
}

static size_t pack_zstd(const void *p, size_t n, char *out)
{
    size_t packed = ZSTD_compress(out, PACKED_MAX, p, n, 1);

    assert_false(ZSTD_isError(packed));
    return packed;
}

static const struct {
    const char *name;
    size_t (*pack)(const void *p, size_t n, char *out);
} kinds[] = {{"a.txt.gz", pack_gzip}, {"a.txt.zst", pack_zstd}};

static void test_plain(void **state)
{
    struct buf got = BUF_INIT(2 * TEXT_BYTES);

    (void)state;
    assert_int_equal(read_all(write_file("a.txt", text, sizeof text), &got, NULL), 0);
    assert_true(slice_eq(buf_slice(&got), slice_of(text, sizeof text)));
    assert_int_equal(read_all(write_file("a.txt", "", 0), &got, NULL), 0);
    assert_int_equal(got.n, 0);
    assert_int_equal(read_all("/tmp/there/is/none", &got, NULL), E_NOTFOUND);
    assert_true(slice_eqs(source_name("x/a.jsonl.zst"), "x/a.jsonl"));
    assert_true(slice_eqs(source_name("a.zst.txt"), "a.zst.txt"));
    buf_free(&got);
}

static void test_packed(void **state)
{
    struct buf got = BUF_INIT(3 * TEXT_BYTES);
    char *packed = mem_array(2, PACKED_MAX);

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        size_t first = kinds[k].pack(text, sizeof text, packed), both;
        struct err e;

        assert_int_equal(read_all(write_file(kinds[k].name, packed, first), &got, NULL), 0);
        assert_true(slice_eq(buf_slice(&got), slice_of(text, sizeof text)));
        /* Several behind one another are one text; an empty one is fine. */
        both = first + kinds[k].pack("", 0, packed + first);
        both += kinds[k].pack("end", 3, packed + both);
        assert_int_equal(read_all(write_file(kinds[k].name, packed, both), &got, NULL), 0);
        assert_int_equal(got.n, sizeof text + 3);
        assert_memory_equal(got.p + sizeof text, "end", 3);
        /* Cut anywhere, or with something else behind. */
        for (size_t cut = 0; cut < first; cut += cut < 40 ? 1 : first / 7) {
            assert_int_equal(read_all(write_file(kinds[k].name, packed, cut), &got, &e), E_CORRUPT);
            assert_non_null(strstr(e.text, kinds[k].name));
        }
        memcpy(packed + first, "what is this?", 13);
        assert_int_equal(read_all(write_file(kinds[k].name, packed, first + 13), &got, &e),
                         E_CORRUPT);
        assert_int_equal(read_all(write_file(kinds[k].name, text, 5000), &got, &e), E_CORRUPT);
    }
    /* gzip has a checksum; zstd's tool adds one. */
    size_t n = pack_gzip(text, sizeof text, packed);
    packed[n - 6] ^= 1;
    assert_int_equal(read_all(write_file("a.txt.gz", packed, n), &got, NULL), E_CORRUPT);
    free(packed);
    buf_free(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_packed),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
