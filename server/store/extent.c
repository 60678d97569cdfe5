#include "server/store/extent.h"

#include <stdlib.h>

enum { RUNS_MAX = 1 << 20 }; /* of a decoded list */

/* Index of the first run that ends at or after pos. */
static size_t find_extent_at(const struct extents *x, uint64_t pos)
{
    size_t lo = 0;
    size_t hi = x->count;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (x->run[mid].end < pos) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static void make_room_for_extents(struct extents *x, size_t count)
{
    if (count > x->room) {
        x->room = count + count / 2 + 8;
        x->run = realloc(x->run, x->room * sizeof *x->run);
        CHECK(x->run != NULL);
    }
}

void extents_add(struct extents *x, uint64_t first, uint64_t end)
{
    size_t i = find_extent_at(x, first);
    size_t j = i;

    if (first >= end) {
        return;
    }
    while (j < x->count && x->run[j].first <= end) { /* those that it touches become one */
        first = min_u64(first, x->run[j].first);
        end = max_u64(end, x->run[j].end);
        j++;
    }
    if (i == j) {
        make_room_for_extents(x, x->count + 1);
    }
    if (x->count > j || i == j) {
        memmove(x->run + i + 1, x->run + j, (x->count - j) * sizeof *x->run);
    }
    x->run[i] = (struct extent){first, end};
    x->count = x->count + 1 - (j - i);
}

void extents_copy(struct extents *to, const struct extents *from)
{
    make_room_for_extents(to, from->count);
    if (from->count > 0) {
        memcpy(to->run, from->run, from->count * sizeof *from->run);
    }
    to->count = from->count;
}

uint64_t extents_until(const struct extents *x, uint64_t pos)
{
    size_t i = find_extent_at(x, pos);

    return i < x->count && x->run[i].first <= pos ? x->run[i].end : pos;
}

uint64_t extents_next(const struct extents *x, uint64_t pos)
{
    size_t i = find_extent_at(x, pos);

    if (i < x->count && x->run[i].end == pos) {
        i++;
    }
    return i < x->count ? max_u64(pos, x->run[i].first) : UINT64_MAX;
}

uint64_t extents_bytes(const struct extents *x)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < x->count; i++) {
        sum += x->run[i].end - x->run[i].first;
    }
    return sum;
}

void extents_fini(struct extents *x)
{
    free(x->run);
    *x = (struct extents){0};
}

void extents_encode(const struct extents *x, struct buf *out)
{
    buf_be(out, 8, x->count);
    for (size_t i = 0; i < x->count; i++) {
        buf_be(out, 8, x->run[i].first);
        buf_be(out, 8, x->run[i].end);
    }
}

bool extents_decode(struct extents *x, struct slice *in, uint64_t total)
{
    uint64_t count;
    uint64_t floor = 0;

    if (!slice_be(in, 8, &count) || count > RUNS_MAX || count > in->n / 16) {
        return false;
    }
    x->count = 0;
    make_room_for_extents(x, (size_t)count);
    for (uint64_t i = 0; i < count; i++) {
        struct extent r;
        if (!slice_be(in, 8, &r.first) || !slice_be(in, 8, &r.end) || r.first >= r.end ||
            r.end > total || (i > 0 && r.first <= floor)) {
            x->count = 0;
            return false;
        }
        floor = r.end;
        x->run[x->count++] = r;
    }
    return true;
}
