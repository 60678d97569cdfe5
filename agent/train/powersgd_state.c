#include "agent/train/powersgd_state.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/train/tensorfiles.h"
#include "agent/train/zero.h"
#include "common/codec/safetensors.h"
#include "common/os/newfile.h"

/* Tensors pass through host memory in pieces of so many elements. */
enum { CHUNK_ELEMENTS = 1 << 20 };

void powersgd_file_name(int rank, int ranks, char out[NAME_MAX])
{
    snprintf(out, NAME_MAX, "powersgd-%05d-of-%05d.safetensors", rank + 1, ranks);
}

/* --- writing ---------------------------------------------------------------------------------- */

/* All that there are, to be freed. */
static struct powersgd_tensor *list_powersgd_tensors(const struct model *m, size_t *n)
{
    struct powersgd_tensor t, *all;

    for (*n = 0; powersgd_tensor(m, (int)*n, &t);) {
        ++*n;
    }
    all = mem_array(*n + 1, sizeof *all);
    for (size_t i = 0; i < *n; i++) {
        (void)powersgd_tensor(m, (int)i, &all[i]);
    }
    return all;
}

static const struct powersgd_tensor *named(const struct powersgd_tensor *all, size_t n,
                                           struct slice name)
{
    for (size_t i = 0; i < n; i++) {
        if (all[i].name == name.p) {
            return &all[i];
        }
    }
    CHECK(!"every tensor of the header came from the list");
    return NULL;
}

struct sink {
    struct newfile *file;
    struct hasher *hash;
};

static void put_powersgd_bytes(struct sink *s, const void *p, size_t n)
{
    newfile_write(s->file, p, n);
    hasher_add(s->hash, p, n);
}

static int put_tensor(struct model *m, const struct powersgd_tensor *t, float *host, struct sink *s,
                      struct err *e)
{
    int64_t all = t->rows * t->cols, n = 0;
    int rc = 0;

    for (int64_t at = 0; rc == 0 && at < all; at += n) {
        n = all - at < CHUNK_ELEMENTS ? all - at : CHUNK_ELEMENTS;
        rc = model_get(m, host, t->at + model_accum_bytes(m, at), (size_t)n * sizeof *host, e);
        if (rc == 0) {
            put_powersgd_bytes(s, host, (size_t)n * sizeof *host);
            rc = newfile_check(s->file, e);
        }
    }
    return rc;
}

int powersgd_save(const char *dir, struct model *m, struct err *e)
{
    struct buf header = BUF_INIT(SAFETENSORS_MAX_HEADER);
    float *host = mem_array(CHUNK_ELEMENTS, sizeof *host);
    size_t n;
    struct powersgd_tensor *all = list_powersgd_tensors(m, &n);
    struct st_tensor *st = mem_array(n + 1, sizeof *st);
    struct sink sink = {.hash = hasher_new()};
    char name[NAME_MAX], path[PATH_MAX];
    int rc;

    for (size_t i = 0; i < n; i++) {
        st[i] = (struct st_tensor){.name = slice_str(all[i].name), .dtype = ST_F32, .rank = 2};
        st[i].shape[0] = (uint64_t)all[i].rows;
        st[i].shape[1] = (uint64_t)all[i].cols;
    }
    powersgd_file_name(m->own.rank, m->own.ranks, name);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    rc = safetensors_header(st, n, "pt", &header, e);
    rc = rc != 0 ? rc : newfile_open(path, 0644, &sink.file, e);
    if (rc == 0) {
        zero_settle(m);
        put_powersgd_bytes(&sink, header.p, header.n);
    }
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = put_tensor(m, named(all, n, st[i].name), host, &sink, e);
    }
    rc = rc != 0 ? rc : newfile_commit(&sink.file, e);
    rc = rc != 0 ? rc : chunk_list_write(path, sink.hash, e);
    newfile_abort(&sink.file);
    hasher_free(&sink.hash);
    buf_free(&header);
    free(host);
    free(all);
    free(st);
    return rc;
}

/* --- loading ---------------------------------------------------------------------------------- */

static const struct st_tensor *find_powersgd_tensor(const struct safetensors *f,
                                                    const struct powersgd_tensor *t)
{
    const struct st_tensor *s = safetensors_find(f, slice_str(t->name));

    return s != NULL && s->dtype == ST_F32 && s->rank == 2 && s->shape[0] == (uint64_t)t->rows &&
                   s->shape[1] == (uint64_t)t->cols
               ? s
               : NULL;
}

/* Of the same factors of the same matrices. */
static bool powersgd_state_fits(const struct safetensors *f, const struct model *m)
{
    struct powersgd_tensor t;
    int n = 0;

    for (; powersgd_tensor(m, n, &t); n++) {
        if (find_powersgd_tensor(f, &t) == NULL) {
            return false;
        }
    }
    return (size_t)n == safetensors_count(f);
}

/* A rank's file, under its name in the manifest. */
struct part {
    char name[NAME_MAX];
    struct safetensors *st;
    struct integrity *integrity;
};

static int load_tensor(const struct part *p, struct model *m, const struct powersgd_tensor *t,
                       float *host, struct err *e)
{
    const struct safetensors *f = p->st;
    const struct st_tensor *s = find_powersgd_tensor(f, t);
    uint64_t all = (uint64_t)(t->rows * t->cols) * sizeof *host, n = 0;
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && at < all; at += n) {
        n = min_u64(all - at, CHUNK_ELEMENTS * sizeof *host);
        rc = integrity_range(p->integrity, p->name, safetensors_header_bytes(f) + s->begin + at, n,
                             e);
        rc = rc != 0 ? rc : safetensors_read(f, s, at, host, (size_t)n, e);
        rc = rc != 0 ? rc : model_put(m, t->at + at, host, (size_t)n, e);
    }
    return rc;
}

int powersgd_load(const char *dir, struct model *m, struct integrity *i, bool *found, struct err *e)
{
    float *host = mem_array(CHUNK_ELEMENTS, sizeof *host);
    struct part p = {.integrity = i};
    struct powersgd_tensor t;
    char path[PATH_MAX];
    int rc = 0;

    powersgd_file_name(m->own.rank, m->own.ranks, p.name);
    snprintf(path, sizeof path, "%s/%s", dir, p.name);
    powersgd_clear(m);
    *found = false;
    if (integrity_has(i, p.name)) {
        rc = safetensors_open(path, &p.st, e);
        rc = rc != 0 ? rc : integrity_range(i, p.name, 0, safetensors_header_bytes(p.st), e);
        *found = rc == 0 && powersgd_state_fits(p.st, m);
    }
    for (int n = 0; rc == 0 && *found && powersgd_tensor(m, n, &t); n++) {
        rc = load_tensor(&p, m, &t, host, e);
    }
    safetensors_close(&p.st);
    free(host);
    return rc;
}

bool powersgd_is_saved(const char *dir)
{
    DIR *d = opendir(dir);
    const struct dirent *x;
    bool any = false;

    while (d != NULL && !any && (x = readdir(d)) != NULL) {
        any = slice_starts(slice_str(x->d_name), SLICE("powersgd-"));
    }
    if (d != NULL) {
        closedir(d);
    }
    return any;
}
