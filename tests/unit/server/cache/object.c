#include "server/cache/object.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static const struct http_field head_fields[] = {
    {SLICE("etag"), SLICE("\"abc\"")},
    {SLICE("last-modified"), SLICE("Sun, 06 Nov 1994 08:49:37 GMT")},
    {SLICE("content-type"), SLICE("text/html")},
    {SLICE("set-cookie"), SLICE("secret=1")},
    {SLICE("connection"), SLICE("close, X-Hop")},
    {SLICE("x-hop"), SLICE("1")},
    {SLICE("x-repo-commit"), SLICE("0123")},
    {SLICE("cache-control"), SLICE("max-age=5")},
    {SLICE("transfer-encoding"), SLICE("chunked")},
};
static const struct origin_head head = {.status = 200,
                                        .fields = head_fields,
                                        .nfields = ARRAY_LEN(head_fields),
                                        .url = SLICE("http://o/x")};

static void keeps_what_describes_the_object(void **state)
{
    struct arena a = {0};
    struct object o = {0};

    (void)state;
    object_learn(&o, &head, &a);
    assert_true(slice_eqs(o.origin_etag, "\"abc\""));
    assert_true(slice_eqs(o.content_type, "text/html"));
    assert_true(slice_eqs(object_field(&o, "x-repo-commit"), "0123"));
    assert_null(object_field(&o, "set-cookie").p);
    assert_null(object_field(&o, "x-hop").p);
    assert_null(object_field(&o, "transfer-encoding").p);
    assert_int_equal(o.nfields, 2);
    arena_fini(&a);
}

static void a_row_comes_back_and_broken_ones_do_not(void **state)
{
    struct arena a = {0};
    struct object o = {0};
    struct object back;
    struct digest d;
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);

    (void)state;
    object_learn(&o, &head, &a);
    digest_of(SLICE("x"), &o.digest);
    o.size_bytes = 77;
    o.stored_unix_s = 5;
    o.must_revalidate = o.must_ask = true;
    o.origin = 99;
    o.etag = SLICE("\"g-1\"");
    object_encode(&o, &row);
    assert_true(object_decode(buf_slice(&row), &a, &back));
    assert_int_equal(back.size_bytes, 77);
    assert_true(back.must_revalidate && back.must_ask);
    assert_int_equal(back.origin, 99);
    assert_true(slice_eqs(back.etag, "\"g-1\""));
    assert_int_equal(back.nfields, o.nfields);
    assert_true(slice_eqs(object_field(&back, "cache-control"), "max-age=5"));
    assert_true(object_row_digest(buf_slice(&row), &d) && digest_eq(&d, &o.digest));
    for (size_t n = 0; n < row.n; n++) {
        assert_false(object_decode(slice_first(buf_slice(&row), n), &a, &back));
    }
    for (size_t i = 34; i < row.n; i++) { /* no single wrong byte leads out of bounds */
        row.p[i] = (char)~row.p[i];
        (void)!object_decode(buf_slice(&row), &a, &back);
        row.p[i] = (char)~row.p[i];
    }
    row.p[1] = 1; /* as it was before origins were noted */
    assert_true(object_decode(slice_first(buf_slice(&row), row.n - 8), &a, &back));
    assert_int_equal(back.origin, 0);
    buf_free(&row);
    arena_fini(&a);
}

static void a_304_renews_but_does_not_redescribe(void **state)
{
    static const struct http_field fields[] = {
        {SLICE("cache-control"), SLICE("max-age=9")},
        {SLICE("content-length"), SLICE("0")},
        {SLICE("content-type"), SLICE("text/plain")},
        {SLICE("set-cookie"), SLICE("a=b")},
    };
    const struct origin_head h = {.status = 304, .fields = fields, .nfields = ARRAY_LEN(fields)};
    static const struct http_field type[] = {
        {SLICE("content-type"), SLICE("Text/HTML; charset=utf-8")},
    };
    const struct origin_head same_type = {.status = 304, .fields = type, .nfields = 1};
    static const struct http_field bare[] = {{SLICE("content-type"), SLICE("text/html;")}};
    const struct origin_head no_charset = {.status = 304, .fields = bare, .nfields = 1};
    struct arena a = {0};
    struct object o = {0};

    (void)state;
    object_learn(&o, &head, &a);
    object_renew(&o, &h, &a);
    assert_true(slice_eqs(object_field(&o, "cache-control"), "max-age=9"));
    assert_true(slice_eqs(o.content_type, "text/html"));
    object_renew(&o, &same_type, &a);
    assert_true(slice_eqs(o.content_type, "Text/HTML; charset=utf-8"));
    object_renew(&o, &no_charset, &a);
    assert_true(slice_eqs(o.content_type, "Text/HTML; charset=utf-8"));
    assert_true(slice_eqs(o.last_modified, "Sun, 06 Nov 1994 08:49:37 GMT"));
    assert_null(object_field(&o, "set-cookie").p);
    arena_fini(&a);
}

static void a_304_replaces_whole_fields(void **state)
{
    static const struct http_field first[] = {
        {SLICE("date"), SLICE("Sun, 06 Nov 1994 08:49:37 GMT")},
        {SLICE("x-list"), SLICE("a")},
        {SLICE("x-kept"), SLICE("k")},
        {SLICE("x-list"), SLICE("b")},
    };
    static const struct http_field second[] = {
        {SLICE("x-list"), SLICE("c")},
        {SLICE("x-new"), SLICE("n")},
        {SLICE("content-encoding"), SLICE("gzip")},
    };
    const struct origin_head h = {.status = 200, .fields = first, .nfields = ARRAY_LEN(first)};
    const struct origin_head r = {.status = 304, .fields = second, .nfields = ARRAY_LEN(second)};
    struct arena a = {0};
    struct object o = {0};

    (void)state;
    object_learn(&o, &h, &a);
    assert_true(slice_eqs(object_field(&o, "date"), "Sun, 06 Nov 1994 08:49:37 GMT"));
    object_renew(&o, &r, &a);
    assert_int_equal(o.nfields, 3);
    assert_true(slice_eqs(object_field(&o, "x-list"), "c"));
    assert_true(slice_eqs(object_field(&o, "x-kept"), "k"));
    assert_true(slice_eqs(object_field(&o, "x-new"), "n"));
    arena_fini(&a);
}

static void strong_tags_are_reported_from_weak(void **state)
{
    (void)state;
    assert_true(etag_is_strong(SLICE("\"a\"")));
    assert_true(etag_is_strong(SLICE("\"\"")));
    assert_false(etag_is_strong(SLICE("W/\"a\"")));
    assert_false(etag_is_strong(SLICE("a")));
    assert_false(etag_is_strong(SLICE("\"")));
    assert_false(etag_is_strong(SLICE("\"a\"b\"")));
    assert_false(etag_is_strong(SLICE("\"a b\"")));
    assert_false(etag_is_strong(SLICE_NONE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_what_describes_the_object),
        cmocka_unit_test(a_row_comes_back_and_broken_ones_do_not),
        cmocka_unit_test(a_304_renews_but_does_not_redescribe),
        cmocka_unit_test(a_304_replaces_whole_fields),
        cmocka_unit_test(strong_tags_are_reported_from_weak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
