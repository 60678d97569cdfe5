#include "common/codec/safetensors.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/endian.h"
#include "common/codec/jread.h"
#include "common/os/newfile.h"

/* A tensor's entry has at most 2 + 7 + 1 commas; metadata may have as many again. */
enum { MAX_DEPTH = 4, MAX_COMMAS = SAFETENSORS_MAX_TENSORS * 20, PREFIX_BYTES = 8 };

struct safetensors {
    struct st_tensor *tensor; /* sorted by name; the names live in `root` */
    size_t count;
    uint64_t data_offset;
    json_t *root;
    int fd; /* -1: parsed alone */
    char *path;
};

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [ST_BOOL] = {"BOOL", 1},       [ST_U8] = {"U8", 1},           [ST_I8] = {"I8", 1},
    [ST_F8_E5M2] = {"F8_E5M2", 1}, [ST_F8_E4M3] = {"F8_E4M3", 1}, [ST_I16] = {"I16", 2},
    [ST_U16] = {"U16", 2},         [ST_F16] = {"F16", 2},         [ST_BF16] = {"BF16", 2},
    [ST_I32] = {"I32", 4},         [ST_U32] = {"U32", 4},         [ST_F32] = {"F32", 4},
    [ST_F64] = {"F64", 8},         [ST_I64] = {"I64", 8},         [ST_U64] = {"U64", 8},
};

const char *st_dtype_name(enum st_dtype dt)
{
    return dtypes[dt].name;
}

/* Before the JSON library builds a tree: its size must be bounded by more than the header's
 * length. */
static int bound_header(struct slice json, struct err *e)
{
    unsigned depth = 0, commas = 0;
    bool in_string = false;

    for (size_t i = 0; i < json.n; i++) {
        char c = json.p[i];

        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            depth--; /* wrapping below zero is refused here as too deep */
        } else if (c == ',') {
            commas++;
        }
        if (depth > MAX_DEPTH || commas > MAX_COMMAS) {
            return err_set(e, E_CORRUPT,
                           "safetensors header is nested too deep or has too many entries");
        }
    }
    return 0;
}

static bool read_dtype(const json_t *v, enum st_dtype *out)
{
    for (size_t i = 0; json_is_string(v) && i < ARRAY_LEN(dtypes); i++) {
        if (strcmp(json_string_value(v), dtypes[i].name) == 0) {
            *out = (enum st_dtype)i;
            return true;
        }
    }
    return false;
}

/* The bytes that dtype and shape make; false when that is more than 64 bits can say. */
static bool size_of_tensor(const struct st_tensor *t, uint64_t *out)
{
    *out = dtypes[t->dtype].bytes;
    for (int i = 0; i < t->rank; i++) {
        if (!mul_u64(*out, t->shape[i], out)) {
            return false;
        }
    }
    return true;
}

static int read_tensor(const char *name, const json_t *v, struct st_tensor *t, struct err *e)
{
    const json_t *shape = json_object_get(v, "shape");
    const json_t *offsets = json_object_get(v, "data_offsets");
    uint64_t end, size;

    *t = (struct st_tensor){.name = slice_str(name)};
    if (t->name.n > SAFETENSORS_MAX_NAME) {
        return err_set(e, E_CORRUPT, "%.60s...: the name of the tensor is too long", name);
    }
    if (json_object_size(v) != 3 || !read_dtype(json_object_get(v, "dtype"), &t->dtype)) {
        return err_set(e, E_CORRUPT,
                       "%s: it must have a known dtype, a shape and data_offsets, and nothing else",
                       name);
    }
    if (!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_MAX_RANK) {
        return err_set(e, E_CORRUPT, "%s: the shape is not a list of at most 8 extents", name);
    }
    t->rank = (int)json_array_size(shape);
    for (int i = 0; i < t->rank; i++) {
        if (!jread_count(json_array_get(shape, (size_t)i), &t->shape[i])) {
            return err_set(e, E_CORRUPT, "%s: an extent is not a non-negative integer", name);
        }
    }
    if (json_array_size(offsets) != 2 || !jread_count(json_array_get(offsets, 0), &t->begin) ||
        !jread_count(json_array_get(offsets, 1), &end) || end < t->begin) {
        return err_set(e, E_CORRUPT, "%s: the data_offsets are not a valid begin and end", name);
    }
    t->size_bytes = end - t->begin;
    if (!size_of_tensor(t, &size) || size != t->size_bytes) {
        return err_set(e, E_CORRUPT, "%s: the shape does not match its size of %llu bytes", name,
                       (unsigned long long)t->size_bytes);
    }
    return 0;
}

