#include "agent/train/moments.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/train/region.h"
#include "agent/train/tensorfiles.h"
#include "agent/train/weights.h"
#include "common/codec/safetensors.h"

enum { CHUNK_ELEMENTS = 1 << 20, PARTS_MAX = 1 << 16 };

/* A slice that some rank has written. */
struct found {
    struct slice tensor; /* with the moment's prefix */
    struct region region;
    const struct st_tensor *t;
    int part;
};

struct parts {
    const char *dir;
    struct integrity *integrity;
    struct safetensors **st;
    int count;
    struct found *found; /* sorted by tensor */
    size_t founds;
};

static void part_name(const struct parts *p, int part, char out[NAME_MAX])
{
    tensor_slices_name(MOMENTS_BASE, part, p->count, out);
}

/* How many parts the names of the manifest's files speak of; 0: none does. */
static int count_parts(const struct integrity *i)
{
    const char *name;

    for (size_t f = 0; (name = integrity_file(i, f)) != NULL; f++) {
        int rank, ranks, end = 0;

        if (sscanf(name, MOMENTS_BASE "-%5d-of-%5d.safetensors%n", &rank, &ranks, &end) == 2 &&
            end > 0 && name[end] == '\0' && ranks > 0 && ranks <= PARTS_MAX) {
            return ranks;
        }
    }
    return 0;
}

static int by_tensor(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    int order = slice_cmp(x->tensor, y->tensor);

    return order != 0 ? order : (x->part > y->part) - (x->part < y->part);
}

static int add_slice(struct parts *p, int part, const struct st_tensor *t, const char *file,
                     struct err *e)
{
    struct found *f = &p->found[p->founds];

    *f = (struct found){.t = t, .part = part};
    if (!region_parse(t->name, &f->tensor, &f->region) || t->dtype != ST_F32 || t->rank != 1 ||
        t->shape[0] != (uint64_t)f->region.n) {
        return err_set(e, E_CORRUPT, "%s/%s: " SLICE_FMT ": not a slice of f32", p->dir, file,
                       SLICE_ARG(t->name));
    }
    p->founds++;
    return 0;
}

static int open_part(struct parts *p, int part, struct err *e)
{
    char name[NAME_MAX], path[PATH_MAX];
    size_t n;
    int rc;

    part_name(p, part, name);
    snprintf(path, sizeof path, "%s/%s", p->dir, name);
    rc = safetensors_open(path, &p->st[part], e);
    rc = rc != 0 ? rc
                 : integrity_range(p->integrity, name, 0, safetensors_header_bytes(p->st[part]), e);
    if (rc != 0) {
        return rc;
    }
    n = safetensors_count(p->st[part]);
    p->found = realloc(p->found, (p->founds + n + 1) * sizeof *p->found);
    CHECK(p->found != NULL);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = add_slice(p, part, safetensors_at(p->st[part], i), name, e);
    }
    return rc;
}

static int open_parts(struct parts *p, struct err *e)
{
    int rc = 0;

    p->st = mem_array((size_t)p->count, sizeof *p->st);
    for (int i = 0; rc == 0 && i < p->count; i++) {
        rc = open_part(p, i, e);
    }
    if (rc == 0 && p->founds > 0) {
        qsort(p->found, p->founds, sizeof *p->found, by_tensor);
    }
    return rc;
}

static void close_parts(struct parts *p)
{
    for (int i = 0; p->st != NULL && i < p->count; i++) {
        safetensors_close(&p->st[i]);
    }
    free(p->st);
    free(p->found);
}

