#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/buf.h"
#include "server/sync/http/index.h"

static struct buf reported;

static int tell(void *arg, const struct index_item *it)
{
    (void)arg;
    buf_addf(&reported, SLICE_FMT "%s %lld/%lld %lld/%u\n", SLICE_ARG(it->name),
             it->folder ? "/" : "", (long long)it->size_bytes, (long long)it->size_step,
             it->mtime_s == INT64_MIN ? -1LL : (long long)it->mtime_s, it->mtime_step_s);
    return 0;
}

static void expect(const char *page, const char *wanted, uint64_t left_out)
{
    struct index_events ev = {.on_item = tell};
    struct err e = {0};

    reported = BUF_INIT(1 << 20);
    assert_int_equal(index_read(INDEX_HTML, slice_str(page), SLICE("http://h/pub/a%20b/"), &ev, &e),
                     0);
    assert_string_equal(buf_cstr(&reported), wanted);
    assert_int_equal(ev.left_out, left_out);
    buf_free(&reported);
}

static void test_servers(void **state)
{
    (void)state;
    expect(
        "<pre><a href=\"../\">../</a>\n"
        "<a href=\"sub/\">sub/</a>     22-Nov-2026 12:21       -\n"
        "<a href=\"x%20y.deb\">a very long name..&gt;</a>  22-Nov-2026 12:21     1234567\n</pre>",
        "sub/ -1/0 1795350060/60\nx y.deb 1234567/0 1795350060/60\n", 0);
    expect("<tr><td><a href=\"?C=N;O=D\">Name</a></td></tr>"
           "<tr><td><a href=\"/pub/\">Parent</a></td></tr>"
           "<tr><td><img alt='[ ]'></td><td><a href=\"f.iso\">f.iso</a></td>"
           "<td align=\"right\">2026-11-22 12:21  </td>"
           "<td align=\"right\">1.2G</td></tr>",
           "f.iso 1288490188/107374182 1795350060/60\n", 0);
    expect("<td class=\"n\"><a href=\"f\">f</a></td><td class=\"m\">2026-Nov-22 12:21:05</td>"
           "<td class=\"s\">12K</td>",
           "f 12288/1024 1795350065/1\n", 0);
    expect("<li><a href=f.txt>f.txt</a></li><li><a href='g/'>g/</a></li>",
           "f.txt -1/0 -1/0\ng/ -1/0 -1/0\n", 0);
    expect("<a href=\"http://h/pub/a%20b/x\">x</a><a href=\"/pub/a%20b/y\">y</a>",
           "x -1/0 -1/0\ny -1/0 -1/0\n", 0);
}

/* Nothing that leads up, aside or deeper is an entry here. */
static void test_links_that_are_none(void **state)
{
    (void)state;
    expect("<a href=\"../../etc/passwd\">x</a><a href=\"/\">x</a><a href=\"//other/x\">x</a>"
           "<a href=\"https://h/pub/a%20b/x\">x</a>"
           "<a href=\"#top\">x</a><a href=\"./\">x</a><a href=\"\">x</a><a href>x</a><a>x</a>"
           "<a href=\"mailto:x\">x</a><a href=\"javascript:x\">x</a><a href=\"x?y=z\">x</a>",
           "", 0);
    expect("<a href=\"%2e%2e/\">x</a><a href=\"%2e%2e%2fx\">x</a><a href=\"a%2fb\">x</a>"
           "<a href=\"a%00b\">x</a><a href=\"a/b\">x</a><a href=\"%2e\">x</a>",
           "", 6);
    expect("<!-- <a href=\"c\">c</a> --><script>'<a href=\"s\">'</script>"
           "<style><a href=y></style><b href=\"b\">b</b><abbr href=q>",
           "", 0);
    expect("<!-- <a href=\"c\">", "", 0);
    expect("<a href=\"x", "", 0);
    expect("<a href=\"x\"", "", 0);
    expect("<", "", 0);
}

static void expect_tail(const char *tail, const char *wanted)
{
    struct buf page = BUF_INIT(1 << 10);

    buf_addf(&page, "<a href=\"f\">f</a>%s", tail);
    expect(buf_cstr(&page), wanted, 0);
    buf_free(&page);
}

static void test_tails(void **state)
{
    (void)state;
    expect_tail("  31-Dec-1969 23:59  99999999999999999999999", "f -1/0 -60/60\n");
    expect_tail("v2026-11-22 12:21 5", "f -1/0 -1/0\n"); /* inside a word */
    expect_tail("2026-13-22 12:21 5", "f -1/0 -1/0\n");
    expect_tail("2026-11-22T12:21:05Z", "f -1/0 1795350065/1\n");
    expect_tail("2026-11-22 12:21 18446744073709551615T", "f -1/0 1795350060/60\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_servers),
        cmocka_unit_test(test_links_that_are_none),
        cmocka_unit_test(test_tails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
