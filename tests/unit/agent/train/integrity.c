#include "agent/train/integrity.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "agent/train/manifest.h"
#include "common/os/newfile.h"

enum { FILE_BYTES = 20 << 20 };

static char dir[32];

static void write_file(const char *name, const void *p, size_t n)
{
    char path[64];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* A file of three chunks with its list, two small ones, and a manifest of all. */
static int begin(void **state)
{
    struct buf manifest = BUF_INIT(4096), list = BUF_INIT(4096);
    struct hasher *h = hasher_new();
    char *data = mem_new(FILE_BYTES);
    const struct digest *chunk;
    struct digest d;
    size_t count;

    (void)state;
    snprintf(dir, sizeof dir, "/tmp/integrity.XXXXXX");
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < FILE_BYTES; i++) {
        data[i] = (char)(i * i >> 7);
    }
    hasher_add(h, data, FILE_BYTES);
    hasher_final(h, &d);
    chunk = hasher_chunks(h, &count);
    assert_int_equal(count, 3);
    chunks_encode(&d, FILE_BYTES, chunk, count, &list);
    write_file("large", data, FILE_BYTES);
    write_file("large.chunks", list.p, list.n);
    write_file("a", "a", 1);
    write_file("b", "b", 1);
    manifest_add(&manifest, &d, "large");
    digest_of(buf_slice(&list), &d);
    manifest_add(&manifest, &d, "large.chunks");
    digest_of(SLICE("a"), &d);
    manifest_add(&manifest, &d, "a");
    digest_of(SLICE("b"), &d);
    manifest_add(&manifest, &d, "b");
    write_file(MANIFEST_NAME, manifest.p, manifest.n);
    hasher_free(&h);
    buf_free(&manifest);
    buf_free(&list);
    free(data);
    return 0;
}

static int end(void **state)
{
    (void)state;
    return dir_remove_tree(dir, NULL);
}

/* Another byte in the last chunk. */
static void harm(void)
{
    char path[64];
    FILE *f;

    snprintf(path, sizeof path, "%s/large", dir);
    f = fopen(path, "r+e");
    assert_non_null(f);
    assert_int_equal(fseek(f, FILE_BYTES - 5, SEEK_SET), 0);
    assert_int_equal(fputc('?', f), '?');
    assert_int_equal(fclose(f), 0);
}

static void test_only_what_is_read_is_verified(void **state)
{
    struct integrity *i;
    struct err e;

    (void)state;
    harm();
    assert_int_equal(integrity_open(dir, &i, &e), 0);
    assert_int_equal(integrity_rest(i, &e), 0);
    assert_int_equal(integrity_range(i, "large", 5, 0, &e), 0);
    assert_int_equal(integrity_read_bytes(i), 0);
    assert_int_equal(integrity_range(i, "large", 100, 1000, &e), 0);
    assert_int_equal(integrity_range(i, "large", 5000, 1000, &e), 0);
    assert_int_equal(integrity_read_bytes(i), CHUNK_BYTES); /* once */
    assert_int_equal(integrity_range(i, "large", CHUNK_BYTES - 1, 2, &e), 0);
    assert_int_equal(integrity_read_bytes(i), 2 * CHUNK_BYTES);
    assert_int_equal(integrity_range(i, "large", 2 * CHUNK_BYTES - 1, 2, &e), E_CORRUPT);
    assert_non_null(strstr(e.text, "/large: the file differs from the manifest"));
    assert_int_equal(integrity_range(i, "large", FILE_BYTES - 1, 2, &e), E_CORRUPT);
    assert_int_equal(integrity_range(i, "large", UINT64_MAX, 2, &e), E_CORRUPT);
    assert_int_equal(integrity_range(i, "unheard", 0, 2, &e), E_CORRUPT);
    integrity_close(&i);
}

static void expect_refused(int want, const char *text)
{
    struct integrity *i;
    struct err e = {0};

    assert_int_equal(integrity_open(dir, &i, &e), want);
    assert_null(i);
    assert_non_null(strstr(e.text, text));
}

static void test_refusals(void **state)
{
    char path[64];
    struct integrity *i;

    (void)state;
    write_file("b", "x", 1);
    assert_int_equal(integrity_open(dir, &i, NULL), 0);
    assert_int_equal(integrity_rest(i, NULL), E_CORRUPT);
    integrity_close(&i);
    write_file("large", "x", 1);
    expect_refused(E_CORRUPT, "/large: the file differs from the manifest");
    snprintf(path, sizeof path, "%s/large", dir);
    assert_int_equal(unlink(path), 0);
    expect_refused(E_NOTFOUND, "/large");
    write_file("large.chunks", "x", 1);
    expect_refused(E_CORRUPT, "/large.chunks: the file differs");
    write_file(MANIFEST_NAME, "x\n", 2);
    expect_refused(E_CORRUPT, "not a manifest");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_only_what_is_read_is_verified, begin, end),
        cmocka_unit_test_setup_teardown(test_refusals, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
