/* score.h - a benchmark's results: a table for people that grows row by row, and the same as
 * JSON.
 *
 * A row has a rate: operations per second for products, bytes per second for operations that
 * memory bounds. The latter are also given as a share of the rate of the last row of "copy", the
 * largest, which no cache holds.
 */
#ifndef AGENT_TRAIN_SCORE_H
#define AGENT_TRAIN_SCORE_H

#include "common/codec/jwrite.h"

enum { SCORE_ROWS = 64 };

struct score {
    const char *table; /* "gemm": the rows of one table are consecutive */
    char what[40];
    char shape[48];
    double took_ns;
    double flop;  /* 0: memory bounds it */
    double bytes; /* read and written */
};

struct scores {
    struct score row[SCORE_ROWS];
    size_t n;
    double copy_per_s; /* bytes, of the last copy; 0: none yet */
    bool quiet;        /* no table */
};

/* Keeps the row and, unless quiet, prints it, below a title when its table begins. */
void scores_add(struct scores *s, const struct score *row);
/* "rows": [{"table", "what", "shape", "ms", "tflops" or "gb_per_s" and "of_copy"}...] of an object
 * that is open. */
void scores_json(const struct scores *s, struct buf *out);

#endif
