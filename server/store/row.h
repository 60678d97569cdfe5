/* row.h - the value of a row in TABLE_BLOB.
 *
 * Bytes after the known fields belong to a newer program and are ignored.
 *
 * threads  pure functions
 * errors   E_CORRUPT: the row cannot be decoded
 */
#ifndef SERVER_STORE_ROW_H
#define SERVER_STORE_ROW_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum blob_place { BLOB_INLINE = 1, BLOB_FILE = 2 };

struct blob_row {
    enum blob_place place;
    uint64_t size_bytes;
    /* Of the latest seal: a new reference makes an old blob young again. */
    uint64_t created_unix_s;
    uint64_t verified_unix_s; /* by scrub; 0: never */
};

enum { BLOB_ROW_BYTES = 26 };
void blob_row_encode(const struct blob_row *r, char out[BLOB_ROW_BYTES]);
MUST_USE int blob_row_decode(struct slice bytes, struct blob_row *out, struct err *e);

#endif
