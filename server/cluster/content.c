#include "server/cluster/content.h"

#include <inttypes.h>
#include <stdio.h>
#include <zstd.h>

#include "common/hash/sha256.h"

void content_key(const struct content_object *o, char key[CONTENT_KEY_ROOM])
{
    snprintf(key, CONTENT_KEY_ROOM, "%s/%02x/%016" PRIx64,
             o->kind == CONTENT_PACK ? "pack" : "blob", (unsigned)(o->nonce >> 56), o->nonce);
}

void content_index_key(uint64_t nonce, char key[CONTENT_KEY_ROOM])
{
    snprintf(key, CONTENT_KEY_ROOM, "idx/%016" PRIx64, nonce);
}

bool content_fits(const struct content_item *it, const struct content_object *o)
{
    uint64_t end;

    if (it->kind < CONTENT_NODE || it->kind > CONTENT_CHUNKS ||
        (it->coding != CONTENT_RAW && it->coding != CONTENT_ZSTD) ||
        !add_u64(it->offset, it->stored_bytes, &end) || end > o->size_bytes) {
        return false;
    }
    if (o->kind == CONTENT_ALONE) {
        return it->coding == CONTENT_RAW && it->offset == 0 && it->stored_bytes == o->size_bytes &&
               it->length_bytes == it->stored_bytes &&
               (it->kind == CONTENT_BLOB || it->length_bytes <= CONTENT_WHOLE_BYTES);
    }
    return o->kind == CONTENT_PACK && it->length_bytes < CONTENT_SMALL_BYTES &&
           (it->coding == CONTENT_RAW ? it->stored_bytes == it->length_bytes
                                      : it->stored_bytes < it->length_bytes);
}

void content_seal_chunks(struct buf *list)
{
    struct digest d;

    digest_of(buf_slice(list), &d);
    buf_add(list, d.b, DIGEST_BYTES);
}

static int unpack(const struct content_item *it, struct slice stored, struct buf *out,
                  struct err *e)
{
    char *room = buf_room(out, (size_t)it->length_bytes);
    size_t n = (size_t)it->length_bytes;

    CHECK(room != NULL);
    if (it->coding == CONTENT_ZSTD) {
        n = ZSTD_decompress(room, n, stored.p, stored.n);
    } else if (stored.n != 0) {
        memcpy(room, stored.p, stored.n);
    }
    if (n != it->length_bytes) {
        return err_set(e, E_CORRUPT, "an item in the bucket cannot be decompressed");
    }
    buf_grew(out, n);
    return 0;
}

/* Removes the SHA-256 after the list. */
static bool chunks_match(const struct digest *blob, struct buf *list)
{
    struct chunk_list c;
    uint8_t own[SHA256_BYTES];
    bool good;

    if (list->n < SHA256_BYTES) {
        return false;
    }
    list->n -= SHA256_BYTES;
    sha256_of(list->p, list->n, own);
    good = memcmp(own, list->p + list->n, SHA256_BYTES) == 0 &&
           chunks_decode(buf_slice(list), &c, NULL) == 0;
    if (good) {
        good = digest_eq(&c.whole, blob);
        chunks_free(&c);
    }
    return good;
}

int content_decode(const struct content_item *it, struct slice stored, struct buf *out,
                   struct err *e)
{
    struct digest d;
    bool good;
    int rc;

    buf_clear(out);
    CHECK(it->length_bytes <= CONTENT_WHOLE_BYTES && it->length_bytes <= out->max);
    if (stored.n != it->stored_bytes ||
        (it->coding == CONTENT_RAW && it->stored_bytes != it->length_bytes)) {
        return err_set(e, E_CORRUPT, "an item in the bucket has another length");
    }
    rc = unpack(it, stored, out, e);
    if (rc != 0) {
        return rc;
    }
    if (it->kind == CONTENT_CHUNKS) {
        good = chunks_match(&it->digest, out);
    } else {
        digest_of(buf_slice(out), &d);
        good = digest_eq(&d, &it->digest);
    }
    return good ? 0 : err_set(e, E_CORRUPT, "an item in the bucket does not match its SHA-256");
}
