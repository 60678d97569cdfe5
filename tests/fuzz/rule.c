/* rule.c - fuzzes rules: a pattern (up to the first newline) compiled and matched against a path,
 * within the match limit. */
#include "server/repo/rule.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice path = slice_of(p, n);
    struct slice pattern = slice_cut(&path, '\n');
    struct rule_conf conf = {.class = "immutable",
                             .digest_from = "path",
                             .ttl_s = -1,
                             .neg_ttl_s = -1,
                             .swr_s = -1,
                             .sie_s = -1};
    struct rules *rs = NULL;
    struct lookup w = {0};
    char text[256];

    if (pattern.n >= sizeof text || path.n > 4096) {
        return 0;
    }
    memcpy(text, pattern.p, pattern.n);
    text[pattern.n] = '\0';
    conf.pattern = text;
    if (rules_compile(&conf, 1, &rs, NULL) == 0) {
        const struct rule *r = rules_match(rs, path);
        CHECK(r != NULL);
        rule_apply(r, path, &w);
    }
    rules_free(&rs);
    return 0;
}
