#include "agent/train/tensorset.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { INDEX_MAX_BYTES = 32 << 20, MAX_FILES = 512, MAX_FILE_NAME = 200 };

struct tensorset {
    json_t *index;     /* NULL: one file */
    const json_t *map; /* of the index: tensor -> file name */
    struct file {
        const char *name; /* the index owns it; NULL for the only one */
        struct safetensors *st;
    } * file;
    size_t files;
    char only[NAME_MAX];         /* name of the only one */
    struct integrity *integrity; /* NULL: reads are not verified */
};

static int bad_index(struct err *e, const char *why)
{
    return err_set(e, E_CORRUPT, "not an index of safetensors files: %s", why);
}

/* A name that cannot lead out of the folder. */
static bool is_plain_file_name(const char *name)
{
    struct slice s = slice_str(name);

    return s.n > 0 && s.n <= MAX_FILE_NAME && name[0] != '.' && strchr(name, '/') == NULL &&
           slice_ends(s, SLICE(".safetensors"));
}

static struct file *file_named(struct tensorset *s, const char *name)
{
    for (size_t i = 0; i < s->files; i++) {
        if (s->file[i].name == NULL || strcmp(s->file[i].name, name) == 0) {
            return &s->file[i];
        }
    }
    return NULL;
}

/* Lists the files that the index names, each once. */
static int read_tensor_index(struct tensorset *s, struct slice json, struct err *e)
{
    json_error_t why;
    const char *key;
    json_t *name;

    s->index = json_loadb(json.p == NULL ? "" : json.p, json.n, JSON_REJECT_DUPLICATES, &why);
    if (s->index == NULL) {
        return bad_index(e, why.text);
    }
    s->map = json_object_get(s->index, "weight_map");
    if (!json_is_object(s->map) || json_object_size(s->map) == 0 ||
        json_object_size(s->map) > SAFETENSORS_MAX_TENSORS) {
        return bad_index(e, "weight_map is missing, empty or too long");
    }
    s->file = mem_array(MAX_FILES, sizeof *s->file);
    json_object_foreach((json_t *)(uintptr_t)s->map, key, name)
    {
        if (!json_is_string(name) || !is_plain_file_name(json_string_value(name))) {
            return bad_index(e, "a tensor's file is not a plain name ending in .safetensors");
        }
        if (file_named(s, json_string_value(name)) != NULL) {
            continue;
        }
        if (s->files == MAX_FILES) {
            return bad_index(e, "it names too many files");
        }
        s->file[s->files++].name = json_string_value(name);
    }
    return 0;
}

int tensorset_parse_index(struct slice json, struct err *e)
{
    struct tensorset *s = NEW(struct tensorset);
    int rc = read_tensor_index(s, json, e);

    tensorset_close(&s);
    return rc;
}

static int open_indexed(struct tensorset *s, const char *dir, const char *path, struct err *e)
{
    struct buf text = BUF_INIT(INDEX_MAX_BYTES);
    char part[PATH_MAX];
    int rc = buf_read_file(&text, path, e);

    if (rc == 0) {
        rc = read_tensor_index(s, buf_slice(&text), e);
        if (rc != 0) {
            err_prefix(e, "%s", path);
        }
    }
    for (size_t i = 0; rc == 0 && i < s->files; i++) {
        snprintf(part, sizeof part, "%s/%s", dir, s->file[i].name);
        rc = safetensors_open(part, &s->file[i].st, e);
    }
    buf_free(&text);
    return rc;
}

int tensorset_open(const char *dir, const char *base, struct tensorset **out, struct err *e)
{
    struct tensorset *s = NEW(struct tensorset);
    char one[PATH_MAX], many[PATH_MAX];
    int rc;

    *out = NULL;
    snprintf(one, sizeof one, "%s/%s.safetensors", dir, base);
    snprintf(many, sizeof many, "%s/%s.safetensors.index.json", dir, base);
    if (access(one, F_OK) == 0) {
        s->file = mem_array(1, sizeof *s->file);
        s->files = 1;
        snprintf(s->only, sizeof s->only, "%s.safetensors", base);
        rc = safetensors_open(one, &s->file[0].st, e);
    } else if (access(many, F_OK) == 0) {
        rc = open_indexed(s, dir, many, e);
    } else {
        rc = err_set(e, E_NOTFOUND,
                     "%s: the folder has neither %s.safetensors nor an index of several files", dir,
                     base);
    }
    if (rc == 0) {
        *out = s;
        s = NULL;
    }
    tensorset_close(&s);
    return rc;
}

void tensorset_close(struct tensorset **sp)
{
    struct tensorset *s = *sp;

    if (s == NULL) {
        return;
    }
    *sp = NULL;
    for (size_t i = 0; i < s->files; i++) {
        safetensors_close(&s->file[i].st);
    }
    free(s->file);
    json_decref(s->index);
    free(s);
}

const struct st_tensor *tensorset_find(const struct tensorset *s, struct slice name,
                                       const struct safetensors **in)
{
    const struct safetensors *st = s->file[0].st;

    *in = NULL;
    if (s->map != NULL) {
        const char *file = json_string_value(json_object_getn(s->map, name.p, name.n));

        if (file == NULL) {
            return NULL;
        }
        for (size_t i = 0; i < s->files; i++) {
            st = strcmp(s->file[i].name, file) == 0 ? s->file[i].st : st;
        }
    }
    *in = st;
    return safetensors_find(st, name);
}

static const char *name_of_tensor_file(const struct tensorset *s, const struct file *f)
{
    return f->name != NULL ? f->name : s->only;
}

int tensorset_verify(struct tensorset *s, struct integrity *i, struct err *e)
{
    int rc = 0;

    s->integrity = i;
    for (size_t f = 0; rc == 0 && f < s->files; f++) {
        rc = integrity_range(i, name_of_tensor_file(s, &s->file[f]), 0,
                             safetensors_header_bytes(s->file[f].st), e);
    }
    return rc;
}

int tensorset_read(const struct tensorset *s, const struct safetensors *in,
                   const struct st_tensor *t, uint64_t from, void *to, size_t n, struct err *e)
{
    int rc = 0;

    for (size_t f = 0; s->integrity != NULL && rc == 0 && f < s->files; f++) {
        if (s->file[f].st == in) {
            rc = integrity_range(s->integrity, name_of_tensor_file(s, &s->file[f]),
                                 safetensors_header_bytes(in) + t->begin + from, n, e);
        }
    }
    return rc != 0 ? rc : safetensors_read(in, t, from, to, n, e);
}

size_t tensorset_count(const struct tensorset *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->files; i++) {
        n += safetensors_count(s->file[i].st);
    }
    return n;
}

const struct st_tensor *tensorset_at(const struct tensorset *s, size_t i)
{
    for (size_t f = 0; f < s->files; f++) {
        size_t n = safetensors_count(s->file[f].st);

        if (i < n) {
            const struct st_tensor *t = safetensors_at(s->file[f].st, i);
            const struct safetensors *unused;

            return tensorset_find(s, t->name, &unused) == t ? t : NULL;
        }
        i -= n;
    }
    return NULL;
}

size_t tensorset_files(const struct tensorset *s)
{
    return s->files;
}
