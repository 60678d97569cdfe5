#include "server/store/row.h"

#include "common/base/endian.h"

/* version 1 | place 1 | size 8 | created 8 | verified 8 */
void blob_row_encode(const struct blob_row *r, char out[BLOB_ROW_BYTES])
{
    out[0] = 1;
    out[1] = (char)r->place;
    be_put(out + 2, 8, r->size_bytes);
    be_put(out + 10, 8, r->created_unix_s);
    be_put(out + 18, 8, r->verified_unix_s);
}

int blob_row_decode(struct slice bytes, struct blob_row *out, struct err *e)
{
    if (bytes.n < BLOB_ROW_BYTES || bytes.p[0] != 1 ||
        (bytes.p[1] != BLOB_INLINE && bytes.p[1] != BLOB_FILE)) {
        return err_set(e, E_CORRUPT, "the row of a blob cannot be decoded");
    }
    out->place = (enum blob_place)bytes.p[1];
    out->size_bytes = be_get(bytes.p + 2, 8);
    out->created_unix_s = be_get(bytes.p + 10, 8);
    out->verified_unix_s = be_get(bytes.p + 18, 8);
    return 0;
}
