#include "server/cluster/content_index.h"

#include <stdlib.h>

#include "server/cluster/format.h"

#define MAGIC      SLICE("mrdidx01")
#define MAGIC_KIND SLICE("mrdidx")

enum {
    KEY_BYTES = DIGEST_BYTES + 1, /* of a row: what it is sorted by */
    SLOTS_FIRST = 64,             /* most publishes are small */
};

/* --- writing --- */

struct content_index_writer {
    struct buf objects;
    struct buf rows;
    size_t count;
    uint32_t *slot; /* of a hash table: the number of a row from 1, or 0 */
    size_t slots;   /* more than twice the rows */
};

static void empty_table(struct content_index_writer *w, size_t slots)
{
    free(w->slot);
    w->slot = mem_array(slots, sizeof w->slot[0]);
    w->slots = slots;
}

struct content_index_writer *content_index_writer_new(void)
{
    struct content_index_writer *w = NEW(struct content_index_writer);

    w->objects = BUF_INIT((size_t)CONTENT_INDEX_ROWS_MAX * CONTENT_INDEX_OBJECT_BYTES);
    w->rows = BUF_INIT((size_t)CONTENT_INDEX_ROWS_MAX * CONTENT_INDEX_ROW_BYTES);
    empty_table(w, SLOTS_FIRST);
    return w;
}

void content_index_writer_free(struct content_index_writer **wp)
{
    struct content_index_writer *w = *wp;

    *wp = NULL;
    if (w == NULL) {
        return;
    }
    buf_free(&w->objects);
    buf_free(&w->rows);
    free(w->slot);
    free(w);
}

uint32_t content_index_new_object(struct content_index_writer *w)
{
    static const char empty[CONTENT_INDEX_OBJECT_BYTES];

    buf_add(&w->objects, empty, sizeof empty);
    CHECK(w->objects.rc == 0);
    return (uint32_t)(w->objects.n / CONTENT_INDEX_OBJECT_BYTES - 1);
}

void content_index_set_object(struct content_index_writer *w, uint32_t object,
                              const struct content_object *o)
{
    char *p = w->objects.p + (size_t)object * CONTENT_INDEX_OBJECT_BYTES;

    CHECK(object < w->objects.n / CONTENT_INDEX_OBJECT_BYTES);
    be_put(p, 1, o->kind);
    be_put(p + 1, 8, o->nonce);
    be_put(p + 9, 8, o->size_bytes);
}

static void make_key(enum content_kind kind, const struct digest *d, uint8_t key[KEY_BYTES])
{
    memcpy(key, d->b, DIGEST_BYTES);
    key[DIGEST_BYTES] = (uint8_t)kind;
}

/* Where the row of this key is, or belongs. */
static uint32_t *find_row(const struct content_index_writer *w, const uint8_t key[KEY_BYTES])
{
    size_t i = (size_t)be_get(key, 8) % w->slots;

    while (w->slot[i] != 0 && memcmp(w->rows.p + (size_t)(w->slot[i] - 1) * CONTENT_INDEX_ROW_BYTES,
                                     key, KEY_BYTES) != 0) {
        i = (i + 1) % w->slots;
    }
    return &w->slot[i];
}

static void double_table(struct content_index_writer *w)
{
    empty_table(w, 2 * w->slots);
    for (size_t i = 0; i < w->count; i++) {
        const char *row = w->rows.p + i * CONTENT_INDEX_ROW_BYTES;
        *find_row(w, (const uint8_t *)row) = (uint32_t)i + 1;
    }
}

bool content_index_has(const struct content_index_writer *w, enum content_kind kind,
                       const struct digest *d)
{
    uint8_t key[KEY_BYTES];

    make_key(kind, d, key);
    return *find_row(w, key) != 0;
}

size_t content_index_count(const struct content_index_writer *w)
{
    return w->count;
}

void content_index_add(struct content_index_writer *w, const struct content_item *it,
                       uint32_t object)
{
    uint8_t key[KEY_BYTES];
    uint32_t *slot;

    CHECK(w->count < CONTENT_INDEX_ROWS_MAX);
    if (2 * (w->count + 1) >= w->slots) {
        double_table(w);
    }
    make_key(it->kind, &it->digest, key);
    slot = find_row(w, key);
    CHECK(*slot == 0);
    buf_add(&w->rows, key, KEY_BYTES);
    buf_byte(&w->rows, (uint8_t)it->coding);
    buf_be(&w->rows, 4, object);
    buf_be(&w->rows, 8, it->offset);
    buf_be(&w->rows, 8, it->stored_bytes);
    buf_be(&w->rows, 8, it->length_bytes);
    *slot = (uint32_t)++w->count;
}

static int compare_rows(const void *a, const void *b)
{
    return memcmp(a, b, KEY_BYTES);
}

void content_index_finish(struct content_index_writer *w, struct buf *out)
{
    struct digest own;

    if (w->count != 0) {
        qsort(w->rows.p, w->count, CONTENT_INDEX_ROW_BYTES, compare_rows);
    }
    buf_clear(out);
    buf_adds(out, MAGIC);
    buf_be(out, 4, w->objects.n / CONTENT_INDEX_OBJECT_BYTES);
    buf_be(out, 4, w->count);
    buf_adds(out, buf_slice(&w->objects));
    buf_adds(out, buf_slice(&w->rows));
    digest_of(buf_slice(out), &own);
    buf_add(out, own.b, DIGEST_BYTES);
    CHECK(out->rc == 0);
    buf_clear(&w->objects);
    buf_clear(&w->rows);
    empty_table(w, SLOTS_FIRST);
    w->count = 0;
}

