/* catalog.h - the files of a bucket, or of a part of it: each with its path, its size and the hash
 * that names its content in the Hub's chunk store.
 *
 * Bytes without pointers, made of the Hub's listing, page by page. Files without a hash are in it,
 * folders are not. A bucket may change between two pages, so a path may be there twice.
 *
 * Of a listing that is passed on as it is, the last upload alone is kept: uploads_add().
 *
 * owns     what is read from a catalog are slices of its bytes
 * threads  any; finding is O(log files)
 * errors   E_PROTOCOL: the listing is broken
 */
#ifndef SERVER_REPO_HF_CATALOG_H
#define SERVER_REPO_HF_CATALOG_H

#include "common/base/buf.h"
#include "common/hash/digest.h"

enum catalog_order {
    CATALOG_BY_PATH,
    CATALOG_BY_HASH,
    CATALOG_OF_WORDS, /* by path, with what the Hub says of each file */
    CATALOG_OF_WORDS_WITHOUT_HASHES,
};

/* With the last page *out becomes a catalog in that order. */
MUST_USE int catalog_add(struct slice page, enum catalog_order order, bool first, bool last,
                         struct buf *out, struct err *e);

/* *out becomes the time of the last upload in all pages so far, for uploads_unix_s(). */
MUST_USE int uploads_add(struct slice page, bool first, struct buf *out, struct err *e);
MUST_USE uint64_t uploads_unix_s(struct slice uploads);

struct catalog_file {
    struct slice path;
    struct slice words; /* JSON; "" where the catalog has none */
    uint64_t size_bytes;
    bool named;         /* there is a hash */
    struct digest hash; /* the Hub's Xet hash: 32 bytes in the order of its hexadecimal digits */
};
/* In a catalog by path. False: no such file. */
MUST_USE bool catalog_find(struct slice catalog, struct slice path, struct catalog_file *out);
/* In a catalog by hash. */
MUST_USE bool catalog_find_hash(struct slice catalog, const struct digest *hash,
                                struct catalog_file *out);
/* When the file was uploaded that was uploaded last, by the Hub's clock. 0: the Hub tells no times,
 * or there is no file. */
MUST_USE uint64_t catalog_uploaded_unix_s(struct slice catalog);
/* Did the Hub list the files in the order of their paths' bytes? */
MUST_USE bool catalog_in_order(struct slice catalog);
/* ... and is this path not behind the last of them? */
MUST_USE bool catalog_reaches(struct slice catalog, struct slice path);

#endif
