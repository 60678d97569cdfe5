#include "server/cluster/dead_list.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/endian.h"
#include "server/cluster/format.h"

#define MAGIC      SLICE("mrddel01")
#define MAGIC_KIND SLICE("mrddel")

enum { OBJECT_BYTES = 1 + 8 + 8 };

void dead_list_key(uint64_t nonce, char key[CONTENT_KEY_ROOM])
{
    snprintf(key, CONTENT_KEY_ROOM, DEAD_LISTS "%016" PRIx64, nonce);
}

void dead_object_key(const struct dead_object *o, char key[CONTENT_KEY_ROOM])
{
    const struct content_object content = {.kind = (enum content_object_kind)o->kind,
                                           .nonce = o->nonce};

    switch (o->kind) {
    case DEAD_INDEX:
        content_index_key(o->nonce, key);
        break;
    case DEAD_LIST:
        dead_list_key(o->nonce, key);
        break;
    case DEAD_PACK:
    case DEAD_BLOB:
        content_key(&content, key);
        break;
    }
}

bool dead_object_parse(struct slice key, struct dead_object *out)
{
    char again[CONTENT_KEY_ROOM];
    uint8_t nonce[8];

    if (key.n < 2 * sizeof nonce ||
        !slice_hex(slice_from(key, key.n - 2 * sizeof nonce), nonce, sizeof nonce)) {
        return false;
    }
    *out = (struct dead_object){.nonce = be_get(nonce, 8)};
    for (unsigned kind = DEAD_PACK; kind <= DEAD_LIST; kind++) {
        out->kind = (enum dead_kind)kind;
        dead_object_key(out, again);
        if (slice_eq(slice_str(again), key)) {
            return true;
        }
    }
    return false;
}

void dead_list_begin(struct buf *list)
{
    buf_clear(list);
    buf_adds(list, MAGIC);
}

void dead_list_add(struct buf *list, const struct dead_object *o)
{
    buf_byte(list, (uint8_t)o->kind);
    buf_be(list, 8, o->nonce);
    buf_be(list, 8, o->size_bytes);
}

void dead_list_finish(struct buf *list)
{
    struct digest own;

    digest_of(buf_slice(list), &own);
    buf_add(list, own.b, DIGEST_BYTES);
}

int dead_list_open(struct slice bytes, struct slice *objects, struct err *e)
{
    struct slice rest;
    struct digest own;

    if (bytes.n < MAGIC.n + DIGEST_BYTES || !slice_starts(bytes, MAGIC_KIND)) {
        return err_set(e, E_CORRUPT, "these %zu bytes are not a list of dead objects", bytes.n);
    }
    rest = slice_first(bytes, bytes.n - DIGEST_BYTES);
    digest_of(rest, &own);
    if (memcmp(own.b, bytes.p + rest.n, DIGEST_BYTES) != 0) {
        return err_set(e, E_CORRUPT, "a list of dead objects does not match its checksum");
    }
    if (!slice_starts(bytes, MAGIC)) {
        return format_refuse("a list of dead objects", slice_first(bytes, MAGIC.n), MAGIC, e);
    }
    *objects = slice_from(rest, MAGIC.n);
    for (struct slice left = *objects; left.n != 0; left = slice_from(left, OBJECT_BYTES)) {
        if (left.n < OBJECT_BYTES || left.p[0] < DEAD_PACK || left.p[0] > DEAD_LIST) {
            return err_set(e, E_CORRUPT, "a list of dead objects is invalid");
        }
    }
    return 0;
}

bool dead_list_next(struct slice *objects, struct dead_object *out)
{
    if (objects->n == 0) {
        return false;
    }
    *out = (struct dead_object){.kind = (enum dead_kind)objects->p[0],
                                .nonce = be_get(objects->p + 1, 8),
                                .size_bytes = be_get(objects->p + 9, 8)};
    *objects = slice_from(*objects, OBJECT_BYTES);
    return true;
}
