#include "server/http/range.h"

#include "common/codec/httpdate.h"

enum { RANGES_MAX = 64 }; /* more is an attack or nonsense: the whole instead (RFC 9110 14.2) */
/* No file has a byte behind this one. Whoever reads ahead of a hint adds to it: sums must stay
 * below 2^64. */
#define POSITION_MAX ((uint64_t)INT64_MAX)

/* --- entity tags (RFC 9110 8.8.3) ------------------------------------------------------------- */

static struct slice opaque(struct slice tag)
{
    return slice_starts(tag, SLICE("W/")) ? slice_from(tag, 2) : tag;
}

static bool same_tag(struct slice a, struct slice b, bool strong)
{
    if (strong && (slice_starts(a, SLICE("W/")) || slice_starts(b, SLICE("W/")))) {
        return false;
    }
    return a.n != 0 && slice_eq(opaque(a), opaque(b));
}

static bool etag_matches(struct slice tag, const struct validators *v, bool strong)
{
    return same_tag(tag, v->etag, strong) || same_tag(tag, v->etag_alias, strong) ||
           (!strong && same_tag(tag, v->etag_weak, false));
}

/* The next of a list of tags. Commas may stand inside of one, so cutting at commas would not do. */
static bool next_tag(struct slice *list, struct slice *tag)
{
    ptrdiff_t close;
    size_t open;

    while (list->n > 0 && (list->p[0] == ',' || list->p[0] == ' ' || list->p[0] == '\t')) {
        *list = slice_from(*list, 1);
    }
    open = slice_starts(*list, SLICE("W/")) ? 2 : 0;
    if (list->n <= open || list->p[open] != '"') {
        return false;
    }
    close = slice_find(slice_from(*list, open + 1), '"');
    if (close < 0) {
        return false;
    }
    *tag = slice_first(*list, open + (size_t)close + 2);
    *list = slice_from(*list, tag->n);
    return true;
}

static bool list_names_ours(struct slice list, const struct validators *v, bool strong)
{
    struct slice tag;

    if (slice_eqs(slice_trim(list), "*")) {
        return true; /* there is a representation: this one */
    }
    while (next_tag(&list, &tag)) {
        if (etag_matches(tag, v, strong)) {
            return true;
        }
    }
    return false;
}

/* --- preconditions, in the order of RFC 9110 13.2.2 ------------------------------------------- */

static bool parse_date(const struct http_req *r, struct slice date, const struct validators *v,
                       uint64_t *out)
{
    return v->last_modified_s != 0 && httpdate_parse(date, r->unix_s, out);
}

static bool is_unmodified_since(const struct http_req *r, struct slice date,
                                const struct validators *v)
{
    uint64_t since;

    return !parse_date(r, date, v, &since) || v->last_modified_s <= since;
}

static bool is_not_modified_since(const struct http_req *r, struct slice date,
                                  const struct validators *v)
{
    uint64_t since;

    return parse_date(r, date, v, &since) &&
           (v->last_modified_s == since || (v->last_modified_s < since && !v->may_go_back));
}

static enum range_answer judge_preconditions(const struct http_req *r, const struct validators *v)
{
    bool reads = r->method == METHOD_GET || r->method == METHOD_HEAD;
    struct slice match = http_req_list(r, "if-match");
    struct slice none = http_req_list(r, "if-none-match");
    struct slice date;

    if (match.p != NULL) {
        if (!list_names_ours(match, v, true)) {
            return RANGE_ANSWER_FAILED;
        }
    } else if ((date = http_req_field(r, "if-unmodified-since")).p != NULL &&
               !is_unmodified_since(r, date, v)) {
        return RANGE_ANSWER_FAILED;
    }
    if (none.p != NULL) {
        if (list_names_ours(none, v, false)) {
            return reads ? RANGE_ANSWER_NOT_MODIFIED : RANGE_ANSWER_FAILED;
        }
    } else if (reads && (date = http_req_field(r, "if-modified-since")).p != NULL &&
               is_not_modified_since(r, date, v)) {
        return RANGE_ANSWER_NOT_MODIFIED;
    }
    return RANGE_ANSWER_FULL;
}

/* --- ranges (RFC 9110 14) --------------------------------------------------------------------- */

struct span {
    uint64_t first, end;
};

enum spec { SPEC_BAD, SPEC_FROM_TO, SPEC_FROM, SPEC_SUFFIX };

static enum spec parse_spec(struct slice spec, uint64_t *a, uint64_t *b)
{
    ptrdiff_t dash = slice_find(spec, '-');
    struct slice last;

