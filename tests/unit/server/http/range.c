#include "server/http/range.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const struct validators have = {.etag = {"\"g-1\"", 5},
                                       .etag_alias = {"\"sha256-ab\"", 11},
                                       .last_modified_s =
                                           784111777, /* Sun, 06 Nov 1994 08:49:37 GMT */
                                       .total_bytes = 1000};

struct ask {
    struct arena arena;
    struct http_field fields[4];
    struct http_req req;
};

static struct http_req *ask(struct ask *a, enum method method, const char *n1, const char *v1,
                            const char *n2, const char *v2)
{
    a->arena = (struct arena){NULL, 0};
    a->fields[0] = (struct http_field){slice_str(n1), slice_str(v1)};
    a->fields[1] = (struct http_field){slice_str(n2), slice_str(v2)};
    a->req = (struct http_req){.method = method,
                               .fields = a->fields,
                               .nfields = (n1 != NULL) + (n2 != NULL),
                               .unix_s = 1800000000,
                               .arena = &a->arena};
    return &a->req;
}

static void ranges(void **state)
{
    static const struct {
        const char *range;
        enum range_answer verdict;
        uint64_t first, end;
    } cases[] = {
        {"bytes=0-0", RANGE_ANSWER_PART, 0, 1},
        {"bytes=0-", RANGE_ANSWER_PART, 0, 1000},
        {"bytes=999-", RANGE_ANSWER_PART, 999, 1000},
        {"bytes=500-99999", RANGE_ANSWER_PART, 500, 1000},
        {"bytes=0-18446744073709551615", RANGE_ANSWER_PART, 0, 1000},
        {"bytes=-1", RANGE_ANSWER_PART, 999, 1000},
        {"bytes=-5000", RANGE_ANSWER_PART, 0, 1000},
        {"BYTES=1-2", RANGE_ANSWER_PART, 1, 3},
        {"bytes= 1-2 ,", RANGE_ANSWER_PART, 1, 3},
        {"bytes=0-9,10-19", RANGE_ANSWER_PART, 0, 20},
        {"bytes=10-19,0-9", RANGE_ANSWER_PART, 0, 20},
        {"bytes=0-4,90-99,5-89", RANGE_ANSWER_PART, 0, 100},
        {"bytes=0-50,20-30", RANGE_ANSWER_PART, 0, 51},
        {"bytes=5-6,2000-", RANGE_ANSWER_PART, 5, 7},
        {"bytes=0-1,5-6", RANGE_ANSWER_FULL, 0, 1000},
        {"bytes=1000-", RANGE_ANSWER_UNSATISFIED, 0, 1000},
        {"bytes=-0", RANGE_ANSWER_UNSATISFIED, 0, 1000},
        {"bytes=5-4", RANGE_ANSWER_FULL, 0, 1000},
        {"bytes=", RANGE_ANSWER_FULL, 0, 1000},
        {"bytes=-", RANGE_ANSWER_FULL, 0, 1000},
        {"bytes=a-b", RANGE_ANSWER_FULL, 0, 1000},
        {"bytes=1-2-3", RANGE_ANSWER_FULL, 0, 1000},
        {"bytes=+1-2", RANGE_ANSWER_FULL, 0, 1000},
        {"bytes=18446744073709551616-", RANGE_ANSWER_FULL, 0, 1000},
        {"bytes 0-1", RANGE_ANSWER_FULL, 0, 1000},
        {"items=0-1", RANGE_ANSWER_FULL, 0, 1000},
    };
    struct ask a;
    uint64_t first;
    uint64_t end;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        enum range_answer v = request_judge(
            ask(&a, METHOD_GET, "range", cases[i].range, NULL, NULL), &have, &first, &end);
        if (v != cases[i].verdict || first != cases[i].first || end != cases[i].end) {
            fail_msg("%s: %d [%d, %d)", cases[i].range, (int)v, (int)first, (int)end);
        }
    }
    assert_int_equal(
        request_judge(ask(&a, METHOD_HEAD, "range", "bytes=0-0", NULL, NULL), &have, &first, &end),
        RANGE_ANSWER_FULL);
    assert_int_equal(request_judge(ask(&a, METHOD_GET, "range", "bytes=0-0", "range", "bytes=0-0"),
                                   &have, &first, &end),
                     RANGE_ANSWER_FULL);
}

