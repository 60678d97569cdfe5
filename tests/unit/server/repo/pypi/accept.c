#include "server/repo/pypi/accept.h"

#include "tests/harness/ask.h"

#define V1J "application/vnd.pypi.simple.v1+json"
#define V1H "application/vnd.pypi.simple.v1+html"

static void the_table(void **state)
{
    static const struct {
        const char *accept;
        enum page_format lookup;
    } row[] = {
        {NULL, PAGE_TEXT},
        {"", PAGE_TEXT},
        {"*/*", PAGE_TEXT},
        {"text/*", PAGE_TEXT},
        {"text/html", PAGE_TEXT},
        {V1J, PAGE_JSON},
        {V1H, PAGE_HTML},
        {"application/vnd.pypi.simple.latest+json", PAGE_JSON},
        {"application/vnd.pypi.simple.latest+html", PAGE_HTML},
        /* pip, with its blanks */
        {V1J ", " V1H "; q=0.1, text/html; q=0.01", PAGE_JSON},
        /* uv */
        {V1J ", " V1H ";q=0.2, text/html;q=0.01", PAGE_JSON},
        /* a browser */
        {"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", PAGE_TEXT},
        {"TEXT/HTML", PAGE_TEXT},
        {V1J ";q=0.1, text/html", PAGE_TEXT},
        {V1H ", text/html;q=0.9", PAGE_HTML},
        {V1J ", */*;q=0.5", PAGE_JSON},
        {V1J ";q=0.5, */*", PAGE_TEXT},
        {V1J ";q=0, */*", PAGE_TEXT},
        {"text/html;q=0, */*;q=0.1", PAGE_NONE},
        {"text/html;q=0.000", PAGE_NONE},
        {V1H ";Q=0.3;x=y, " V1J ";q=0.30", PAGE_JSON},
        {V1J ";q=nonsense, text/html;q=0.9", PAGE_JSON},
        {"application/json", PAGE_NONE},
        {"image/png", PAGE_NONE},
        {"application/vnd.pypi.simple.v2+json", PAGE_NONE},
        {"application/vnd.pypi.simple.v2+json, text/html;q=0.1", PAGE_TEXT},
        {", ,;,", PAGE_NONE},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        if (page_format_of(slice_str(row[i].accept), SLICE_NONE) != row[i].lookup) {
            fail_msg("Accept: %s", row[i].accept != NULL ? row[i].accept : "(none)");
        }
    }
}

static void format_in_the_query(void **state)
{
    (void)state;
    assert_int_equal(page_format_of(SLICE("text/html"), SLICE("a=b&format=" V1J)), PAGE_JSON);
    assert_int_equal(
        page_format_of(SLICE_NONE, SLICE("format=application%2Fvnd.pypi.simple.v1%2Bhtml")),
        PAGE_HTML);
    assert_int_equal(page_format_of(SLICE(V1J), SLICE("format=text/html&x")), PAGE_TEXT);
    assert_int_equal(page_format_of(SLICE(V1J), SLICE("format=application/pdf")), PAGE_NONE);
    assert_int_equal(page_format_of(SLICE(V1J), SLICE("format=%zz")), PAGE_NONE);
    assert_int_equal(page_format_of(SLICE(V1J), SLICE("formatted=x")), PAGE_JSON);
}

static void names_lead_back(void **state)
{
    (void)state;
    for (enum page_format f = PAGE_JSON; f <= PAGE_TEXT; f++) {
        assert_int_equal(page_format_named(page_format_name(f)), f);
    }
    assert_int_equal(page_format_named(SLICE("x")), PAGE_NONE);
    assert_slice(page_format_type(PAGE_TEXT), "text/html");
}

TESTS(cmocka_unit_test(the_table), cmocka_unit_test(format_in_the_query),
      cmocka_unit_test(names_lead_back))