static int check_metadata(const json_t *v, struct err *e)
{
    const char *key;
    json_t *value;

    if (!json_is_object(v)) {
        return err_set(e, E_CORRUPT, "safetensors: __metadata__ is not an object");
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        if (!json_is_string(value)) {
            return err_set(e, E_CORRUPT, "safetensors: a value of __metadata__ is not a string");
        }
    }
    return 0;
}

static int by_begin(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;

    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return (x->size_bytes > y->size_bytes) - (x->size_bytes < y->size_bytes);
}

static int compare_tensor_names(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;

    return slice_cmp(x->name, y->name);
}

/* The tensors must tile the data: the first at 0, each where the last ended, the last at the file's
 * end. */
static int check_tiling(struct safetensors *s, uint64_t data_bytes, struct err *e)
{
    uint64_t at = 0;

    qsort(s->tensor, s->count, sizeof *s->tensor, by_begin);
    for (size_t i = 0; i < s->count; i++) {
        if (s->tensor[i].begin != at) {
            return err_set(e, E_CORRUPT,
                           SLICE_FMT ": the data has a gap or an overlap before this tensor",
                           SLICE_ARG(s->tensor[i].name));
        }
        at += s->tensor[i].size_bytes; /* begin + size was the end, which fitted */
    }
    if (at != data_bytes) {
        return err_set(
            e, E_CORRUPT,
            "safetensors: the header describes %llu bytes of data, but the file has %llu",
            (unsigned long long)at, (unsigned long long)data_bytes);
    }
    qsort(s->tensor, s->count, sizeof *s->tensor, compare_tensor_names);
    return 0;
}

