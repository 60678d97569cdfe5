#include "agent/train/weights.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/train/manifest.h"
#include "common/base/arena.h"
#include "common/os/newfile.h"
#include "kernels/float16.h"

/* Tensors pass through host memory in pieces of so many elements. */
enum { CHUNK_ELEMENTS = 1 << 20 };

static int64_t chunk_rows(int64_t rows, int64_t cols)
{
    int64_t n = cols >= CHUNK_ELEMENTS ? 1 : CHUNK_ELEMENTS / cols;

    return n < rows ? n : rows;
}

/* --- reading ------------------------------------------------------------------------------------------------------- */

/* A run of a file's numbers, which may be unaligned; doubles hold every type that comes here. */
static void widen(enum st_dtype dt, const char *from, int64_t n, double *out)
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

static void narrow(enum dtype dt, const double *from, int64_t n, char *out)
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

/* A tensor on its way into a model: where it lies, and room for a piece of it as it lies there and widened. */
struct incoming {
    const struct safetensors *in;
    const struct st_tensor *t;
    char *raw;
    double *run;
};

/* n numbers from number `at` on. */
static int read_run(const struct incoming *x, int64_t at, int64_t n, double *out, struct err *e)
{
    int64_t bytes = x->t->dtype == ST_F64 ? 8 : x->t->dtype == ST_F32 ? 4 : 2;
    int rc = safetensors_read(x->in, x->t, (uint64_t)(at * bytes), x->raw, (size_t)(n * bytes), e);

    if (rc == 0) {
        widen(x->t->dtype, x->raw, n, out);
    }
    return rc;
}

/* Rows `first` and the n - 1 behind it of a slice, in our layout; nothing else is read of the file. */
static int read_rows(const struct incoming *x, const struct hub_tensor *h,
                     const struct hub_slice *s, int64_t first, int64_t n, double *out,
                     struct err *e)
{
    int64_t row = s->row0 + first;
    int rc = 0;

