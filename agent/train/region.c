#include "agent/train/region.h"

#include <stdio.h>

/* Products of extents stay far below 2^63. */
#define MOST_EXTENT   ((int64_t)1 << 31)
#define MOST_ELEMENTS ((int64_t)1 << 50)

struct region region_of(const struct hub_slice *s)
{
    return (struct region){
        .row = s->row0, .rows = s->rows, .col = s->col0, .cols = s->cols, .n = s->rows * s->cols};
}

void region_name(const char *prefix, const char *tensor, const struct region *r,
                 char out[REGION_NAME])
{
    int n =
        snprintf(out, REGION_NAME, "%s%s[%lld:%lld,%lld:%lld][%lld:%lld]", prefix, tensor,
                 (long long)r->row, (long long)(r->row + r->rows), (long long)r->col,
                 (long long)(r->col + r->cols), (long long)r->from, (long long)(r->from + r->n));

    CHECK(n > 0 && n < REGION_NAME);
}

/* "<from>:<to>" up to `sep`; not empty. */
static bool cut_interval(struct slice *rest, char sep, int64_t most, int64_t *from, int64_t *n)
{
    struct slice to = slice_cut(rest, sep), first = slice_cut(&to, ':');
    uint64_t a, b;

    if (!slice_u64(first, &a) || !slice_u64(to, &b) || a >= b || b > (uint64_t)most) {
        return false;
    }
    *from = (int64_t)a;
    *n = (int64_t)(b - a);
    return true;
}

bool region_parse(struct slice name, struct slice *tensor, struct region *out)
{
    struct slice rest = name;

    *tensor = slice_cut(&rest, '[');
    return tensor->n > 0 && cut_interval(&rest, ',', MOST_EXTENT, &out->row, &out->rows) &&
           cut_interval(&rest, ']', MOST_EXTENT, &out->col, &out->cols) &&
           slice_starts(rest, SLICE("[")) && slice_ends(rest, SLICE("]")) &&
           (rest = slice_from(slice_first(rest, rest.n - 1), 1), true) &&
           cut_interval(&rest, ']', MOST_ELEMENTS, &out->from, &out->n) && rest.n == 0 &&
           out->rows <= MOST_ELEMENTS / out->cols && out->from + out->n <= out->rows * out->cols;
}

int64_t region_run(const struct region *a, int64_t at, const struct region *b, int64_t *in_b)
{
    int64_t flat = a->from + at;
    int64_t row = a->row + flat / a->cols - b->row, col = a->col + flat % a->cols - b->col;
    int64_t there = row * b->cols + col - b->from, run;

    if (row < 0 || row >= b->rows || col < 0 || col >= b->cols || there < 0 || there >= b->n) {
        return 0;
    }
    *in_b = there;
    run = min_i64(a->n - at, b->n - there);
    if (a->col == b->col && a->cols == b->cols) {
        return run;
    }
    return min_i64(run, min_i64(a->cols - flat % a->cols, b->cols - col));
}
