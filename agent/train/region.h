/* region.h - a run of elements of one of the Hub's tensors: describes a rank's slice without
 * reference to ranks.
 *
 * A region is a rectangle of the tensor as [out, in] (rows and columns), and of that rectangle's
 * elements, row after row, those from index `from` on. Its notation is NumPy's:
 * `wte.weight[0:256,0:24][3072:6144]` is wte.weight[0:256, 0:24].ravel()[3072:6144]. It does not
 * depend on how groups are padded, so slices for any number of ranks can be cut from those of any
 * other.
 */
#ifndef AGENT_TRAIN_REGION_H
#define AGENT_TRAIN_REGION_H

#include "agent/train/layout.h"
#include "common/base/slice.h"

struct region {
    int64_t row, rows; /* the rectangle: rows from `row` on, */
    int64_t col, cols; /* columns from `col` on */
    int64_t from, n;   /* elements of it */
};

enum { REGION_NAME = 256 };

/* Everything that a layout has there. */
struct region region_of(const struct hub_slice *s);
void region_name(const char *prefix, const char *tensor, const struct region *r,
                 char out[REGION_NAME]);
/* Parses the name of the tensor and the region; false: not such a text. */
MUST_USE bool region_parse(struct slice name, struct slice *tensor, struct region *out);
/* How many elements of `a`, from its index `at` on, are consecutive in `b`, and the index of the
 * first there; 0: b does not have it. */
int64_t region_run(const struct region *a, int64_t at, const struct region *b, int64_t *in_b);

#endif