    if (!h->transposed && s->cols == h->cols) {
        return read_run(x, row * h->cols, n * h->cols, out, e);
    }
    for (int64_t r = 0; rc == 0 && !h->transposed && r < n; r++) {
        rc = read_run(x, (row + r) * h->cols + s->col0, s->cols, out + r * s->cols, e);
    }
    for (int64_t c = 0; rc == 0 && h->transposed && c < s->cols; c++) {
        rc = read_run(x, (s->col0 + c) * h->rows + row, n, x->run, e);
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

/* The bare models of the Hub's library have another prefix than those with a head: GPT-2's none, Llama's one more. */
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
            narrow(part->dt, wide, n, host);
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

/* Of a Hub's tensor; *slice is the first that may be of it, and becomes the first of those behind it. */
static int load_one(struct model *m, const struct weights_part *part, int hub, int *slice,
                    const struct tensorset *s, struct err *e)
{
    const struct hub_tensor *h = &m->layout.hub[hub];
    struct incoming x = {0};
    const struct st_tensor *from = weights_find(s, part->prefix, h->name, &x.in);
    int rc = 0;

    if (from == NULL) {
        return err_set(e, E_CORRUPT, "tensor %s%s is missing", part->prefix, h->name);
    }
    if (!weights_same_type(from)) {
        return err_set(e, E_UNSUPPORTED, "tensor %s is %s", h->name, st_dtype_name(from->dtype));
    }
    if (!weights_same_shape(h, from)) {
        return err_set(e, E_CORRUPT, "tensor %s has another shape than config.json says", h->name);
    }
    x.t = from;
    while (rc == 0 && *slice < m->layout.slices && m->layout.slice[*slice].hub == hub) {
        rc = load_slice(m, part, &m->layout.slice[(*slice)++], &x, e);
    }
    return rc;
}

int weights_load(struct model *m, const struct weights_part *part, size_t parts, const char *dir,
                 const char *base, struct err *e)
{
    struct tensorset *s;
    int rc = tensorset_open(dir, base, &s, e);

    if (rc != 0) {
        return rc;
    }
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

/* --- writing ------------------------------------------------------------------------------------------------------- */

/* What is to be written: a tensor of a part, under its full name, in one of the files. */
struct entry {
    struct slice name;
    const struct weights_source *part;
    const struct hub_tensor *hub;
    size_t file;
};

struct save {
    const struct layout *layout;
    const char *dir;
    const char *base;
    struct entry *entry;
    size_t entries;
    size_t files;
    uint64_t total_bytes;
    struct arena names;
    struct buf *manifest;
};

static struct st_tensor described(const struct entry *n)
{
    const struct hub_tensor *h = n->hub;
    struct st_tensor s = {.name = n->name, .dtype = ST_F32, .rank = h->matrix ? 2 : 1};

    s.shape[0] = (uint64_t)(h->transposed ? h->cols : h->rows);
    s.shape[1] = (uint64_t)(h->transposed ? h->rows : h->cols);
    return s;
}

struct sink {
    struct newfile *file;
    struct hasher *hash;
};

static void put(struct sink *s, const void *p, size_t n)
{
    newfile_write(s->file, p, n);
    hasher_add(s->hash, p, n);
}

static const struct entry *entry_of(const struct save *s, struct slice name)
{
    for (size_t i = 0; i < s->entries; i++) {
        if (s->entry[i].name.p == name.p) {
            return &s->entry[i];
        }
    }
    CHECK(!"every tensor came from an entry");
    return NULL;
}

/* Columns become rows, a slab of them at a time. */
static void put_transposed(struct sink *s, const struct hub_tensor *h, const float *from)
{
    int64_t slab = h->rows >= CHUNK_ELEMENTS ? 1 : CHUNK_ELEMENTS / h->rows;
    float *turned = mem_array((size_t)(slab * h->rows), sizeof *turned);

    for (int64_t c = 0; c < h->cols; c += slab) {
        int64_t n = h->cols - c < slab ? h->cols - c : slab;

        for (int64_t r = 0; r < h->rows; r++) {
            for (int64_t i = 0; i < n; i++) {
                turned[i * h->rows + r] = from[r * h->cols + c + i];
            }
        }
        put(s, turned, (size_t)(n * h->rows) * sizeof *turned);
    }
    free(turned);
}

static int put_tensor(const struct save *s, const struct entry *n, struct sink *sink, struct err *e)
{
    const struct hub_tensor *h = n->hub;
    int64_t at = s->layout->tensor[h->tensor].offset + h->first_row * h->cols;
    int64_t step = h->transposed ? h->rows : chunk_rows(h->rows, h->cols);
    float *rows = mem_array((size_t)(step * h->cols), sizeof *rows);
    int rc = 0;

    for (int64_t r = 0; rc == 0 && r < h->rows; r += step) {
        int64_t elements = (h->rows - r < step ? h->rows - r : step) * h->cols;

        rc = n->part->read(n->part->arg, at + r * h->cols, elements, rows, e);
        if (rc == 0 && h->transposed) {
            put_transposed(sink, h, rows);
        } else if (rc == 0) {
            put(sink, rows, (size_t)elements * sizeof *rows);
        }
    }
    free(rows);
    return rc;
}

static void file_name(const struct save *s, size_t file, char out[NAME_MAX])
{
    if (s->files == 1) {
        snprintf(out, NAME_MAX, "%s.safetensors", s->base);
    } else {
        snprintf(out, NAME_MAX, "%s-%05zu-of-%05zu.safetensors", s->base, file + 1, s->files);
    }
}

static int save_file(struct save *s, size_t file, struct err *e)
{
    struct st_tensor *st = mem_array(s->entries, sizeof *st);
    struct buf header = BUF_INIT(SAFETENSORS_MAX_HEADER);
    struct sink sink = {.hash = hasher_new_whole()};
    char name[NAME_MAX], path[PATH_MAX];
    struct digest digest;
    size_t n = 0;
    int rc;

    for (size_t i = 0; i < s->entries; i++) {
        if (s->entry[i].file == file) {
            st[n++] = described(&s->entry[i]);
        }
    }
    file_name(s, file, name);
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    rc = safetensors_header(st, n, "pt", &header, e);
    rc = rc != 0 ? rc : newfile_open(path, 0644, &sink.file, e);
    if (rc == 0) {
        put(&sink, header.p, header.n);
        for (size_t i = 0; rc == 0 && i < n; i++) {
            rc = put_tensor(s, entry_of(s, st[i].name), &sink, e);
        }
    }
    if (rc == 0) {
        hasher_final(sink.hash, &digest);
        manifest_add(s->manifest, &digest, name);
        rc = newfile_commit(&sink.file, e);
    }
    newfile_abort(&sink.file);
    hasher_free(&sink.hash);
    buf_free(&header);
    free(st);
    return rc;
}

static int save_index(struct save *s, struct err *e)
{
    struct buf text = BUF_INIT(SAFETENSORS_MAX_HEADER);
    char name[NAME_MAX], path[PATH_MAX];
    struct newfile *f;
    struct digest digest;
    int rc;

    buf_addf(&text, "{\n  \"metadata\": {\"total_size\": %llu},\n  \"weight_map\": {",
             (unsigned long long)s->total_bytes);
    for (size_t i = 0; i < s->entries; i++) {
        file_name(s, s->entry[i].file, name);
        buf_addf(&text, "%s\n    \"" SLICE_FMT "\": \"%s\"", i == 0 ? "" : ",",
                 SLICE_ARG(s->entry[i].name), name);
    }
    buf_str(&text, "\n  }\n}\n");
    snprintf(name, sizeof name, "%s.safetensors.index.json", s->base);
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    rc = newfile_open(path, 0644, &f, e);
    if (rc == 0) {
        newfile_write(f, text.p, text.n);
        digest_of(buf_slice(&text), &digest);
        manifest_add(s->manifest, &digest, name);
        rc = newfile_commit(&f, e);
    }
    buf_free(&text);
    return rc;
}

/* Which tensor goes into which file: as many as fit, in the model's order. */
static void plan(struct save *s, const struct weights_source *part, size_t parts,
                 uint64_t split_bytes)
{
    size_t hubs = (size_t)s->layout->hubs;
    uint64_t filled = 0;

    s->entries = parts * hubs;
    s->entry = mem_array(s->entries, sizeof *s->entry);
    for (size_t i = 0; i < s->entries; i++) {
        struct entry *n = &s->entry[i];
        uint64_t bytes;

        n->part = &part[i / hubs];
        n->hub = &s->layout->hub[i % hubs];
        n->name = arena_fmt(&s->names, "%s%s", n->part->prefix, n->hub->name);
        bytes = (uint64_t)(n->hub->rows * n->hub->cols) * sizeof(float);
        if (filled > 0 && filled + bytes > split_bytes) {
            s->files++;
            filled = 0;
        }
        n->file = s->files;
        filled += bytes;
        s->total_bytes += bytes;
    }
    s->files++;
}

int weights_save(const struct layout *l, const struct weights_source *part, size_t parts,
                 const char *dir, const char *base, uint64_t split_bytes, struct buf *manifest,
                 struct err *e)
{
    struct save s = {.layout = l, .dir = dir, .base = base, .manifest = manifest};
    int rc = 0;

    plan(&s, part, parts, split_bytes);
    for (size_t i = 0; rc == 0 && i < s.files; i++) {
        rc = save_file(&s, i, e);
    }
    if (rc == 0 && s.files > 1) {
        rc = save_index(&s, e);
    }
    arena_fini(&s.names);
    free(s.entry);
    return rc;
}
