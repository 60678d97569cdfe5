/* range.c - fuzzes Range, If-Range and the conditionals: windows lie inside of what there is, and
 * peeks agree. */
#include "server/http/range.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check_window(const struct http_req *r, const struct validators *v)
{
    uint64_t first;
    uint64_t end;
    uint64_t peek_first;
    uint64_t peek_end;
    bool suffix;
    enum range_answer verdict = request_judge(r, v, &first, &end);

    CHECK(first <= end && end <= v->total_bytes);
    CHECK(verdict != RANGE_ANSWER_PART || first < end);
    CHECK(verdict == RANGE_ANSWER_PART || (first == 0 && end == v->total_bytes));
    if (range_peek(r, &peek_first, &peek_end, &suffix) && verdict == RANGE_ANSWER_PART) {
        CHECK(suffix ? end == v->total_bytes
                     : peek_first == first && (peek_end == end || peek_end > v->total_bytes));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const char *const names[] = {"range", "if-range", "if-none-match", "if-match",
                                        "if-modified-since"};
    const struct validators v = {.etag = SLICE("\"a\""),
                                 .etag_alias = SLICE("W/\"b\""),
                                 .last_modified_s = 784111777,
                                 .total_bytes = n % 7 == 0 ? LENGTH_UNKNOWN : n * 37};
    struct arena arena = {NULL, 0};
    struct http_field fields[ARRAY_LEN(names)];
    struct http_req r = {.method = METHOD_GET, .fields = fields, .arena = &arena};
    struct slice rest = slice_of(p, n);

    while (rest.n > 0 && r.nfields < ARRAY_LEN(names)) {
        fields[r.nfields].name = slice_str(names[r.nfields]);
        fields[r.nfields].value = slice_cut(&rest, '\n');
        r.nfields++;
        check_window(&r, &v);
    }
    arena_fini(&arena);
    return 0;
}
