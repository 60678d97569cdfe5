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
        /* 2 * layers branches add to the residual stream: its variance shall not grow with depth. */
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

/* n values of tensor `index` from element `at` on; `at` is even, for normal numbers come in pairs. */
static void initial_values(const struct model_config *c, const struct tensor *t, uint64_t seed,
                           uint64_t index, int64_t at, int64_t n, double *out)
{
    bool gain = t->kind == T_NORM1_G || t->kind == T_NORM2_G || t->kind == T_NORMF_G;
    double std = initial_std(c, t->kind);
    int64_t used = t->used_rows * t->cols - at;

    if (std == 0) {
        for (int64_t i = 0; i < n; i++) {
            out[i] = gain ? 1 : 0;
        }
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i += 2) {
        struct philox r = philox_at(seed, index, (uint64_t)(at + i) / 2);
        double two[2];

        philox_normal(&r, two);
        out[i] = i < used ? std * two[0] : 0;
        if (i + 1 < n) {
            out[i + 1] = i + 1 < used ? std * two[1] : 0;
        }
    }
}

static int init_tensor(struct model *m, const struct tensor *t, uint64_t seed, uint64_t index,
                       struct err *e)
{
    int64_t total = t->rows * t->cols, room = total < CHUNK_ELEMENTS ? total : CHUNK_ELEMENTS;
    double *wide = mem_array((size_t)room, sizeof *wide);
    float *narrow = mem_array((size_t)room, sizeof *narrow);
    int rc = 0;

    for (int64_t at = 0; rc == 0 && at < total; at += room) {
        int64_t n = total - at < room ? total - at : room;

        initial_values(&m->config, t, seed, index, at, n, wide);
        for (int64_t i = 0; i < n; i++) {
            narrow[i] = (float)wide[i];
        }
        rc = model_put_run(m, m->master, m->master_held, m->accum, t->offset + at, n,
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
    for (int i = 0; rc == 0 && i < m->layout.tensors; i++) {
        rc = init_tensor(m, &m->layout.tensor[i], seed, (uint64_t)i, e);
    }
    return rc;
}
