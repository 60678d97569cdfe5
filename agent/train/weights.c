#include "agent/train/weights.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/float16.h"

/* Tensors pass through host memory in pieces of so many elements. */
enum { CHUNK_ELEMENTS = 1 << 20 };

static int64_t chunk_rows(int64_t rows, int64_t cols)
{
    int64_t n = cols >= CHUNK_ELEMENTS ? 1 : CHUNK_ELEMENTS / cols;

    return n < rows ? n : rows;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* A run of a file's numbers, which may be unaligned; doubles hold every type that comes here. */
static void widen_weights(enum st_dtype dt, const char *from, int64_t n, double *out)
{
    float f;
    uint16_t h;

    if (dt == ST_F64) {
        memcpy(out, from, (size_t)n * sizeof *out);
    } else if (dt == ST_F32) {
        for (int64_t i = 0; i < n; i++) {
            memcpy(&f, from + i * 4, sizeof f);
            out[i] = (double)f;
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            memcpy(&h, from + i * 2, sizeof h);
            out[i] = (double)(dt == ST_BF16 ? bf16_widen(h) : f16_widen(h));
        }
    }
}

static void narrow_weights(enum dtype dt, const double *from, int64_t n, char *out)
{
    for (int64_t i = 0; i < n; i++) {
        float f = (float)from[i];
        uint16_t h;

        switch (dt) {
        case DT_F64:
            memcpy(out + i * 8, &from[i], sizeof from[i]);
            break;
        case DT_F32:
            memcpy(out + i * 4, &f, sizeof f);
            break;
        case DT_BF16:
        case DT_F16:
            f = float_odd(from[i]);
            h = dt == DT_BF16 ? bf16_round(f) : f16_round(f);
            memcpy(out + i * 2, &h, sizeof h);
            break;
        }
    }
}

void weights_narrow(enum dtype dt, const char *from, int64_t n, char *out)
{
    enum { SOME = 1024 };
    double wide[SOME];

    for (int64_t i = 0; i < n; i += SOME) {
        int64_t some = n - i < SOME ? n - i : SOME;

        widen_weights(ST_F32, from + i * 4, some, wide);
        narrow_weights(dt, wide, some, out + (size_t)i * dtype_bytes(dt));
    }
}

/* A tensor on its way into a model: where it lies, and room for a piece of it as it lies there and
 * widened. */
struct incoming {
    const struct tensorset *set;
    const struct safetensors *in;
    const struct st_tensor *t;
    char *raw;
    double *run;
};

/* n numbers from number `at` on. */
static int read_weight_run(const struct incoming *x, int64_t at, int64_t n, double *out,
                           struct err *e)
{
    int64_t bytes = x->t->dtype == ST_F64 ? 8 : x->t->dtype == ST_F32 ? 4 : 2;
    int rc =
        tensorset_read(x->set, x->in, x->t, (uint64_t)(at * bytes), x->raw, (size_t)(n * bytes), e);

    if (rc == 0) {
        widen_weights(x->t->dtype, x->raw, n, out);
    }
    return rc;
}

/* Rows `first` and the n - 1 behind it of a slice, in our layout; nothing else is read of the
 * file. */
static int read_rows(const struct incoming *x, const struct hub_tensor *h,
                     const struct hub_slice *s, int64_t first, int64_t n, double *out,
                     struct err *e)
{
    int64_t row = s->row0 + first;
    int rc = 0;

    if (!h->transposed && s->cols == h->cols) {
        return read_weight_run(x, row * h->cols, n * h->cols, out, e);
    }
    for (int64_t r = 0; rc == 0 && !h->transposed && r < n; r++) {
        rc = read_weight_run(x, (row + r) * h->cols + s->col0, s->cols, out + r * s->cols, e);
    }
    for (int64_t c = 0; rc == 0 && h->transposed && c < s->cols; c++) {
        rc = read_weight_run(x, (s->col0 + c) * h->rows + row, n, x->run, e);
        for (int64_t r = 0; rc == 0 && r < n; r++) {
            out[r * s->cols + c] = x->run[r];
        }
    }
    return rc;
}

bool weights_same_shape(const struct hub_tensor *h, const struct st_tensor *s)
{
    uint64_t rows = (uint64_t)(h->transposed ? h->cols : h->rows);
    uint64_t cols = (uint64_t)(h->transposed ? h->rows : h->cols);

    return h->matrix ? s->rank == 2 && s->shape[0] == rows && s->shape[1] == cols
                     : s->rank == 1 && s->shape[0] == rows;
}

/* The bare models of the Hub's library have another prefix than those with a head: GPT-2's none,
 * Llama's one more. */
const struct st_tensor *weights_find(const struct tensorset *s, const char *prefix,
                                     const char *name, const struct safetensors **in)
{
    bool outer = strncmp(name, "model.", 6) == 0;
    const struct st_tensor *found;
    char full[128];

    snprintf(full, sizeof full, "%s%s", prefix, name);
    found = tensorset_find(s, slice_str(full), in);
    if (found == NULL) {
        snprintf(full, sizeof full, "%s%s%s", prefix, outer ? "" : "transformer.",
                 outer ? name + 6 : name);
        found = tensorset_find(s, slice_str(full), in);
    }
    return found;
}

bool weights_same_type(const struct st_tensor *s)
{
    return s->dtype == ST_F64 || s->dtype == ST_F32 || s->dtype == ST_BF16 || s->dtype == ST_F16;
}

/* The rows of a slice of which this rank holds something. */
static int load_slice(struct model *m, const struct weights_part *part, const struct hub_slice *s,
                      struct incoming *x, struct err *e)
{
    const struct hub_tensor *h = &m->layout.hub[s->hub];
    struct piece held = partition_clip(&m->layout, part->held, s->offset, s->rows * s->cols);
    int64_t first = (held.offset - s->offset) / s->cols;
    int64_t end = held.n == 0 ? first : (held.offset + held.n - s->offset - 1) / s->cols + 1;
    int64_t step = chunk_rows(s->rows, s->cols), room = step * s->cols;
    double *wide = mem_array((size_t)room, sizeof *wide);
    char *host = mem_new((size_t)room * dtype_bytes(part->dt));
    int rc = 0;

    x->raw = mem_array((size_t)room, sizeof(double));
    x->run = mem_array((size_t)step, sizeof *x->run);
    for (int64_t r = first; rc == 0 && r < end; r += step) {
        int64_t rows = end - r < step ? end - r : step, n = rows * s->cols;

        rc = read_rows(x, h, s, r, rows, wide, e);
        if (rc == 0) {
            narrow_weights(part->dt, wide, n, host);
            rc = model_put_run(m, part->set, part->held, part->dt, s->offset + r * s->cols, n, host,
                               e);
        }
    }
    free(x->raw);
    free(x->run);
    free(wide);
    free(host);
    return rc;
}

/* Of a Hub's tensor; *slice is the first that may be of it, and becomes the first of those behind
 * it. */
static int load_one(struct model *m, const struct weights_part *part, int hub, int *slice,
                    const struct tensorset *s, struct err *e)
{
    const struct hub_tensor *h = &m->layout.hub[hub];
    struct incoming x = {.set = s};
    const struct st_tensor *from = weights_find(s, part->prefix, h->name, &x.in);
    int rc = 0;

    if (from == NULL) {
        return err_set(e, E_CORRUPT, "tensor %s%s is missing", part->prefix, h->name);
    }
    if (!weights_same_type(from)) {
        return err_set(e, E_UNSUPPORTED, "tensor %s has the unsupported type %s", h->name,
                       st_dtype_name(from->dtype));
    }
    if (!weights_same_shape(h, from)) {
        return err_set(e, E_CORRUPT, "the shape of tensor %s differs from config.json", h->name);
    }
    x.t = from;
    while (rc == 0 && *slice < m->layout.slices && m->layout.slice[*slice].hub == hub) {
        rc = load_slice(m, part, &m->layout.slice[(*slice)++], &x, e);
    }
    return rc;
}

int weights_load(struct model *m, const struct weights_part *part, size_t parts, const char *dir,
                 const char *base, struct integrity *integrity, struct err *e)
{
    struct tensorset *s;
    int rc = tensorset_open(dir, base, &s, e);

    if (rc != 0) {
        return rc;
    }
    rc = integrity != NULL ? tensorset_verify(s, integrity, e) : 0;
    for (size_t p = 0; rc == 0 && p < parts; p++) {
        int slice = 0;

        for (int i = 0; rc == 0 && i < m->layout.hubs; i++) {
            rc = load_one(m, &part[p], i, &slice, s, e);
        }
    }
    if (rc != 0) {
        err_prefix(e, "%s", dir);
    }
    tensorset_close(&s);
    return rc;
}