static void conditions(void **state)
{
    static const struct {
        enum method method;
        const char *name, *value;
        enum range_answer verdict;
    } cases[] = {
        {METHOD_GET, "if-match", "\"g-1\"", RANGE_ANSWER_FULL},
        {METHOD_GET, "if-match", "\"x\", \"sha256-ab\"", RANGE_ANSWER_FULL},
        {METHOD_GET, "if-match", "*", RANGE_ANSWER_FULL},
        {METHOD_GET, "if-match", "W/\"g-1\"", RANGE_ANSWER_FAILED},
        {METHOD_GET, "if-match", "\"x\"", RANGE_ANSWER_FAILED},
        {METHOD_GET, "if-match", "g-1", RANGE_ANSWER_FAILED},
        {METHOD_GET, "if-none-match", "W/\"g-1\"", RANGE_ANSWER_NOT_MODIFIED},
        {METHOD_GET, "if-none-match", "\"a,b\",\"g-1\"", RANGE_ANSWER_NOT_MODIFIED},
        {METHOD_HEAD, "if-none-match", "*", RANGE_ANSWER_NOT_MODIFIED},
        {METHOD_PUT, "if-none-match", "*", RANGE_ANSWER_FAILED},
        {METHOD_GET, "if-none-match", "\"x\"", RANGE_ANSWER_FULL},
        {METHOD_GET, "if-none-match", "\"g-1", RANGE_ANSWER_FULL},
        {METHOD_GET, "if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT",
         RANGE_ANSWER_NOT_MODIFIED},
        {METHOD_GET, "if-modified-since", "Sun, 06 Nov 1994 08:49:36 GMT", RANGE_ANSWER_FULL},
        {METHOD_GET, "if-modified-since", "yesterday", RANGE_ANSWER_FULL},
        {METHOD_GET, "if-unmodified-since", "Sun, 06 Nov 1994 08:49:36 GMT", RANGE_ANSWER_FAILED},
        {METHOD_GET, "if-unmodified-since", "Sun, 06 Nov 1994 08:49:37 GMT", RANGE_ANSWER_FULL},
    };
    struct ask a;
    uint64_t first;
    uint64_t end;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_req *r = ask(&a, cases[i].method, cases[i].name, cases[i].value, NULL, NULL);
        if (request_judge(r, &have, &first, &end) != cases[i].verdict) {
            fail_msg("%s: %s", cases[i].name, cases[i].value);
        }
    }
    /* If-None-Match goes before If-Modified-Since, whatever that says. */
    assert_int_equal(request_judge(ask(&a, METHOD_GET, "if-none-match", "\"x\"",
                                       "if-modified-since", "Sun, 06 Nov 2033 08:49:37 GMT"),
                                   &have, &first, &end),
                     RANGE_ANSWER_FULL);
}

/* Of a tree that may be rolled back, and where two commits may share a second. */
static void dates_of_trees(void **state)
{
    static const char later[] = "Sun, 06 Nov 1994 08:49:38 GMT";
    static const char same[] = "Sun, 06 Nov 1994 08:49:37 GMT";
    struct validators v = have;
    struct ask a;
    uint64_t first, end;

    (void)state;
    assert_int_equal(request_judge(ask(&a, METHOD_GET, "if-modified-since", later, NULL, NULL), &v,
                                   &first, &end),
                     RANGE_ANSWER_NOT_MODIFIED);
    v.may_go_back = true;
    assert_int_equal(request_judge(ask(&a, METHOD_GET, "if-modified-since", later, NULL, NULL), &v,
                                   &first, &end),
                     RANGE_ANSWER_FULL);
    assert_int_equal(
        request_judge(ask(&a, METHOD_GET, "if-modified-since", same, NULL, NULL), &v, &first, &end),
        RANGE_ANSWER_NOT_MODIFIED);
    assert_int_equal(request_judge(ask(&a, METHOD_GET, "range", "bytes=1-2", "if-range", same), &v,
                                   &first, &end),
                     RANGE_ANSWER_PART);
    v.is_commit_time = true;
    assert_int_equal(request_judge(ask(&a, METHOD_GET, "range", "bytes=1-2", "if-range", same), &v,
                                   &first, &end),
                     RANGE_ANSWER_FULL);
}