/* --- reading --- */

size_t content_index_objects(const struct content_index *ix)
{
    return ix->objects.n / CONTENT_INDEX_OBJECT_BYTES;
}

void content_index_object(const struct content_index *ix, size_t i, struct content_object *o)
{
    const char *p = ix->objects.p + i * CONTENT_INDEX_OBJECT_BYTES;

    o->kind = (enum content_object_kind)(uint8_t)p[0];
    o->nonce = be_get(p + 1, 8);
    o->size_bytes = be_get(p + 9, 8);
}

static const char *row_at(const struct content_index *ix, size_t i)
{
    return ix->rows.p + i * CONTENT_INDEX_ROW_BYTES;
}

static uint64_t read_row(const char *p, struct content_item *it)
{
    memcpy(it->digest.b, p, DIGEST_BYTES);
    p += DIGEST_BYTES;
    it->kind = (enum content_kind)(uint8_t)p[0];
    it->coding = (enum content_coding)(uint8_t)p[1];
    it->offset = be_get(p + 6, 8);
    it->stored_bytes = be_get(p + 14, 8);
    it->length_bytes = be_get(p + 22, 8);
    return be_get(p + 2, 4);
}

uint32_t content_index_row_object(const struct content_index *ix, size_t row)
{
    struct content_item it;

    CHECK(row < ix->count);
    return (uint32_t)read_row(row_at(ix, row), &it);
}

void content_index_row(const struct content_index *ix, size_t i, struct content_item *it,
                       struct content_object *o)
{
    CHECK(i < ix->count);
    content_index_object(ix, (size_t)read_row(row_at(ix, i), it), o);
}

bool content_index_find(const struct content_index *ix, enum content_kind kind,
                        const struct digest *d, struct content_item *it, struct content_object *o)
{
    size_t from = 0, end = ix->count;
    uint8_t key[KEY_BYTES];

    make_key(kind, d, key);
    while (from < end) {
        size_t mid = from + (end - from) / 2;
        int c = memcmp(key, row_at(ix, mid), KEY_BYTES);
        if (c == 0) {
            content_index_row(ix, mid, it, o);
            return true;
        }
        if (c < 0) {
            end = mid;
        } else {
            from = mid + 1;
        }
    }
    return false;
}

static int check_rows_and_objects(const struct content_index *ix, struct err *e)
{
    size_t objects = content_index_objects(ix);
    struct content_object o;
    struct content_item it;

    for (size_t i = 0; i < objects; i++) {
        content_index_object(ix, i, &o);
        if (o.kind != CONTENT_PACK && o.kind != CONTENT_ALONE) {
            return err_set(e, E_CORRUPT, "object %zu of an index is of no known kind", i);
        }
    }
    for (size_t i = 0; i < ix->count; i++) {
        uint64_t object = read_row(row_at(ix, i), &it);
        if (object >= objects ||
            (i != 0 && memcmp(row_at(ix, i - 1), row_at(ix, i), KEY_BYTES) >= 0)) {
            return err_set(e, E_CORRUPT, "row %zu of an index is out of order", i);
        }
        content_index_object(ix, (size_t)object, &o);
        if (!content_fits(&it, &o)) {
            return err_set(e, E_CORRUPT, "row %zu of an index is invalid", i);
        }
    }
    return 0;
}

int content_index_open(struct slice bytes, struct content_index *out, struct err *e)
{
    struct slice rest;
    struct digest own;
    uint64_t objects, rows;

    *out = (struct content_index){0};
    if (bytes.n > CONTENT_INDEX_BYTES_MAX) {
        return err_set(e, E_TOOBIG, "an index has at most %d bytes", CONTENT_INDEX_BYTES_MAX);
    }
    if (bytes.n < CONTENT_INDEX_HEAD_BYTES + DIGEST_BYTES || !slice_starts(bytes, MAGIC_KIND)) {
        return err_set(e, E_CORRUPT, "these %zu bytes are not an index of the cluster", bytes.n);
    }
    rest = slice_first(bytes, bytes.n - DIGEST_BYTES);
    digest_of(rest, &own);
    if (memcmp(own.b, bytes.p + rest.n, DIGEST_BYTES) != 0) {
        return err_set(e, E_CORRUPT, "an index does not match its checksum");
    }
    if (!slice_starts(bytes, MAGIC)) {
        return format_refuse("an index", slice_first(bytes, MAGIC.n), MAGIC, e);
    }
    rest = slice_from(rest, MAGIC.n);
    if (!slice_be(&rest, 4, &objects) || !slice_be(&rest, 4, &rows) ||
        rows > CONTENT_INDEX_ROWS_MAX || objects > rows ||
        rest.n != objects * CONTENT_INDEX_OBJECT_BYTES + rows * CONTENT_INDEX_ROW_BYTES) {
        return err_set(e, E_CORRUPT, "an index has an invalid number of rows");
    }
    out->objects = slice_first(rest, (size_t)objects * CONTENT_INDEX_OBJECT_BYTES);
    out->rows = slice_from(rest, out->objects.n);
    out->count = (size_t)rows;
    return check_rows_and_objects(out, e);
}
