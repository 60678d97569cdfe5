#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/buf.h"
#include "server/repo/conda/repodata.h"

#define ONES "1111111111111111111111111111111111111111111111111111111111111111"
#define MD5  "22222222222222222222222222222222"

static struct buf reported;

static int tell(void *arg, const struct repodata_file *f, struct err *e)
{
    (void)arg;
    (void)e;
    buf_addf(&reported, SLICE_FMT " %lld %d:%02x\n", SLICE_ARG(f->name), (long long)f->size_bytes,
             (int)f->sum.kind, f->sum.b[0]);
    return 0;
}

static int read_in(struct slice text, size_t step)
{
    struct repodata_events ev = {.on_file = tell};
    struct repodata *r = repodata_open(&ev);
    struct err e = {0};
    int rc = 0;

    buf_clear(&reported);
    for (size_t at = 0; rc == 0 && at < text.n; at += step) {
        rc = repodata_feed(r, slice_of(text.p + at, text.n - at < step ? text.n - at : step), &e);
    }
    rc = rc == 0 ? repodata_finish(r, &e) : rc;
    repodata_close(&r);
    assert_int_equal(rc, e.code);
    return rc;
}

/* One byte at a time, too. */
static void check(const char *text, int rc, const char *wanted)
{
    for (size_t step = 1; step <= 1000; step += 999) {
        assert_int_equal(read_in(slice_str(text), step), rc);
        if (rc == 0) {
            assert_string_equal(buf_cstr(&reported), wanted);
        }
    }
}

static void test_channel(void **state)
{
    (void)state;
    check("{\"info\":{\"subdir\":\"noarch\",\"base_url\":\"./\"},\"packages\":{\"a-1-0.tar.bz2\":{"
          "\"build\":\"0\",\"depends\":[\"python >=3\",[\"x\"]],\"md5\":\"" MD5
          "\",\"sha256\":\"" ONES "\",\"size\":7,\"x\":{\"size\":9,\"sha256\":\"no\"}},"
          "\"old-1-0.tar.bz2\":{\"md5\":\"" MD5
          "\",\"size\":8},\"bare-0\":{}},\"packages.conda\":{\"b-2-0.conda\":{"
          "\"sha256\":\"" ONES
          "\",\"size\":5000000000}},\"removed\":[\"gone-1.conda\"],\"repodata_version\":1,"
          "\"more\":{\"z\":{\"size\":\"x\",\"sha256\":5}}}",
          0,
          "a-1-0.tar.bz2 7 3:11\nold-1-0.tar.bz2 8 1:22\nbare-0 -1 0:00\nb-2-0.conda 5000000000 "
          "3:11\n");
    check("{\"packages\":{},\"packages.conda\":{}}", 0, "");
}

static void test_hostile(void **state)
{
    static const char *const invalid[] = {
        "",
        "{}",
        "[]",
        "5",
        "<html>",
        "{\"packages\":{}",
        "{\"packages\":[]}",
        "{\"packages\":null}",
        "{\"packages\":[{\"size\":1}]}",
        "{\"packages\":{\"a\":5}}",
        "{\"packages\":{\"a\":[]}}",
        "{\"packages\":{\"a\":{}},\"packages.conda\":[[{}]]}",
        "{\"packages\":{\"../a\":{}}}",
        "{\"packages\":{\"..\":{}}}",
        "{\"packages\":{\"a/b\":{}}}",
        "{\"packages\":{\"/a\":{}}}",
        "{\"packages\":{\"\":{}}}",
        "{\"packages\":{\"a\\u0000b\":{}}}",
        "{\"packages\":{\"a\":{\"sha256\":\"xyz\"}}}",
        "{\"packages\":{\"a\":{\"md5\":\"" ONES "\"}}}",
        "{\"packages\":{\"a\":{\"size\":-1}}}",
        "{\"packages\":{\"a\":{\"size\":1.5}}}",
        "{\"packages\":{\"a\":{\"size\":99999999999999999999}}}",
        "{\"packages\":{}} {\"packages\":{}}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(invalid); i++) {
        check(invalid[i], E_INVALID, "");
    }
    check("{\"info\":{\"base_url\":\"https://elsewhere.example/x/\"},\"packages\":{}}",
          E_UNSUPPORTED, "");
    check("{\"info\":{\"base_url\":\"../other\"},\"packages\":{}}", E_UNSUPPORTED, "");
}

static int tell_base(void *arg, struct slice url, struct err *e)
{
    (void)arg;
    (void)e;
    buf_addf(&reported, "at " SLICE_FMT "\n", SLICE_ARG(url));
    return 0;
}

/* As clients read it: what is wrong with an entry is wrong with that one alone. */
static void test_lenient(void **state)
{
    struct repodata_events ev = {.on_file = tell, .on_base = tell_base, .lenient = true};
    struct repodata *r = repodata_open(&ev);
    struct slice text = SLICE(
        "{\"info\":{\"base_url\":\"https://far.example/\"},\"packages\":{\"../a\":{\"size\":1},"
        "\"b\":{\"sha256\":\"no\",\"md5\":\"no\",\"size\":-5},"
        "\"c\":{\"sha256\":\"no\",\"md5\":\"" MD5
        "\"}},\"packages.conda\":{\"d\":{\"sha256\":\"" ONES "\",\"size\":9}}}");

    (void)state;
    buf_clear(&reported);
    assert_int_equal(repodata_feed(r, text, NULL), 0);
    assert_int_equal(repodata_finish(r, NULL), 0);
    repodata_close(&r);
    assert_string_equal(buf_cstr(&reported),
                        "at https://far.example/\nb -1 0:00\nc -1 1:22\nd 9 3:11\n");
}

static void test_bounds(void **state)
{
    struct buf b = BUF_INIT(8 << 20);

    (void)state;
    buf_str(&b, "{\"packages\":{\"a\":{\"depends\":");
    for (int i = 0; i < 100000; i++) {
        buf_byte(&b, '[');
    }
    assert_int_equal(read_in(buf_slice(&b), 100), E_TOOBIG);
    buf_clear(&b);
    buf_str(&b, "{\"packages\":{\"");
    for (int i = 0; i < 3 << 20; i++) {
        buf_byte(&b, 'a');
    }
    assert_int_equal(read_in(buf_slice(&b), 1 << 20), E_TOOBIG);
    buf_clear(&b);
    buf_str(&b, "{\"packages\":{\"");
    for (int i = 0; i < 5000; i++) {
        buf_byte(&b, 'a');
    }
    buf_str(&b, "\":{}}}");
    assert_int_equal(read_in(buf_slice(&b), 1 << 20), E_INVALID);
    buf_free(&b);
}

static int setup(void **state)
{
    (void)state;
    reported = BUF_INIT(1 << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    buf_free(&reported);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_channel),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_lenient),
        cmocka_unit_test(test_bounds),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
