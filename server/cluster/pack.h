/* pack.h - many small items in one object of a cluster's bucket, which can be read without an
 * index.
 *
 *   items     each from an offset that is a multiple of 64, with zeros before it
 *   footer    "mrdpak01"              8 bytes
 *             rows, one for each item, in the order of the items:
 *                 digest              32
 *                 kind, coding        1, 1: enum content_kind, enum content_coding
 *                 offset              4, big-endian as all numbers
 *                 stored, length      4, 4: bytes in the pack, bytes when decoded
 *             bytes of the footer     4, all of it
 *             SHA-256                 32, of the footer's bytes before it
 *
 * Items are appended in the order given. An item is compressed (one zstd frame) if that saves at
 * least 64 bytes. The items of a pack take at most 16 MiB with the zeros. The footer has no
 * checksum of the items, because each item has its own.
 *
 * A writer hashes the pack while it grows. An item that is stored as it is is checked in the same
 * pass, for which its offset has to be a multiple of SHA-256's block (sha256.h): one pass over the
 * bytes gives both.
 *
 * owns     a writer owns its bytes (up to PACK_BYTES_MAX) until pack_finish()
 * threads  one at a time for each writer; pure
 * errors   E_CORRUPT: an item does not match its digest; not a pack, or a damaged one.
 *          E_UNSUPPORTED: a pack of a later format
 */
#ifndef SERVER_CLUSTER_PACK_H
#define SERVER_CLUSTER_PACK_H

#include "server/cluster/content.h"

enum {
    PACK_ALIGN = 64,
    PACK_ITEMS_BYTES = 16 << 20, /* of all items */
    PACK_ITEMS_MAX = 1 << 16,
    PACK_ROW_BYTES = DIGEST_BYTES + 1 + 1 + 4 + 4 + 4,
    PACK_TAIL_BYTES = 4 + DIGEST_BYTES,
    PACK_FOOTER_MIN = 8 + PACK_TAIL_BYTES,
    PACK_BYTES_MAX = PACK_ITEMS_BYTES + PACK_ITEMS_MAX * PACK_ROW_BYTES + PACK_FOOTER_MIN,
};

struct pack_writer;
struct pack_writer *pack_writer_new(void);
void pack_writer_free(struct pack_writer **wp);
/* Whether one more item of this length goes in. An empty pack has room for every item of less than
 * CONTENT_SMALL_BYTES. */
bool pack_has_room(const struct pack_writer *w, size_t length_bytes);
size_t pack_count(const struct pack_writer *w);
/* Appends an item, for which pack_has_room(). bytes: those of the item, for a list of chunks with
 * its own SHA-256 (content_seal_chunks()). out: where it lies. E_CORRUPT: the bytes do not match
 * the digest; the pack then cannot be finished. */
MUST_USE int pack_add(struct pack_writer *w, enum content_kind kind, const struct digest *d,
                      struct slice bytes, struct content_item *out, struct err *e);
/* Writes the footer and hands the pack over: out gets its bytes, sha256 that of all of them. The
 * writer begins a new, empty pack, in the memory that out had. */
void pack_finish(struct pack_writer *w, struct buf *out, struct digest *sha256);

struct pack_footer {
    struct slice rows; /* borrowed */
    size_t count;
};
/* How long the footer of a pack of this size is. tail: its last PACK_TAIL_BYTES. */
MUST_USE int pack_footer_bytes(struct slice tail, uint64_t pack_bytes, uint64_t *out,
                               struct err *e);
/* Reads the footer of a pack. tail: its last bytes, which have the footer; the whole pack is fine.
 * Every row is checked: its item lies in the pack and after the item before it. */
MUST_USE int pack_footer_read(struct slice tail, uint64_t pack_bytes, struct pack_footer *out,
                              struct err *e);
void pack_footer_item(const struct pack_footer *f, size_t i, struct content_item *out);

#endif
