#include "agent/train/tensorfiles.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/arena.h"
#include "common/codec/safetensors.h"
#include "common/os/newfile.h"

/* Tensors pass through memory in pieces of so many elements. */
enum { CHUNK_ELEMENTS = 1 << 20 };

/* A tensor as it is written, under its full name, in one of the files. */
struct entry {
    struct slice name;
    const struct tensor_source *source;
    int64_t offset;     /* of its first element in the source */
    int64_t rows, cols; /* there */
    bool matrix;        /* two extents in the file */
    bool transposed;    /* [cols, rows] there */
    size_t file;
};

struct tensor_files {
    char base[64];
    struct entry *entry;
    size_t entries;
    size_t files;
    int rank, ranks; /* of slices; 0: whole tensors */
    uint64_t total_bytes;
    struct arena names;
};

/* --- what goes where -------------------------------------------------------------------------- */

static uint64_t bytes_of_tensor(const struct entry *n)
{
    return (uint64_t)(n->rows * n->cols) * sizeof(float);
}

/* As many as fit, in the model's order; with several writers also no more than about each one's
 * share. */
static void share_out(struct tensor_files *f, int writers, uint64_t least_bytes,
                      uint64_t most_bytes)
{
    uint64_t wanted = f->total_bytes / (least_bytes > 0 ? least_bytes : 1);
    uint64_t filled = 0, before = 0, slot = 0, share;

    wanted = wanted < 1 ? 1 : min_u64(wanted, (uint64_t)writers);
    share = f->total_bytes / wanted + 1;
    for (size_t i = 0; i < f->entries; i++) {
        struct entry *n = &f->entry[i];
        uint64_t bytes = bytes_of_tensor(n), at = (before + bytes / 2) / share;

        if (filled > 0 && (at != slot || filled + bytes > most_bytes)) {
            f->files++;
            filled = 0;
        }
        slot = at;
        n->file = f->files;
        filled += bytes;
        before += bytes;
    }
    f->files++;
}

void tensor_files_whole(const struct layout *l, const struct tensor_source *source, size_t sources,
                        const char *base, int writers, uint64_t least_bytes, uint64_t most_bytes,
                        struct tensor_files **out)
{
    struct tensor_files *f = NEW(struct tensor_files);
    size_t hubs = (size_t)l->hubs;

    snprintf(f->base, sizeof f->base, "%s", base);
    f->entries = sources * hubs;
    f->entry = mem_array(f->entries, sizeof *f->entry);
    for (size_t i = 0; i < f->entries; i++) {
        const struct hub_tensor *h = &l->hub[i % hubs];
        const struct tensor_source *s = &source[i / hubs];

        f->entry[i] = (struct entry){.name = arena_fmt(&f->names, "%s%s", s->prefix, h->name),
                                     .source = s,
                                     .offset = l->tensor[h->tensor].offset + h->first_row * h->cols,
                                     .rows = h->rows,
                                     .cols = h->cols,
                                     .matrix = h->matrix,
                                     .transposed = h->transposed};
        f->total_bytes += bytes_of_tensor(&f->entry[i]);
    }
    share_out(f, writers, least_bytes, most_bytes);
    *out = f;
}

void tensor_files_slices(const struct layout *l, const struct tensor_slice *slice, size_t slices,
                         const struct tensor_source *source, size_t sources, const char *base,
                         int rank, int ranks, struct tensor_files **out)
{
    struct tensor_files *f = NEW(struct tensor_files);

    snprintf(f->base, sizeof f->base, "%s", base);
    f->rank = rank;
    f->ranks = ranks;
    f->files = 1;
    f->entries = sources * slices;
    f->entry = mem_array(f->entries + 1, sizeof *f->entry);
    for (size_t i = 0; i < f->entries; i++) {
        const struct tensor_slice *x = &slice[i % slices];
        const struct tensor_source *s = &source[i / slices];
        char name[REGION_NAME];

        region_name(s->prefix, l->hub[x->hub].name, &x->region, name);
        f->entry[i] = (struct entry){.name = arena_fmt(&f->names, "%s", name),
                                     .source = s,
                                     .offset = x->offset,
                                     .rows = x->region.n,
                                     .cols = 1};
    }
    *out = f;
}

void tensor_files_close(struct tensor_files **fp)
{
    struct tensor_files *f = *fp;

    if (f == NULL) {
        return;
    }
    *fp = NULL;
    arena_fini(&f->names);
    free(f->entry);
    free(f);
}

size_t tensor_files_count(const struct tensor_files *f)
{
    return f->files;
}

size_t tensor_files_of(const struct tensor_files *f, int hub)
{
    return f->entry[hub].file;
}

void tensor_slices_name(const char *base, int rank, int ranks, char out[NAME_MAX])
{
    snprintf(out, NAME_MAX, "%s-%05d-of-%05d.safetensors", base, rank + 1, ranks);
}

void tensor_files_name(const struct tensor_files *f, size_t file, char out[NAME_MAX])
{
    if (f->ranks > 0) {
        tensor_slices_name(f->base, f->rank, f->ranks, out);
    } else if (f->files == 1) {
        snprintf(out, NAME_MAX, "%s.safetensors", f->base);
    } else {
        snprintf(out, NAME_MAX, "%s-%05zu-of-%05zu.safetensors", f->base, file + 1, f->files);
    }
}

