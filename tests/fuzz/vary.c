/* vary.c - fuzzes what variants are told by: a value made comparable stays so, and a tail suits
 * those that it was made for.
 *
 * Input: lines, in turn an answer's Vary and values of the request.
 */
#include "server/cache/variant.h"
#include "server/repo/forward.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void suits_whom_it_was_made_for(const struct lookup *w, const struct http_field *vary,
                                       struct arena *a)
{
    struct slice vary_key = variant_of_answer(w, vary, 1, a);

    CHECK(vary_matches(vary_key, w) && vary_matches(variant_of_all(w, vary, 1, a), w));
    CHECK(slice_eq(variant_like(w, vary_key, a), vary_key) && variant_alike(vary_key, vary_key));
}

static bool may_stand(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '\0' || s.p[i] == '\r') {
            return false;
        }
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const char *const names[] = {"accept", "accept-language", "origin", "x-kind"};
    struct lookup_field f[ARRAY_LEN(names)] = {0};
    struct lookup w = {.forward = f, .forwards = ARRAY_LEN(names)};
    struct slice rest = slice_of(p, n);
    struct http_field vary = {SLICE("vary"), slice_cut(&rest, '\n')};
    struct arena a = {0};

    if (n > VARIANT_VALUES || !may_stand(slice_of(p, n))) {
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct slice value = slice_trim(slice_cut(&rest, '\n'));
        f[i].name = slice_str(names[i]);
        f[i].same = forward_same(f[i].name, value, &a);
        f[i].value = f[i].same.p != NULL ? value : SLICE_NONE;
        CHECK(f[i].same.n <= value.n);
        if (f[i].same.p != NULL) {
            CHECK(slice_eq(forward_same(f[i].name, f[i].same, &a), f[i].same));
        }
    }
    suits_whom_it_was_made_for(&w, &vary, &a);
    w.varies = true; /* all that Vary names, too */
    suits_whom_it_was_made_for(&w, &vary, &a);
    (void)vary_matches(slice_of(p, n), &w);
    (void)variant_alike(slice_of(p, n), slice_of(p, n));
    arena_fini(&a);
    return 0;
}