static void if_range(void **state)
{
    static const struct {
        const char *value;
        enum range_answer verdict;
    } cases[] = {
        {"\"g-1\"", RANGE_ANSWER_PART},
        {"\"sha256-ab\"", RANGE_ANSWER_PART},
        {"W/\"g-1\"", RANGE_ANSWER_FULL},
        {"\"x\"", RANGE_ANSWER_FULL},
        {"nonsense", RANGE_ANSWER_FULL},
        {"Sun, 06 Nov 1994 08:49:37 GMT", RANGE_ANSWER_PART},
        {"Sun, 06 Nov 1994 08:49:38 GMT", RANGE_ANSWER_FULL},
    };
    struct ask a;
    uint64_t first;
    uint64_t end;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_req *r = ask(&a, METHOD_GET, "range", "bytes=1-2", "if-range", cases[i].value);
        if (request_judge(r, &have, &first, &end) != cases[i].verdict) {
            fail_msg("%s", cases[i].value);
        }
    }
}

static void peeks(void **state)
{
    struct ask a;
    uint64_t first;
    uint64_t end;
    bool suffix;

    (void)state;
    assert_true(
        range_peek(ask(&a, METHOD_GET, "range", "bytes=5-9", NULL, NULL), &first, &end, &suffix));
    assert_true(first == 5 && end == 10 && !suffix);
    assert_true(
        range_peek(ask(&a, METHOD_GET, "range", "bytes=5-", NULL, NULL), &first, &end, &suffix));
    assert_true(first == 5 && end == LENGTH_UNKNOWN && !suffix);
    assert_true(
        range_peek(ask(&a, METHOD_GET, "range", "bytes=-5", NULL, NULL), &first, &end, &suffix));
    assert_true(first == 5 && suffix);
    assert_false(range_peek(ask(&a, METHOD_GET, "range", "bytes=0-1,2-3", NULL, NULL), &first, &end,
                            &suffix));
    assert_false(range_peek(ask(&a, METHOD_GET, NULL, NULL, NULL, NULL), &first, &end, &suffix));
}

/* Who plans by a hint adds to it. */
static void peeks_at_no_far_side(void **state)
{
    static const char *const far[] = {"bytes=9223372036854775808-", "bytes=18446744073709500000-",
                                      "bytes=18446744073709551614-18446744073709551615"};
    static const char *const open[] = {"bytes=0-9223372036854775807",
                                       "bytes=0-18446744073709551600",
                                       "bytes=0-18446744073709551615"};
    struct ask a;
    uint64_t first;
    uint64_t end;
    bool suffix;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(far); i++) {
        assert_false(
            range_peek(ask(&a, METHOD_GET, "range", far[i], NULL, NULL), &first, &end, &suffix));
    }
    for (size_t i = 0; i < ARRAY_LEN(open); i++) {
        assert_true(
            range_peek(ask(&a, METHOD_GET, "range", open[i], NULL, NULL), &first, &end, &suffix));
        assert_true(first == 0 && end == LENGTH_UNKNOWN && !suffix);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),         cmocka_unit_test(conditions),
        cmocka_unit_test(dates_of_trees), cmocka_unit_test(if_range),
        cmocka_unit_test(peeks),          cmocka_unit_test(peeks_at_no_far_side)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
