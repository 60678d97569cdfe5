#include "server/upload/parts.h"

#include <inttypes.h>
#include <stdio.h>

#include "server/upload/offer.h"
#include "server/upload/parts_priv.h"

#define ROWS "part/"
_Static_assert(PARTS_NAME_BYTES >= sizeof ROWS + DIGEST_HEX + 11, "a row's name has room");

/* --- how an object is divided ------------------------------------------------------------------------------------- */

uint32_t parts_count(uint64_t size_bytes, uint64_t part_bytes)
{
    return (uint32_t)((size_bytes + part_bytes - 1) / part_bytes);
}

void parts_divide(const struct put_object *object, size_t count, uint64_t *part_bytes)
{
    uint64_t all;

    for (size_t i = 0; i < count; i++) {
        uint64_t size = object[i].size_bytes;
        part_bytes[i] = size >= PARTS_FROM_BYTES ? PART_BYTES : 0;
        while (part_bytes[i] != 0 && (size - 1) / part_bytes[i] >= PARTS_MAX) {
            part_bytes[i] *= 2;
        }
    }
    do {
        all = 0;
        for (size_t i = 0; i < count; i++) {
            all += part_bytes[i] != 0 ? parts_count(object[i].size_bytes, part_bytes[i]) : 0;
        }
        for (size_t i = 0; i < count && all > PARTS_BATCH_MAX; i++) {
            part_bytes[i] *= 2;
        }
    } while (all > PARTS_BATCH_MAX);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

struct slice parts_row_name(const struct digest *d, uint32_t n, char out[PARTS_NAME_BYTES])
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    if (n == 0) {
        snprintf(out, PARTS_NAME_BYTES, ROWS "%s", hex);
    } else {
        snprintf(out, PARTS_NAME_BYTES, ROWS "%s/%" PRIu32, hex, n);
    }
    return slice_str(out);
}

struct slice parts_awaited(struct slice path)
{
    struct slice hex = slice_starts(path, SLICE(ROWS)) ? slice_from(path, sizeof ROWS - 1) : path;

    return hex.n == DIGEST_HEX && hex.p != path.p ? hex : SLICE_NONE;
}

void parts_row_put(const struct session *s, const struct digest *d, uint32_t n,
                   const struct session_file *f, struct batch *b)
{
    char name[PARTS_NAME_BYTES];

    if (f != NULL) {
        session_file_put(s, parts_row_name(d, n, name), f, b);
    } else {
        session_file_del(s, parts_row_name(d, n, name), b);
    }
}

int parts_row_load(struct store *store, const char *id, const struct digest *d, uint32_t n,
                   struct session_file *out, struct err *e)
{
    char name[PARTS_NAME_BYTES];

    return session_file_load(store, id, parts_row_name(d, n, name), out, e);
}

void parts_await(const struct session *s, const struct put_object *o, uint64_t part_bytes,
                 struct batch *b)
{
    struct session_file f = {.bytes = part_bytes, .total = o->size_bytes};
    char hex[DIGEST_HEX + 1];

    digest_format(&o->digest, hex);
    parts_row_put(s, &o->digest, 0, &f, b);
    offer_remember(s, slice_of(hex, DIGEST_HEX), b);
}

int parts_recall(struct store *store, const struct put *p, const struct put_object *o,
                 uint64_t now_unix_s, char id[UPLOAD_ID + 1], uint64_t *part_bytes, struct err *e)
{
    struct session_file f;
    struct session s;
    char hex[DIGEST_HEX + 1];
    int rc;

    digest_format(&o->digest, hex);
    rc = offer_recall(store, p, slice_of(hex, DIGEST_HEX), now_unix_s, &s, e);
    if (rc == 0) {
        rc = parts_row_load(store, s.id, &o->digest, 0, &f, e);
    }
    if (rc == 0 && f.total != o->size_bytes) {
        rc = E_NOTFOUND;
    }
    if (rc == 0) {
        memcpy(id, s.id, sizeof s.id);
        *part_bytes = f.bytes;
    }
    session_free(&s);
    return rc;
}

void parts_rows_drop(struct store *store, const struct session *s, const struct digest *d,
                     const struct session_file *f, struct batch *b)
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    for (uint32_t n = 0; n <= parts_count(f->total, f->bytes); n++) {
        parts_row_put(s, d, n, NULL, b);
    }
    offer_forget(store, s, slice_of(hex, DIGEST_HEX), b);
    partial_del(b, f->stage);
}
