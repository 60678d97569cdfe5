/* catalog.h - the files of a bucket, or of a part of it: each with its path, its size and its
 * content's hash in the Hub's chunk store.
 *
 * A catalog is bytes without pointers, made from the Hub's listing, page by page. It includes files
 * without a hash, but no folders. A bucket may change between two pages, so it may have a path
 * twice. Of a listing that is passed on unchanged, only the time of the last upload is kept:
 * uploads_add().
 *
 * owns     results are slices of the catalog's bytes
 * threads  any; finding is O(log files)
 * errors   E_PROTOCOL: the listing is malformed
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

/* After the last page *out is a catalog in that order. */
MUST_USE int catalog_add(struct slice page, enum catalog_order order, bool first, bool last,
                         struct buf *out, struct err *e);

/* Sets *out to the time of the last upload in all pages so far, for uploads_unix_s(). */
MUST_USE int uploads_add(struct slice page, bool first, struct buf *out, struct err *e);
MUST_USE uint64_t uploads_unix_s(struct slice uploads);

struct catalog_file {
    struct slice path;
    struct slice words; /* JSON; "" if the catalog has none */
    uint64_t size_bytes;
    bool named;         /* it has a hash */
    struct digest hash; /* the Hub's Xet hash: 32 bytes in the order of its hexadecimal digits */
};
/* In a catalog by path. False: there is no such file. */
MUST_USE bool catalog_find(struct slice catalog, struct slice path, struct catalog_file *out);
/* In a catalog by hash. */
MUST_USE bool catalog_find_hash(struct slice catalog, const struct digest *hash,
                                struct catalog_file *out);
/* The time of the last upload, by the Hub's clock. 0: the Hub gives no times, or there is no
 * file. */
MUST_USE uint64_t catalog_uploaded_unix_s(struct slice catalog);
/* Did the Hub list the files in byte order of their paths? */
MUST_USE bool catalog_in_order(struct slice catalog);
/* If so: is this path not after the last of them? */
MUST_USE bool catalog_reaches(struct slice catalog, struct slice path);

#endif
