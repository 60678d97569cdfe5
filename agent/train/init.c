#include <math.h>
#include <stdlib.h>

#include "agent/train/model.h"
#include "kernels/philox.h"

/* Tensors are made in pieces of so many elements. */
enum { CHUNK_ELEMENTS = 1 << 20 };

static double initial_std(const struct model_config *c, enum tensor_kind kind)
{
    switch (kind) {
    case T_WTE:
    case T_WPE:
    case T_QKV_W:
    case T_FC_W:
    case T_HEAD_W:
        return c->init_std;
    case T_PROJ_W:
    case T_OUT_W:
        /* 2 * layers branches add to the residual stream: its variance shall not grow with
         * depth. */
        return c->init_std / sqrt(2.0 * (double)c->layers);
    case T_NORM1_G:
    case T_NORM1_B:
    case T_QKV_B:
    case T_PROJ_B:
    case T_NORM2_G:
    case T_NORM2_B:
    case T_FC_B:
    case T_OUT_B:
    case T_NORMF_G:
    case T_NORMF_B:
    case T_KINDS:
        break;
    }
    return 0;
}

/* n values of tensor `index` from its element `at` on; normal numbers come in pairs. */
static void initial_values(const struct model_config *c, enum tensor_kind kind, uint64_t seed,
                           uint64_t index, int64_t at, int64_t n, double *out)
{
    bool gain = kind == T_NORM1_G || kind == T_NORM2_G || kind == T_NORMF_G;
    double std = initial_std(c, kind);

    if (std == 0) {
        for (int64_t i = 0; i < n; i++) {
            out[i] = gain ? 1 : 0;
        }
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t pair = at / 2; pair < (at + n + 1) / 2; pair++) {
        struct philox r = philox_at(seed, index, (uint64_t)pair);
        double two[2];

        philox_normal(&r, two);
        for (int64_t i = 0; i < 2; i++) {
            if (2 * pair + i >= at && 2 * pair + i < at + n) {
                out[2 * pair + i - at] = std * two[i];
            }
        }
    }
}

/* Values go by the element's number in the tensor that is not cut. */
static void fill_rows(const struct model *m, const struct hub_slice *s, uint64_t seed, int64_t row,
                      int64_t rows, double *out)
{
    const struct tensor *t = &m->layout.tensor[s->tensor];
    int64_t first = m->layout.hub[s->hub].first_row + s->row0 + row;
    int64_t n = s->cols;

    if (s->cols == t->whole_cols) { /* rows that follow each other there, too */
        n *= rows;
        rows = 1;
    }
#pragma omp parallel for schedule(static) if (rows > 1)
    for (int64_t r = 0; r < rows; r++) {
        initial_values(&m->config, t->kind, seed, (uint64_t)s->tensor,
                       (first + r) * t->whole_cols + s->col0, n, out + r * n);
    }
}

static int init_slice(struct model *m, const struct hub_slice *s, uint64_t seed, struct err *e)
{
    int64_t step = s->cols < CHUNK_ELEMENTS ? CHUNK_ELEMENTS / s->cols : 1, room;
    double *wide;
    float *narrow;
    int rc = 0;

    step = step < s->rows ? step : s->rows;
    room = step * s->cols;
    wide = mem_array((size_t)room, sizeof *wide);
    narrow = mem_array((size_t)room, sizeof *narrow);
    for (int64_t row = 0; rc == 0 && row < s->rows; row += step) {
        int64_t rows = s->rows - row < step ? s->rows - row : step, n = rows * s->cols;

        fill_rows(m, s, seed, row, rows, wide);
        for (int64_t i = 0; i < n; i++) {
            narrow[i] = (float)wide[i];
        }
        rc = model_put_run(m, m->master, m->master_held, m->accum, s->offset + row * s->cols, n,
                           m->accum == DT_F64 ? (const void *)wide : narrow, e);
    }
    free(wide);
    free(narrow);
    return rc;
}

int model_init(struct model *m, uint64_t seed, struct err *e)
{
    int rc = 0;

    CHECK(m->dt == m->accum || m->master != m->param); /* there are masters to fill */
    for (int i = 0; rc == 0 && i < m->layout.slices; i++) {
        rc = init_slice(m, &m->layout.slice[i], seed, e);
    }
    return rc;
}
