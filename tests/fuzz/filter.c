/* filter.c - fuzzes rsync's rules and patterns: rules up to an empty line, then a path.
 * Each ends, and a pattern matches the same text always.
 */
#include "common/codec/filter.h"
#include "common/codec/glob.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void match(struct slice pattern, struct slice path)
{
    bool yes = glob_match(pattern, path);

    CHECK(glob_match(pattern, path) == yes);
    CHECK(!slice_eqs(pattern, "**") || yes);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice rest = slice_of(p, n);
    struct filter f = {0}, own = {0};
    const struct filter_rule *bad;
    struct slice path;

    while (rest.n > 0) {
        struct slice rule = slice_cut(&rest, '\n');
        if (rule.n == 0) {
            break;
        }
        (void)!filter_add(&f, rule, NULL);
        (void)!filter_add_own(&own, rule, NULL);
        match(rule, rest);
        match(slice_from(rule, rule.n < 2 ? rule.n : 2), rest);
    }
    path = slice_first(rest, rest.n < 4095 ? rest.n : 4095);
    if (path.n > 0) {
        (void)filter_takes(&f, path, false);
        (void)filter_takes(&f, path, true);
        (void)filter_takes(&own, path, false);
        (void)filter_takes(&own, path, true);
    }
    (void)!filter_check(&own, &bad, NULL);
    filter_fini(&f);
    filter_fini(&own);
    return 0;
}
