#include "agent/train/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/arena.h"
#include "common/codec/safetensors.h"
#include "common/os/newfile.h"

static float from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

static float from_f16(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    float size = exponent == 0    ? ldexpf((float)fraction, -24)
                 : exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                                  : ldexpf((float)(fraction + 1024), exponent - 25);

    return (h & 0x8000) != 0 ? -size : size;
}

/* Element i of a tensor's bytes, which may be unaligned. */
static float element(enum st_dtype dt, const char *p, int64_t i)
{
    uint16_t half;
    float f;

    if (dt == ST_F32) {
        memcpy(&f, p + i * 4, sizeof f);
        return f;
    }
    memcpy(&half, p + i * 2, sizeof half);
    return dt == ST_BF16 ? from_bf16(half) : from_f16(half);
}

static bool same_shape(const struct tensor *t, const struct st_tensor *s)
{
    int64_t rows = t->transposed ? t->cols : t->hub_rows;
    int64_t cols = t->transposed ? t->hub_rows : t->cols;

    return t->matrix
               ? s->rank == 2 && s->shape[0] == (uint64_t)rows && s->shape[1] == (uint64_t)cols
               : s->rank == 1 && s->shape[0] == (uint64_t)cols;
}

static const struct st_tensor *find(const struct safetensors *s, const char *prefix,
                                    const char *name)
{
    char full[128];
    const struct st_tensor *found;

    snprintf(full, sizeof full, "%s%s", prefix, name);
    found = safetensors_find(s, slice_str(full));
    if (found == NULL) {
        snprintf(full, sizeof full, "%stransformer.%s", prefix, name);
        found = safetensors_find(s, slice_str(full));
    }
    return found;
}

static int load_one(struct model *m, const struct weights_part *part, const struct tensor *t,
                    const struct safetensors *s, struct err *e)
{
    const struct st_tensor *from = find(s, part->prefix, t->name);
    float *host;
    int rc;

    if (from == NULL) {
        return err_set(e, E_CORRUPT, "tensor %s%s is missing", part->prefix, t->name);
    }
    if (from->dtype != ST_F32 && from->dtype != ST_BF16 && from->dtype != ST_F16) {
        return err_set(e, E_UNSUPPORTED, "tensor %s is %s", t->name, st_dtype_name(from->dtype));
    }
    if (!same_shape(t, from)) {
        return err_set(e, E_CORRUPT, "tensor %s has another shape than config.json says", t->name);
    }
    const char *p = safetensors_data(s, from).p;
    host = mem_array((size_t)(t->rows * t->cols), sizeof *host);
    for (int64_t r = 0; r < t->hub_rows; r++) {
        for (int64_t c = 0; c < t->cols; c++) {
            host[r * t->cols + c] =
                element(from->dtype, p, t->transposed ? c * t->hub_rows + r : r * t->cols + c);
        }
    }
    rc = model_put(m, part->whole, t, host, e);
    free(host);
    return rc;
}

int weights_load(struct model *m, const struct weights_part *part, size_t parts, const char *path,
                 struct err *e)
{
    struct safetensors *s;
    int rc = safetensors_open(path, &s, e);

    CHECK(m->dt == DT_F32);
    if (rc != 0) {
        return rc;
    }
    for (size_t p = 0; rc == 0 && p < parts; p++) {
        for (int i = 0; rc == 0 && i < m->layout.tensors; i++) {
            rc = load_one(m, &part[p], &m->layout.tensor[i], s, e);
        }
    }
    if (rc != 0) {
        err_prefix(e, "%s", path);
    }
    safetensors_close(&s);
    return rc;
}

/* What is to be written: a tensor of a part, under its full name. */
struct entry {
    struct slice name;
    const struct weights_part *part;
    const struct tensor *tensor;
};

static struct st_tensor described(const struct entry *n)
{
    const struct tensor *t = n->tensor;
    struct st_tensor s = {.name = n->name, .dtype = ST_F32, .rank = t->matrix ? 2 : 1};

    if (t->matrix) {
        s.shape[0] = (uint64_t)(t->transposed ? t->cols : t->hub_rows);
        s.shape[1] = (uint64_t)(t->transposed ? t->hub_rows : t->cols);
    } else {
        s.shape[0] = (uint64_t)t->cols;
    }
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

static int save_one(struct model *m, const struct entry *n, struct sink *s, struct err *e)
{
    const struct tensor *t = n->tensor;
    float *host = mem_array((size_t)(t->rows * t->cols), sizeof *host), *turned = NULL;
    int rc = model_get(m, n->part->whole, t, host, e);

    if (rc == 0 && t->transposed) {
        turned = mem_array((size_t)(t->rows * t->cols), sizeof *turned);
        for (int64_t r = 0; r < t->rows; r++) {
            for (int64_t c = 0; c < t->cols; c++) {
                turned[c * t->rows + r] = host[r * t->cols + c];
            }
        }
    }
    if (rc == 0) {
        put(s, turned != NULL ? turned : host, (size_t)(t->hub_rows * t->cols) * sizeof *host);
    }
    free(turned);
    free(host);
    return rc;
}

static const struct entry *entry_of(const struct entry *entry, size_t n, struct slice name)
{
    for (size_t i = 0; i < n; i++) {
        if (entry[i].name.p == name.p) {
            return &entry[i];
        }
    }
    CHECK(!"every tensor came from an entry");
    return NULL;
}

int weights_save(struct model *m, const struct weights_part *part, size_t parts, const char *path,
                 struct digest *digest, struct err *e)
{
    size_t n = parts * (size_t)m->layout.tensors;
    struct entry *entry = mem_array(n, sizeof *entry);
    struct st_tensor *st = mem_array(n, sizeof *st);
    struct buf header = BUF_INIT(SAFETENSORS_MAX_HEADER);
    struct arena names = {0};
    struct sink s = {.hash = hasher_new()};
    int rc;

    CHECK(m->dt == DT_F32);
    for (size_t i = 0; i < n; i++) {
        entry[i].part = &part[i / (size_t)m->layout.tensors];
        entry[i].tensor = &m->layout.tensor[i % (size_t)m->layout.tensors];
        entry[i].name = arena_fmt(&names, "%s%s", entry[i].part->prefix, entry[i].tensor->name);
        st[i] = described(&entry[i]);
    }
    rc = safetensors_header(st, n, "pt", &header, e);
    if (rc == 0) {
        rc = newfile_open(path, 0644, &s.file, e);
    }
    if (rc != 0) {
        goto out;
    }
    put(&s, header.p, header.n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = save_one(m, entry_of(entry, n, st[i].name), &s, e);
    }
    if (rc == 0) {
        hasher_final(s.hash, digest);
        rc = newfile_commit(&s.file, e);
    }
out:
    newfile_abort(&s.file);
    hasher_free(&s.hash);
    arena_fini(&names);
    buf_free(&header);
    free(st);
    free(entry);
    return rc;
}
