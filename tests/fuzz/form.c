/* form.c - fuzzes form_next(), form_value() and form_find(): they end, stay within their bound, and
 * what was encoded comes back. */
#include "common/codec/form.h"

#include "common/codec/url.h"

enum { MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice text = slice_of(p, n), rest = text, name, value;
    struct arena a = {0};
    size_t fields = 0;

    while (form_next(&rest, &name, &value)) {
        struct slice plain = form_value(value, MAX, &a);
        CHECK(plain.p == NULL || plain.n <= MAX);
        CHECK(++fields <= n);
    }
    rest = text;
    while ((value = form_find(&rest, "p", MAX, &a)).p != NULL) {
        CHECK(value.n <= MAX && fields-- != 0);
    }
    if (n <= MAX) {
        CHECK(slice_eq(form_value(url_encoded(text, &a), MAX, &a), text));
    }
    arena_fini(&a);
    return 0;
}
