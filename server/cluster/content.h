/* content.h - what the content of a cluster's trees is called in its bucket: items, and the objects
 * that have their bytes.
 *
 *   pack/<hh>/<nonce>   many items of less than 1 MiB (pack.h)
 *   blob/<hh>/<nonce>   the bytes of one item of 1 MiB or more, as they are
 *   idx/<nonce>         which item lies where (content_index.h)
 *
 * A nonce is 8 random bytes, written as 16 hexadecimal digits; hh are its first two. A name says
 * nothing about the content, so a key is written once and deleted once: a deletion that arrives
 * late cannot hit content that was uploaded again.
 *
 * A node and a blob are named by the SHA-256 of their bytes. A list of chunks is named by the
 * digest of its blob. It is stored with its own SHA-256 after it, so that every item can be checked
 * without any other.
 *
 * threads  any; pure
 * errors   E_CORRUPT: these bytes are not that item
 */
#ifndef SERVER_CLUSTER_CONTENT_H
#define SERVER_CLUSTER_CONTENT_H

#include "common/base/buf.h"
#include "common/hash/digest.h"

enum {
    CONTENT_SMALL_BYTES = 1 << 20,  /* an item of so many bytes is an object of its own */
    CONTENT_WHOLE_BYTES = 16 << 20, /* of a node and of a list of chunks, at most */
    CONTENT_KEY_ROOM = 32,
};

/* The numbers are those of the formats. */
enum content_kind { CONTENT_NODE = 1, CONTENT_BLOB = 2, CONTENT_CHUNKS = 3 };
enum content_coding { CONTENT_RAW = 0, CONTENT_ZSTD = 1 };
enum content_object_kind { CONTENT_PACK = 1, CONTENT_ALONE = 2 };

struct content_object {
    enum content_object_kind kind;
    uint64_t nonce;
    uint64_t size_bytes;
};

struct content_item {
    struct digest digest;
    enum content_kind kind;
    enum content_coding coding;
    uint64_t offset; /* in its object */
    uint64_t stored_bytes;
    uint64_t length_bytes; /* decoded */
};

/* "pack/4f/4f1c..." or "blob/4f/4f1c..." */
void content_key(const struct content_object *o, char key[CONTENT_KEY_ROOM]);
void content_index_key(uint64_t nonce, char key[CONTENT_KEY_ROOM]);

/* Whether the item may lie so in an object of this kind and size. */
MUST_USE bool content_fits(const struct content_item *it, const struct content_object *o);
/* Appends what comes after the bytes of a list of chunks. */
void content_seal_chunks(struct buf *list);
/* Decodes an item of at most CONTENT_WHOLE_BYTES and checks it. Clears out first, whose maximum
 * must allow it->length_bytes. The SHA-256 after a list of chunks is removed. */
MUST_USE int content_decode(const struct content_item *it, struct slice stored, struct buf *out,
                            struct err *e);

#endif
