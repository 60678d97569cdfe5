#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/buf.h"
#include "server/sync/rpm/repomd.h"

#define ONES "1111111111111111111111111111111111111111111111111111111111111111"
#define SHA1 "2222222222222222222222222222222222222222"

static int tell(void *arg, struct slice path, uint64_t size_bytes, const struct sum *sum,
                struct err *e)
{
    (void)e;
    buf_addf(arg, SLICE_FMT " %llu %d:%02x\n", SLICE_ARG(path), (unsigned long long)size_bytes,
             (int)sum->kind, sum->b[0]);
    return 0;
}

static int read_in(struct slice text, size_t step, struct buf *reported)
{
    struct primary_events ev = {.on_file = tell, .arg = reported};
    struct primary *p = primary_open(&ev);
    struct err e = {0};
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < text.n; at += step) {
        rc = primary_feed(p, slice_of(text.p + at, text.n - at < step ? text.n - at : step), &e);
    }
    rc = rc == 0 ? primary_finish(p, &e) : rc;
    primary_close(&p);
    assert_int_equal(rc, e.code);
    return rc;
}

static void check(const char *text, int rc, const char *wanted)
{
    struct buf reported = BUF_INIT(1 << 20);

    for (size_t step = 1; step <= 1000; step += 999) {
        buf_clear(&reported);
        assert_int_equal(read_in(slice_str(text), step, &reported), rc);
        if (rc == 0) {
            assert_string_equal(buf_cstr(&reported), wanted);
        }
    }
    buf_free(&reported);
}

#define HEAD                                                                                       \
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<metadata xmlns=\"http://c\" "                    \
    "xmlns:rpm=\"http://r\" packages=\"1\">\n"
#define ONE(sum, size, place)                                                                      \
    "<package type=\"rpm\"><name>x</name><checksum type=\"" sum "</checksum><size package=\"" size \
    "\" installed=\"2\"/><location " place                                                         \
    "/><format><rpm:header-range start=\"1\"/><file>/a</file></format></package>\n"

static void test_primary(void **state)
{
    (void)state;
    check(HEAD ONE("sha256\" pkgid=\"YES\">" ONES, "7", "href=\"Packages/x/x-1 &amp; 2.rpm\"")
              ONE("sha\">" SHA1, "8", "href=\"./y.rpm\"") "</metadata>",
          0, "Packages/x/x-1 & 2.rpm 7 3:11\ny.rpm 8 2:22\n");
    check(HEAD "</metadata>", 0, "");
    check("<repomd/>", E_INVALID, "");
    check("", E_INVALID, "");
    check(HEAD, E_INVALID, "");
    check("{}", E_INVALID, "");
    check(HEAD ONE("sha256\">" ONES, "7", "href=\"../x.rpm\"") "</metadata>", E_INVALID, "");
    check(HEAD ONE("sha256\">" ONES, "7", "href=\"/x.rpm\"") "</metadata>", E_INVALID, "");
    check(HEAD ONE("sha256\">" ONES, "7", "href=\"a//x.rpm\"") "</metadata>", E_INVALID, "");
    check(HEAD ONE("sha256\">" ONES, "7", "") "</metadata>", E_INVALID, "");
    check(HEAD ONE("sha256\">" SHA1, "7", "href=\"x\"") "</metadata>", E_INVALID, "");
    check(HEAD ONE("sha256\">" ONES, "-7", "href=\"x\"") "</metadata>", E_INVALID, "");
    check(HEAD ONE("sha3\">" ONES, "7", "href=\"x\"") "</metadata>", E_UNSUPPORTED, "");
    check(HEAD ONE("sha256\">" ONES, "7",
                   "href=\"x\" xml:base=\"http://else.example/\"") "</metadata>",
          E_UNSUPPORTED, "");
    check(HEAD "<package type=\"rpm\"/></metadata>", E_INVALID, "");
}

static void test_bombs(void **state)
{
    struct buf b = BUF_INIT(8 << 20), reported = BUF_INIT(1 << 20);

    (void)state;
    check("<!DOCTYPE x [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;\">]>"
          "<metadata>&b;</metadata>",
          E_INVALID, "");
    check("<!DOCTYPE metadata SYSTEM \"file:///etc/passwd\"><metadata/>", E_INVALID, "");
    for (int i = 0; i < 100000; i++) {
        buf_str(&b, "<a>");
    }
    assert_int_equal(read_in(buf_slice(&b), 1000, &reported), E_TOOBIG);
    buf_clear(&b);
    buf_str(&b, "<metadata a=\"");
    for (int i = 0; i < 4 << 20; i++) {
        buf_byte(&b, 'a');
    }
    assert_int_equal(read_in(buf_slice(&b), 1 << 16, &reported), E_TOOBIG);
    buf_clear(&b); /* text is dropped as it comes */
    buf_str(&b, "<metadata><package>");
    for (int i = 0; i < 4 << 20; i++) {
        buf_byte(&b, 'a');
    }
    assert_int_equal(read_in(buf_slice(&b), 1 << 16, &reported), E_INVALID);
    buf_free(&b);
    buf_free(&reported);
}

static void test_repomd(void **state)
{
    static const char good[] =
        "<repomd xmlns=\"http://r\"><revision>1</revision><data type=\"primary\"><checksum "
        "type=\"sha256\">" ONES "</checksum><open-checksum type=\"sha256\">" ONES
        "</open-checksum><location href=\"repodata/1-primary.xml.gz\"/><size>12</size></data>"
        "<data type=\"modules\"><checksum type=\"sha\">" SHA1
        "</checksum><location href=\"repodata/m.yaml\"/></data></repomd>";
    static const char *const bad[] = {
        "<repomd/>",
        "<x><data type=\"primary\"/></x>",
        "<repomd><data type=\"primary\"/></repomd>",
        "<repomd><data type=\"primary\"><location href=\"a\"/></data></repomd>",
        "<repomd><data type=\"primary\"><location href=\"../a\"/></data></repomd>",
        "",
        "<repomd>",
    };
    struct repomd r;
    struct err e = {0};

    (void)state;
    assert_int_equal(repomd_read(slice_str(good), &r, &e), 0);
    assert_int_equal(r.count, 2);
    assert_true(slice_eqs(repomd_find(&r, "primary")->path, "repodata/1-primary.xml.gz"));
    assert_int_equal(repomd_find(&r, "primary")->size_bytes, 12);
    assert_int_equal(repomd_find(&r, "modules")->sum.kind, SUM_SHA1);
    assert_true(repomd_find(&r, "modules")->size_bytes == UINT64_MAX);
    assert_null(repomd_find(&r, "other"));
    repomd_free(&r);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(repomd_read(slice_str(bad[i]), &r, &e), E_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_primary),
        cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_repomd),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