void tensor_files_index(const struct tensor_files *f, char name[NAME_MAX], struct buf *out)
{
    if (f->ranks > 0 || f->files == 1) {
        return;
    }
    buf_addf(out, "{\n  \"metadata\": {\"total_size\": %llu},\n  \"weight_map\": {",
             (unsigned long long)f->total_bytes);
    for (size_t i = 0; i < f->entries; i++) {
        tensor_files_name(f, f->entry[i].file, name);
        buf_addf(out, "%s\n    \"" SLICE_FMT "\": \"%s\"", i == 0 ? "" : ",",
                 SLICE_ARG(f->entry[i].name), name);
    }
    buf_str(out, "\n  }\n}\n");
    snprintf(name, NAME_MAX, "%s.safetensors.index.json", f->base);
}

/* --- writing ---------------------------------------------------------------------------------- */

static struct st_tensor described(const struct entry *n)
{
    struct st_tensor s = {.name = n->name, .dtype = ST_F32, .rank = n->matrix ? 2 : 1};

    s.shape[0] = (uint64_t)(n->transposed ? n->cols : n->rows);
    s.shape[1] = (uint64_t)(n->transposed ? n->rows : n->cols);
    return s;
}

struct sink {
    struct newfile *file;
    struct hasher *hash;
};

static void put_tensor_bytes(struct sink *s, const void *p, size_t n)
{
    newfile_write(s->file, p, n);
    hasher_add(s->hash, p, n);
}

static const struct entry *find_tensor_entry(const struct tensor_files *f, struct slice name)
{
    for (size_t i = 0; i < f->entries; i++) {
        if (f->entry[i].name.p == name.p) {
            return &f->entry[i];
        }
    }
    CHECK(!"every tensor came from an entry");
    return NULL;
}

/* Columns become rows, a slab of them at a time. */
static void put_transposed(struct sink *s, const struct entry *n, const float *from)
{
    int64_t slab = n->rows >= CHUNK_ELEMENTS ? 1 : CHUNK_ELEMENTS / n->rows;
    float *turned = mem_array((size_t)(slab * n->rows), sizeof *turned);

    for (int64_t c = 0; c < n->cols; c += slab) {
        int64_t some = n->cols - c < slab ? n->cols - c : slab;

        for (int64_t r = 0; r < n->rows; r++) {
            for (int64_t i = 0; i < some; i++) {
                turned[i * n->rows + r] = from[r * n->cols + c + i];
            }
        }
        put_tensor_bytes(s, turned, (size_t)(some * n->rows) * sizeof *turned);
    }
    free(turned);
}

static int64_t rows_at_once(const struct entry *n)
{
    int64_t rows = n->cols >= CHUNK_ELEMENTS ? 1 : CHUNK_ELEMENTS / n->cols;

    return n->transposed || rows > n->rows ? n->rows : rows;
}

static int put_tensor(const struct entry *n, struct sink *sink, struct err *e)
{
    int64_t step = rows_at_once(n);
    float *rows = mem_array((size_t)(step * n->cols), sizeof *rows);
    int rc = 0;

    for (int64_t r = 0; rc == 0 && r < n->rows; r += step) {
        int64_t elements = (n->rows - r < step ? n->rows - r : step) * n->cols;

        rc = n->source->read(n->source->arg, n->offset + r * n->cols, elements, rows, e);
        if (rc == 0 && n->transposed) {
            put_transposed(sink, n, rows);
        } else if (rc == 0) {
            put_tensor_bytes(sink, rows, (size_t)elements * sizeof *rows);
        }
        rc = rc != 0 ? rc : newfile_check(sink->file, e);
    }
    free(rows);
    return rc;
}

int chunk_list_write(const char *path, struct hasher *hash, struct err *e)
{
    struct buf text = BUF_INIT(CHUNK_LIST_MAX_BYTES);
    struct newfile *f;
    struct digest whole;
    char list[PATH_MAX + 16];
    size_t count;
    uint64_t size_bytes = hasher_count(hash);
    const struct digest *chunk;
    int rc;

    hasher_final(hash, &whole);
    chunk = hasher_chunks(hash, &count);
    chunks_encode(&whole, size_bytes, chunk, count, &text);
    snprintf(list, sizeof list, "%s" CHUNK_LIST_SUFFIX, path);
    rc = text.rc != 0 ? err_set(e, text.rc, "%s: the index is too long", list)
                      : newfile_open(list, 0644, &f, e);
    if (rc == 0) {
        newfile_write(f, text.p, text.n);
        rc = newfile_commit(&f, e);
    }
    buf_free(&text);
    return rc;
}

int tensor_files_write(const struct tensor_files *f, size_t file, const char *dir, struct err *e)
{
    struct st_tensor *st = mem_array(f->entries + 1, sizeof *st);
    struct buf header = BUF_INIT(SAFETENSORS_MAX_HEADER);
    struct sink sink = {.hash = hasher_new()};
    char name[NAME_MAX], path[PATH_MAX];
    size_t n = 0;
    int rc;

    for (size_t i = 0; i < f->entries; i++) {
        if (f->entry[i].file == file) {
            st[n++] = described(&f->entry[i]);
        }
    }
    tensor_files_name(f, file, name);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    rc = safetensors_header(st, n, "pt", &header, e);
    rc = rc != 0 ? rc : newfile_open(path, 0644, &sink.file, e);
    if (rc == 0) {
        put_tensor_bytes(&sink, header.p, header.n);
        for (size_t i = 0; rc == 0 && i < n; i++) {
            rc = put_tensor(find_tensor_entry(f, st[i].name), &sink, e);
        }
    }
    rc = rc != 0 ? rc : newfile_commit(&sink.file, e);
    rc = rc != 0 ? rc : chunk_list_write(path, sink.hash, e);
    newfile_abort(&sink.file);
    hasher_free(&sink.hash);
    buf_free(&header);
    free(st);
    return rc;
}
