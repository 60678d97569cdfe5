#include "server/request/disposition.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void what_is_saved(void **state)
{
    static const struct {
        const char *type, *said;
        bool page;
        const char *lookup; /* NULL: none */
    } cases[] = {
        {"application/octet-stream", NULL, false, NULL},
        {"application/gzip", "inline; filename=x", false, "inline; filename=x"},
        {"text/plain; charset=utf-8", NULL, false, NULL},
        {"image/png", NULL, false, NULL},
        {"application/json", "attachment", false, "attachment"},
        {"text/html", NULL, false, "attachment"},
        {"Text/HTML; charset=utf-8", "inline; filename=\"x.html\"", false,
         "attachment; filename=\"x.html\""},
        {"text/html;charset=utf-8", NULL, true, NULL},
        {"application/xhtml+xml", NULL, true, NULL},
        {"image/svg+xml", NULL, true, "attachment"},
        {"image/svg+xml ; x=y", "inline", false, "attachment"},
        {"text/xml", NULL, false, "attachment"},
        {"application/rss+XML", NULL, false, "attachment"},
        {"application/pdf", "inline; filename=x.pdf", false, "attachment; filename=x.pdf"},
        {"multipart/related; boundary=x", NULL, true, "attachment"},
        {"message/rfc822", NULL, false, "attachment"},
        {"text/plain, text/html", NULL, true, "attachment"},
        {"", NULL, false, NULL},
    };
    struct arena a = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct slice said = cases[i].said != NULL ? slice_str(cases[i].said) : SLICE_NONE;
        struct slice got = disposition_of(slice_str(cases[i].type), said, cases[i].page, &a);
        struct slice lookup = cases[i].lookup != NULL ? slice_str(cases[i].lookup) : SLICE_NONE;
        if (!slice_eq(got, lookup) || (got.p == NULL) != (lookup.p == NULL)) {
            fail_msg("%s: " SLICE_FMT, cases[i].type, SLICE_ARG(got));
        }
    }
    assert_null(disposition_of(SLICE_NONE, SLICE_NONE, false, &a).p);
    arena_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_saved)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
