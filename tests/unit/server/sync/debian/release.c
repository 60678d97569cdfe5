#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/sync/debian/packages.h"
#include "server/sync/debian/release.h"

#define ZEROES "0000000000000000000000000000000000000000000000000000000000000000"
#define ONES   "1111111111111111111111111111111111111111111111111111111111111111"

static void test_release(void **state)
{
    static const char plain[] =
        "Origin: x\nComponents: main contrib\nArchitectures: all amd64\n"
        "Acquire-By-Hash: yes\nMD5Sum:\n 00 1 main/x\nSHA256:\n " ZEROES
        "      12 main/b/Packages\n " ONES " 5 main/a\n zz 5 bad\n " ONES " x bad\n " ONES
        " 5 ../bad\n " ONES " 5 /bad\n " ONES " 5\nDate: x\n";
    const struct sync_conf all = {.components_count = 0};
    struct buf in = BUF_INIT(1 << 16);
    struct release r;
    struct err e = {0};

    (void)state;
    buf_addf(
        &in,
        "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n%s-----BEGIN PGP SIGNATURE-----\n\n"
        "SHA256:\n " ONES " 5 evil\n",
        plain);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(release_read(k == 0 ? slice_str(plain) : buf_slice(&in), &r, &e), 0);
        assert_int_equal(r.count, 2);
        assert_int_equal(r.left_out, 5);
        assert_true(r.by_hash && release_wants(&r, &all, SLICE("contrib/source/Sources")) &&
                    !release_wants(&r, &all, SLICE("con/source/Sources")));
        assert_int_equal(release_find(&r, SLICE("main/b/Packages"))->size_bytes, 12);
        assert_null(release_find(&r, SLICE("evil")));
        release_free(&r);
    }
    assert_int_equal(release_read(SLICE("Origin: x\n"), &r, &e), E_INVALID);
    assert_int_equal(release_read(SLICE("<html>"), &r, &e), E_INVALID);
    assert_int_equal(release_read(SLICE(""), &r, &e), E_INVALID);
    buf_free(&in);
}

static struct buf reported;

static int tell(void *arg, struct slice path, uint64_t size_bytes, const struct digest *d,
                struct err *e)
{
    (void)arg;
    (void)e;
    buf_addf(&reported, SLICE_FMT " %llu %02x\n", SLICE_ARG(path), (unsigned long long)size_bytes,
             d->b[0]);
    return 0;
}

/* One byte at a time, too. */
static int read_all(bool sources, const char *text, const char *wanted)
{
    int rc = 0;

    for (size_t step = 1; rc == 0 && step <= strlen(text) + 1; step += strlen(text)) {
        struct packages_events ev = {.on_file = tell};
        struct packages *p = packages_open(sources, &ev);
        struct err e = {0};
        reported = BUF_INIT(1 << 16);
        for (size_t at = 0; rc == 0 && at < strlen(text); at += step) {
            size_t n = strlen(text) - at < step ? strlen(text) - at : step;
            rc = packages_feed(p, slice_of(text + at, n), &e);
        }
        rc = rc == 0 ? packages_finish(p, &e) : rc;
        if (rc == 0) {
            assert_string_equal(buf_cstr(&reported), wanted);
        }
        packages_close(&p);
        buf_free(&reported);
    }
    return rc;
}

static void test_packages(void **state)
{
    (void)state;
    assert_int_equal(
        read_all(false,
                 "Package: a\nFilename: pool/a.deb\nDescription: one\n two\n .\nSize: 7\n"
                 "SHA256: " ONES
                 "\n\n\nPackage: virtual\n\nFilename: ./b.deb\r\nsize: 8\r\nSHA256: " ZEROES,
                 "pool/a.deb 7 11\nb.deb 8 00\n"),
        0);
    assert_int_equal(read_all(false, "Filename: a\nSize: 7\n\n", ""), E_INVALID);
    assert_int_equal(read_all(false, "Filename: ../a\nSize: 7\nSHA256: " ONES "\n\n", ""),
                     E_INVALID);
    assert_int_equal(read_all(false, " goes on\n", ""), E_INVALID);
    assert_int_equal(read_all(false, "no field\n", ""), E_INVALID);
    assert_int_equal(read_all(true,
                              "Package: a\nChecksums-Sha256:\n " ONES " 1 a.dsc\n " ZEROES
                              " 2 a.tar.xz\nDirectory: pool/a\nFiles:\n x 1 y\n\n",
                              "pool/a/a.dsc 1 11\npool/a/a.tar.xz 2 00\n"),
                     0);
    assert_int_equal(read_all(true, "Directory: p\nChecksums-Sha256:\n " ONES " 1 ../x\n\n", ""),
                     E_INVALID);
}

/* --- which of its files are wanted --- */

static bool wants(const struct sync_conf *c, const char *path)
{
    const struct release r = {.components = SLICE("main contrib non-free"),
                              .architectures = SLICE("amd64 arm64 i386")};

    return release_wants(&r, c, slice_str(path));
}

static void all_without_settings(void **state)
{
    const struct sync_conf c = {.components_count = 0};

    (void)state;
    assert_true(wants(&c, "main/binary-amd64/Packages.xz"));
    assert_true(wants(&c, "non-free/binary-all/Packages"));
    assert_true(wants(&c, "contrib/source/Sources.gz"));
    assert_true(wants(&c, "main/Contents-arm64.gz"));
    assert_true(wants(&c, "main/i18n/Translation-en.bz2"));
    assert_true(wants(&c, "main/dep11/Components-i386.yml.gz"));
    assert_true(wants(&c, "main/cnf/Commands-amd64.xz"));
    assert_false(wants(&c, "main/binary-mips/Packages.xz"));
    assert_false(wants(&c, "universe/binary-amd64/Packages.xz"));
    assert_false(wants(&c, "main/debian-installer/binary-amd64/Packages.xz"));
    assert_false(wants(&c, "main/binary-amd64/Packages.diff/Index"));
    assert_false(wants(&c, "mainly/binary-amd64/Packages"));
    assert_false(wants(&c, "main"));
    assert_false(wants(&c, "main/"));
    assert_false(wants(&c, ""));
}

static void what_settings_name(void **state)
{
    static const char *const components[] = {"main"};
    static const char *const architectures[] = {"amd64"};
    const struct sync_conf c = {.components = components,
                                .components_count = 1,
                                .architectures = architectures,
                                .architectures_count = 1};

    (void)state;
    assert_true(wants(&c, "main/binary-amd64/Packages.xz"));
    assert_true(wants(&c, "main/binary-all/Packages.xz"));
    assert_true(wants(&c, "main/Contents-amd64.gz"));
    assert_false(wants(&c, "main/binary-arm64/Packages.xz"));
    assert_false(wants(&c, "main/source/Sources.xz"));
    assert_false(wants(&c, "contrib/binary-amd64/Packages.xz"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_release),
        cmocka_unit_test(test_packages),
        cmocka_unit_test(all_without_settings),
        cmocka_unit_test(what_settings_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