    if (dash < 0) {
        return SPEC_BAD;
    }
    last = slice_from(spec, (size_t)dash + 1);
    if (dash == 0) {
        return slice_u64(last, a) ? SPEC_SUFFIX : SPEC_BAD;
    }
    if (!slice_u64(slice_first(spec, (size_t)dash), a)) {
        return SPEC_BAD;
    }
    if (last.n == 0) {
        return SPEC_FROM;
    }
    return slice_u64(last, b) && *a <= *b ? SPEC_FROM_TO : SPEC_BAD;
}

static bool range_set(const struct http_req *r, struct slice *set)
{
    struct slice value = http_req_field(r, "range");
    size_t fields = 0;

    for (size_t i = 0; i < r->nfields; i++) {
        fields += slice_eqs(r->fields[i].name, "range");
    }
    if (fields != 1 || value.n < 6 || !slice_ieq(slice_first(value, 6), SLICE("bytes="))) {
        return false; /* other units are ignored */
    }
    *set = slice_from(value, 6);
    return true;
}

/* Adds to the spans, joined with those that it touches; they stay disjoint. */
static size_t add_span(struct span *spans, size_t n, struct span s)
{
    for (size_t i = 0; i < n;) {
        if (s.first <= spans[i].end && spans[i].first <= s.end) {
            s.first = min_u64(s.first, spans[i].first);
            s.end = max_u64(s.end, spans[i].end);
            spans[i] = spans[--n];
            i = 0;
        } else {
            i++;
        }
    }
    spans[n] = s;
    return n + 1;
}

static enum range_answer judge_ranges(struct slice set, uint64_t total, uint64_t *first,
                                      uint64_t *end)
{
    struct span spans[RANGES_MAX];
    size_t n = 0;
    size_t specs = 0;

    while (set.n > 0) {
        struct slice spec = slice_trim(slice_cut(&set, ','));
        struct span s = {0, total};
        uint64_t a = 0;
        uint64_t b = 0;
        if (spec.n == 0) {
            continue; /* empty list elements are legal */
        }
        if (++specs > RANGES_MAX) {
            return RANGE_ANSWER_FULL;
        }
        switch (parse_spec(spec, &a, &b)) {
        case SPEC_BAD:
            return RANGE_ANSWER_FULL; /* an invalid field is ignored as a whole */
        case SPEC_FROM_TO:
            s = (struct span){a, b < total ? b + 1 : total};
            break;
        case SPEC_FROM:
            s.first = a;
            break;
        case SPEC_SUFFIX:
            s.first = a < total ? total - a : 0;
            break;
        }
        if (s.first < s.end) {
            n = add_span(spans, n, s);
        }
    }
    if (specs == 0 || n > 1) {
        return RANGE_ANSWER_FULL;
    }
    if (n == 0) {
        return RANGE_ANSWER_UNSATISFIED;
    }
    *first = spans[0].first;
    *end = spans[0].end;
    return RANGE_ANSWER_PART;
}

/* Without If-Range, or when it names exactly what we have. */
static bool if_range_holds(const struct http_req *r, const struct validators *v)
{
    struct slice value = http_req_field(r, "if-range");
    uint64_t date;

    if (value.p == NULL) {
        return true;
    }
    if (slice_starts(value, SLICE("\"")) || slice_starts(value, SLICE("W/"))) {
        return etag_matches(value, v, true);
    }
    return !v->is_commit_time && parse_date(r, value, v, &date) && date == v->last_modified_s;
}

enum range_answer request_judge(const struct http_req *r, const struct validators *v,
                                uint64_t *first, uint64_t *end)
{
    enum range_answer verdict = judge_preconditions(r, v);
    struct slice set;

    *first = 0;
    *end = v->total_bytes;
    if (verdict != RANGE_ANSWER_FULL || r->method != METHOD_GET ||
        v->total_bytes == LENGTH_UNKNOWN || !range_set(r, &set) || !if_range_holds(r, v)) {
        return verdict;
    }
    return judge_ranges(set, v->total_bytes, first, end);
}

bool range_peek(const struct http_req *r, uint64_t *first, uint64_t *end, bool *suffix)
{
    struct slice set;
    uint64_t a = 0;
    uint64_t b = 0;

    if (!range_set(r, &set)) {
        return false;
    }
    switch (parse_spec(slice_trim(set), &a, &b)) {
    case SPEC_BAD:
        return false;
    case SPEC_FROM_TO:
        b = b < POSITION_MAX ? b + 1 : LENGTH_UNKNOWN;
        break;
    case SPEC_FROM:
    case SPEC_SUFFIX:
        b = LENGTH_UNKNOWN;
        break;
    }
    if (a > POSITION_MAX) {
        return false; /* nothing is there: the object's length will say so */
    }
    *suffix = set.n > 0 && slice_trim(set).p[0] == '-';
    *first = a;
    *end = b;
    return true;
}
