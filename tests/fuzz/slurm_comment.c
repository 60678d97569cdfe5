/* slurm_comment.c - fuzzes a job's comment: what is taken of it can be no option, no URL, and leads
 * nowhere but below a folder. */
#include "agent/cache/place.h"
#include "agent/slurm/comment.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct wishes w = {.n = 0};

    if (comment_read(slice_of(p, n), &w, NULL) != 0) {
        return 0;
    }
    CHECK(w.n <= WISHES_MAX);
    for (size_t i = 0; i < w.n; i++) {
        struct slice from = w.one[i].from;
        CHECK(from.n > 0 && from.n <= WISH_MAX && from.p[0] != '-' && from.p[0] != '/');
        CHECK(slice_find(from, ':') < 0 && slice_find(from, '%') < 0 && slice_find(from, '?') < 0);
        CHECK(local_cache_name_ok(wish_place(from)));
    }
    return 0;
}
