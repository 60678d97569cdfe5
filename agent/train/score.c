#include "agent/train/score.h"

#include <stdio.h>
#include <string.h>

#include "common/base/check.h"

static double per_s(double amount, double took_ns)
{
    return took_ns > 0 ? amount / took_ns * 1e9 : 0;
}

static double of_copy(const struct scores *s, const struct score *r)
{
    return s->copy_per_s > 0 ? per_s(r->bytes, r->took_ns) / s->copy_per_s : 0;
}

static void print(const struct scores *s, const struct score *r, bool first)
{
    bool gemm = strcmp(r->table, "gemm") == 0;

    if (first) {
        printf("%s%-20s %28s %12s %12s\n", s->n > 1 ? "\n" : "", r->table,
               gemm ? "m x n x k" : "shape", "ms", r->flop > 0 ? "TFLOP/s" : "GB/s");
    }
    printf("%-20s %28s %12.4f ", r->what, r->shape, r->took_ns / 1e6);
    if (r->flop > 0) {
        printf("%12.4g\n", per_s(r->flop, r->took_ns) / 1e12);
    } else if (strcmp(r->table, "copy") == 0 || of_copy(s, r) == 0) {
        printf("%12.4g\n", per_s(r->bytes, r->took_ns) / 1e9);
    } else {
        printf("%12.4g  %.2f of copy\n", per_s(r->bytes, r->took_ns) / 1e9, of_copy(s, r));
    }
    fflush(stdout);
}

void scores_add(struct scores *s, const struct score *row)
{
    CHECK(s->n < SCORE_ROWS);
    s->row[s->n++] = *row;
    if (strcmp(row->table, "copy") == 0) {
        s->copy_per_s = per_s(row->bytes, row->took_ns);
    }
    if (!s->quiet) {
        print(s, row, s->n == 1 || strcmp(s->row[s->n - 2].table, row->table) != 0);
    }
}

void scores_json(const struct scores *s, struct buf *out)
{
    jwrite_open(out, "rows", '[');
    for (size_t i = 0; i < s->n; i++) {
        const struct score *r = &s->row[i];

        jwrite_open(out, NULL, '{');
        jwrite_str(out, "table", r->table);
        jwrite_str(out, "what", r->what);
        jwrite_str(out, "shape", r->shape);
        jwrite_double(out, "ms", r->took_ns / 1e6);
        if (r->flop > 0) {
            jwrite_double(out, "tflops", per_s(r->flop, r->took_ns) / 1e12);
        } else {
            jwrite_double(out, "gb_per_s", per_s(r->bytes, r->took_ns) / 1e9);
            if (of_copy(s, r) > 0) {
                jwrite_double(out, "of_copy", of_copy(s, r));
            }
        }
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
}
