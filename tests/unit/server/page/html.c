/* What pages are written with: nothing from outside becomes markup, or looks like what it is
 * not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/page/html.h"

#define GONE "\xef\xbf\xbd"

static void expect(void (*write)(struct buf *out, struct slice s), struct slice in,
                   const char *wanted)
{
    struct buf out = BUF_INIT(4096);

    write(&out, in);
    assert_string_equal(buf_cstr(&out), wanted);
    buf_free(&out);
}

static void texts(void **state)
{
    (void)state;
    expect(html_text, SLICE("a<b>&\"'"), "a&#60;b&#62;&#38;&#34;&#39;");
    expect(html_text, SLICE("\xc3\xbcn\xc3\xaf \xd0\xb6 \xf0\x9f\xa4\x97"),
           "\xc3\xbcn\xc3\xaf \xd0\xb6 \xf0\x9f\xa4\x97");
    expect(html_text, SLICE("a\x01\x7f\xff"), "a" GONE GONE GONE);
    expect(html_text, SLICE("\xe2\x80\xaegnp"), GONE "gnp"); /* right-to-left override */
    expect(html_text, SLICE("a\xe2\x80\x8b\xef\xbb\xbf"), "a" GONE GONE);
    expect(html_text, SLICE("cut\xe2\x80"), "cut" GONE);
    expect(html_text, SLICE("\xc0\xbcscript"), GONE GONE "script"); /* an overlong '<' */
    expect(html_text, SLICE(""), "");
    expect(html_text, SLICE("a\0b"), "a" GONE "b");
}

static void words(void **state)
{
    (void)state;
    expect(html_shell_word, SLICE("org/name@v1.0-rc_2"), "org/name@v1.0-rc_2");
    expect(html_shell_word, SLICE("a b"), "'a b'");
    expect(html_shell_word, SLICE("$(id);`x`"), "'$(id);`x`'");
    expect(html_shell_word, SLICE("it's"), "'it'\\''s'");
    expect(html_shell_word, SLICE(""), "''");
    expect(html_shell_word, SLICE("\n"), "'\n'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(words)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