/* The slices of one tensor. */
static const struct found *slices_of(const struct parts *p, const char *tensor, size_t *n)
{
    struct slice name = slice_str(tensor);
    size_t low = 0, high = p->founds;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (slice_cmp(p->found[mid].tensor, name) < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    for (*n = 0; low + *n < p->founds && slice_eq(p->found[low + *n].tensor, name);) {
        (*n)++;
    }
    return p->founds > 0 ? &p->found[low] : NULL;
}

/* As many of `want`'s elements from number `at` on as follow each other in one of the slices. */
static int64_t find_run(const struct found *f, size_t n, const struct region *want, int64_t at,
                        const struct found **in, int64_t *from)
{
    for (size_t i = 0; i < n; i++) {
        int64_t run = region_run(want, at, &f[i].region, from);

        if (run > 0) {
            *in = &f[i];
            return run < CHUNK_ELEMENTS ? run : CHUNK_ELEMENTS;
        }
    }
    return 0;
}

static int read_moment_run(const struct parts *p, const struct found *f, int64_t from, int64_t n,
                           char *raw, struct err *e)
{
    const struct safetensors *st = p->st[f->part];
    uint64_t at = (uint64_t)from * sizeof(float), bytes = (uint64_t)n * sizeof(float);
    char name[NAME_MAX];
    int rc;

    part_name(p, f->part, name);
    rc = integrity_range(p->integrity, name, safetensors_header_bytes(st) + f->t->begin + at, bytes,
                         e);
    return rc != 0 ? rc : safetensors_read(st, f->t, at, raw, (size_t)bytes, e);
}

/* A set of moments in the model's memory. */
struct set {
    const char *prefix;
    char *to;
};

static int load_slice(const struct parts *p, struct model *m, const struct set *s,
                      const struct hub_slice *of, char *raw, char *host, struct err *e)
{
    struct piece held = partition_clip(&m->layout, m->state_held, of->offset, of->rows * of->cols);
    struct region want = region_of(of);
    const struct found *slice, *in = NULL;
    char name[REGION_NAME];
    size_t slices;
    int64_t n = 0, from;
    int rc = 0;

    want.from += held.offset - of->offset;
    want.n = held.n;
    snprintf(name, sizeof name, "%s%s", s->prefix, m->layout.hub[of->hub].name);
    slice = slices_of(p, name, &slices);
    for (int64_t at = 0; rc == 0 && at < want.n; at += n) {
        n = find_run(slice, slices, &want, at, &in, &from);
        if (n == 0) {
            return err_set(e, E_CORRUPT, "%s: some elements of %s are in none of the %d parts",
                           p->dir, name, p->count);
        }
        rc = read_moment_run(p, in, from, n, raw, e);
        if (rc == 0) {
            weights_narrow(m->accum, raw, n, host);
            rc = model_put_run(m, s->to, m->state_held, m->accum, held.offset + at, n, host, e);
        }
    }
    return rc;
}

static int load_parts(struct parts *p, struct model *m, struct optim *o, struct err *e)
{
    const struct set set[] = {{MOMENTS_FIRST, o->m}, {MOMENTS_SECOND, o->v}};
    char *raw = mem_array(CHUNK_ELEMENTS, sizeof(float));
    char *host = mem_array(CHUNK_ELEMENTS, sizeof(double));
    int rc = open_parts(p, e);

    for (size_t s = 0; s < ARRAY_LEN(set); s++) {
        for (int i = 0; rc == 0 && i < m->layout.slices; i++) {
            rc = load_slice(p, m, &set[s], &m->layout.slice[i], raw, host, e);
        }
    }
    free(raw);
    free(host);
    return rc;
}

int moments_load(const char *dir, struct model *m, struct optim *o, struct integrity *i,
                 struct err *e)
{
    const struct weights_part whole[] = {{MOMENTS_FIRST, o->m, m->state_held, m->accum},
                                         {MOMENTS_SECOND, o->v, m->state_held, m->accum}};
    struct parts p = {.dir = dir, .integrity = i, .count = count_parts(i)};
    int rc;

    /* Whole tensors in several files are called the same, but have an index. */
    if (p.count == 0 || integrity_has(i, MOMENTS_BASE ".safetensors.index.json")) {
        return weights_load(m, whole, ARRAY_LEN(whole), dir, MOMENTS_BASE, i, e);
    }
    rc = load_parts(&p, m, o, e);
    close_parts(&p);
    return rc;
}
