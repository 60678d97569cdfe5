#include "server/cluster/place.h"

#include "common/base/endian.h"
#include "server/store/batch.h"

enum {
    PLACE_KEY_BYTES = DIGEST_BYTES + 1,
    EARLIER_PLACE_BYTES = 1 + 8 + 8 + 1 + 8 + 8 + 8,
    PLACE_BYTES = EARLIER_PLACE_BYTES + 8,
    INDEX_VALUE_BYTES = 8,
};

static struct slice key_of_place(enum content_kind kind, const struct digest *d,
                                 char key[PLACE_KEY_BYTES])
{
    memcpy(key, d->b, DIGEST_BYTES);
    key[DIGEST_BYTES] = (char)kind;
    return slice_of(key, PLACE_KEY_BYTES);
}

void place_put(struct batch *b, const struct place *p)
{
    char key[PLACE_KEY_BYTES], value[PLACE_BYTES];

    value[0] = (char)p->object.kind;
    be_put(value + 1, 8, p->object.nonce);
    be_put(value + 9, 8, p->object.size_bytes);
    value[17] = (char)p->item.coding;
    be_put(value + 18, 8, p->item.offset);
    be_put(value + 26, 8, p->item.stored_bytes);
    be_put(value + 34, 8, p->item.length_bytes);
    be_put(value + 42, 8, p->index);
    batch_put(b, TABLE_PLACE, key_of_place(p->item.kind, &p->item.digest, key),
              slice_of(value, sizeof value));
}

void places_put(struct batch *b, const struct content_index *ix, uint64_t nonce)
{
    for (size_t i = 0; i < ix->count; i++) {
        struct place p = {.index = nonce};
        content_index_row(ix, i, &p.item, &p.object);
        place_put(b, &p);
    }
}

int place_decode(struct slice key, struct slice value, struct place *out, struct err *e)
{
    *out = (struct place){.index = 0};
    if (key.n != PLACE_KEY_BYTES || (value.n != PLACE_BYTES && value.n != EARLIER_PLACE_BYTES)) {
        return err_set(e, E_CORRUPT, "the row of a place has %zu and %zu bytes", key.n, value.n);
    }
    memcpy(out->item.digest.b, key.p, DIGEST_BYTES);
    out->item.kind = (enum content_kind)key.p[DIGEST_BYTES];
    out->object.kind = (enum content_object_kind)value.p[0];
    out->object.nonce = be_get(value.p + 1, 8);
    out->object.size_bytes = be_get(value.p + 9, 8);
    out->item.coding = (enum content_coding)value.p[17];
    out->item.offset = be_get(value.p + 18, 8);
    out->item.stored_bytes = be_get(value.p + 26, 8);
    out->item.length_bytes = be_get(value.p + 34, 8);
    if (value.n == PLACE_BYTES) {
        out->index = be_get(value.p + 42, 8);
    }
    return content_fits(&out->item, &out->object)
               ? 0
               : err_set(e, E_CORRUPT, "the row of a place cannot be decoded");
}

int place_get(struct store *s, enum content_kind kind, const struct digest *d, struct place *out,
              struct err *e)
{
    struct buf value = BUF_INIT(PLACE_BYTES);
    char bytes[PLACE_KEY_BYTES];
    struct slice key = key_of_place(kind, d, bytes);
    int rc = store_get(s, TABLE_PLACE, key, &value, e);

    rc = rc != 0 ? rc : place_decode(key, buf_slice(&value), out, e);
    buf_free(&value);
    return rc;
}

int place_counts(struct store *s, enum content_kind kind, const struct digest *d, bool *yes,
                 struct err *e)
{
    struct place p;
    int rc = place_get(s, kind, d, &p, e);

    *yes = false;
    if (rc == 0) {
        rc = index_is_there(s, p.index, yes, e);
    }
    return rc == E_NOTFOUND ? 0 : rc;
}

bool place_in_batch(const struct batch_rows *rows, enum content_kind kind, const struct digest *d)
{
    char key[PLACE_KEY_BYTES];
    struct slice value;

    return batch_rows_get(rows, TABLE_PLACE, key_of_place(kind, d, key), &value);
}

static struct slice key_of_index(uint64_t nonce, char key[INDEX_KEY_BYTES])
{
    be_put(key, INDEX_KEY_BYTES, nonce);
    return slice_of(key, INDEX_KEY_BYTES);
}

void index_put(struct batch *b, uint64_t nonce, uint64_t begun_unix_s)
{
    char key[INDEX_KEY_BYTES], value[INDEX_VALUE_BYTES];

    be_put(value, sizeof value, begun_unix_s);
    batch_put(b, TABLE_INDEX, key_of_index(nonce, key), slice_of(value, sizeof value));
}

int index_put_written(struct batch *b, uint64_t nonce, struct slice bytes, uint64_t begun_unix_s,
                      struct err *e)
{
    struct content_index ix;
    int rc = content_index_open(bytes, &ix, e);

    if (rc == 0) {
        places_put(b, &ix, nonce);
        index_put(b, nonce, begun_unix_s);
    }
    return rc;
}

void index_del(struct batch *b, const struct index_row *row)
{
    char key[INDEX_KEY_BYTES], value[INDEX_VALUE_BYTES];
    struct slice k = key_of_index(row->nonce, key);

    be_put(value, sizeof value, row->begun_unix_s);
    batch_require_value(b, TABLE_INDEX, k,
                        row->timeless ? SLICE("") : slice_of(value, sizeof value));
    batch_del(b, TABLE_INDEX, k);
}

int index_decode(struct slice key, struct slice value, struct index_row *out, struct err *e)
{
    if (key.n != INDEX_KEY_BYTES || (value.n != 0 && value.n != INDEX_VALUE_BYTES)) {
        return err_set(e, E_CORRUPT, "the row of an index has %zu and %zu bytes", key.n, value.n);
    }
    *out = (struct index_row){.nonce = be_get(key.p, INDEX_KEY_BYTES), .timeless = value.n == 0};
    if (!out->timeless) {
        out->begun_unix_s = be_get(value.p, INDEX_VALUE_BYTES);
    }
    return 0;
}

int index_is_there(struct store *s, uint64_t nonce, bool *yes, struct err *e)
{
    struct buf value = BUF_INIT(INDEX_VALUE_BYTES);
    char key[INDEX_KEY_BYTES];
    int rc = store_get(s, TABLE_INDEX, key_of_index(nonce, key), &value, e);

    *yes = rc == 0;
    buf_free(&value);
    return rc == E_NOTFOUND ? 0 : rc;
}