static int read_header(struct safetensors *s, struct slice json, struct err *e)
{
    json_error_t why;
    const char *key;
    json_t *value;
    int rc;

    if (json.n == 0 || json.p[0] != '{') {
        return err_set(e, E_CORRUPT, "safetensors header does not begin with {");
    }
    rc = bound_header(json, e);
    if (rc != 0) {
        return rc;
    }
    s->root = json_loadb(json.p, json.n, JSON_REJECT_DUPLICATES, &why);
    if (s->root == NULL) {
        return err_set(e, E_CORRUPT, "safetensors header: %s", why.text);
    }
    if (json_object_size(s->root) > SAFETENSORS_MAX_TENSORS) {
        return err_set(e, E_CORRUPT, "safetensors header has too many tensors");
    }
    s->tensor = mem_array(json_object_size(s->root) + 1, sizeof *s->tensor);
    json_object_foreach(s->root, key, value)
    {
        rc = strcmp(key, "__metadata__") == 0 ? check_metadata(value, e)
                                              : read_tensor(key, value, &s->tensor[s->count++], e);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static uint64_t header_bytes(struct slice head)
{
    return le_get(head.p, (unsigned)min_u64(head.n, PREFIX_BYTES));
}

int safetensors_parse(struct slice head, uint64_t file_bytes, struct safetensors **out,
                      struct err *e)
{
    struct safetensors *s = NEW(struct safetensors);
    uint64_t n = header_bytes(head);
    int rc;

    *out = NULL;
    s->fd = -1;
    if (head.n < PREFIX_BYTES || n > SAFETENSORS_MAX_HEADER || n > file_bytes - PREFIX_BYTES ||
        n > head.n - PREFIX_BYTES) {
        rc = err_set(e, E_CORRUPT, "not a safetensors file: the header does not fit into the file");
        goto out;
    }
    s->data_offset = PREFIX_BYTES + n;
    rc = read_header(s, slice_of(head.p + PREFIX_BYTES, n), e);
    rc = rc != 0 ? rc : check_tiling(s, file_bytes - s->data_offset, e);
    if (rc == 0) {
        *out = s;
        s = NULL;
    }
out:
    safetensors_close(&s);
    return rc;
}

/* The header and its length, as much of both as the file has. */
static int read_head(int fd, uint64_t file_bytes, struct buf *head, struct err *e)
{
    uint8_t prefix[PREFIX_BYTES];
    size_t n;
    char *p;
    int rc = fd_pread_all(fd, prefix, sizeof prefix, 0, e);

    if (rc != 0) {
        return rc;
    }
    n = (size_t)min_u64(header_bytes(slice_of((char *)prefix, sizeof prefix)),
                        min_u64(SAFETENSORS_MAX_HEADER, file_bytes - PREFIX_BYTES));
    p = buf_room(head, PREFIX_BYTES + n);
    if (p == NULL) {
        return err_set(e, head->rc, "the header is too large: %zu bytes", n);
    }
    rc = fd_pread_all(fd, p, PREFIX_BYTES + n, 0, e);
    buf_grew(head, PREFIX_BYTES + n);
    return rc;
}

int safetensors_open(const char *path, struct safetensors **out, struct err *e)
{
    struct buf head = BUF_INIT(PREFIX_BYTES + SAFETENSORS_MAX_HEADER);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is no file to wait for */
    struct stat st;
    int rc;

    *out = NULL;
    if (fd == -1 || fstat(fd, &st) == -1) {
        rc = err_sys(e, "%s", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode) || st.st_size < PREFIX_BYTES) {
        rc = err_set(e, E_CORRUPT, "%s: not a safetensors file", path);
        goto out;
    }
    rc = read_head(fd, (uint64_t)st.st_size, &head, e);
    rc = rc != 0 ? rc : safetensors_parse(buf_slice(&head), (uint64_t)st.st_size, out, e);
    if (rc != 0) {
        err_prefix(e, "%s", path);
        goto out;
    }
    (*out)->fd = fd;
    (*out)->path = mem_strdup(path);
    fd = -1;
out:
    if (fd != -1) {
        close(fd);
    }
    buf_free(&head);
    return rc;
}

void safetensors_close(struct safetensors **sp)
{
    struct safetensors *s = *sp;

    if (s == NULL) {
        return;
    }
    *sp = NULL;
    if (s->fd != -1) {
        close(s->fd);
    }
    json_decref(s->root);
    free(s->path);
    free(s->tensor);
    free(s);
}

size_t safetensors_count(const struct safetensors *s)
{
    return s->count;
}

const struct st_tensor *safetensors_at(const struct safetensors *s, size_t i)
{
    CHECK(i < s->count);
    return &s->tensor[i];
}

const struct st_tensor *safetensors_find(const struct safetensors *s, struct slice name)
{
    struct st_tensor key = {.name = name};

    return bsearch(&key, s->tensor, s->count, sizeof *s->tensor, compare_tensor_names);
}

uint64_t safetensors_header_bytes(const struct safetensors *s)
{
    return s->data_offset;
}

int safetensors_read(const struct safetensors *s, const struct st_tensor *t, uint64_t from,
                     void *to, size_t n, struct err *e)
{
    int rc;

    CHECK(s->fd != -1 && from <= t->size_bytes && n <= t->size_bytes - from);
    rc = fd_pread_all(s->fd, to, n, s->data_offset + t->begin + from, e);
    return rc == 0 ? 0 : err_prefix(e, "%s", s->path);
}

static int file_order(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    size_t xb = dtypes[x->dtype].bytes, yb = dtypes[y->dtype].bytes;

    return xb != yb ? (xb > yb ? -1 : 1) : slice_cmp(x->name, y->name);
}

static void add_header_tensor(const struct st_tensor *t, struct buf *out)
{
    buf_addf(out, "\"" SLICE_FMT "\":{\"dtype\":\"%s\",\"shape\":[", SLICE_ARG(t->name),
             dtypes[t->dtype].name);
    for (int i = 0; i < t->rank; i++) {
        buf_addf(out, "%s%llu", i == 0 ? "" : ",", (unsigned long long)t->shape[i]);
    }
    buf_addf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)t->begin,
             (unsigned long long)(t->begin + t->size_bytes));
}

int safetensors_header(struct st_tensor *t, size_t n, const char *format, struct buf *out,
                       struct err *e)
{
    struct buf json = BUF_INIT(SAFETENSORS_MAX_HEADER);
    uint64_t at = 0;
    int rc = 0;

    qsort(t, n, sizeof *t, file_order);
    buf_byte(&json, '{');
    if (format != NULL) {
        buf_addf(&json, "\"__metadata__\":{\"format\":\"%s\"}", format);
    }
    for (size_t i = 0; i < n; i++) {
        /* Names are our own: plain ASCII, nothing to escape. */
        CHECK(t[i].rank <= SAFETENSORS_MAX_RANK && size_of_tensor(&t[i], &t[i].size_bytes));
        t[i].begin = at;
        CHECK(add_u64(at, t[i].size_bytes, &at));
        buf_str(&json, i == 0 && format == NULL ? "" : ",");
        add_header_tensor(&t[i], &json);
    }
    buf_byte(&json, '}');
    while (json.rc == 0 && json.n % 8 != 0) {
        buf_byte(&json, ' ');
    }
    buf_le(out, PREFIX_BYTES, json.n);
    buf_adds(out, buf_slice(&json));
    if (json.rc != 0 || out->rc != 0) {
        rc = err_set(e, E_TOOBIG, "safetensors header is too long");
    }
    buf_free(&json);
    return rc;
}
