#include "common/codec/blob_batch.h"

#include "common/base/endian.h"

void blob_batch_put_head(struct buf *out, uint32_t n)
{
    buf_be(out, BLOB_BATCH_HEAD_BYTES, n);
}

void blob_batch_reader_init(struct blob_batch_reader *r, size_t asked)
{
    *r = (struct blob_batch_reader){.due = asked};
}

static struct slice cut_batch_field(struct slice *rest, size_t n)
{
    struct slice first = slice_first(*rest, n < rest->n ? n : rest->n);

    *rest = slice_from(*rest, first.n);
    return first;
}

static int next_head(struct blob_batch_reader *r, struct slice *rest, struct err *e)
{
    struct slice some;

    if (r->due == 0) {
        return err_set(e, E_PROTOCOL, "the response has more records than were requested");
    }
    some = cut_batch_field(rest, BLOB_BATCH_HEAD_BYTES - r->nhead);
    memcpy(r->head + r->nhead, some.p, some.n);
    r->nhead += (unsigned)some.n;
    if (r->nhead < BLOB_BATCH_HEAD_BYTES) {
        return BLOB_BATCH_NEED;
    }
    r->nhead = 0;
    r->n = (uint32_t)be_get(r->head, BLOB_BATCH_HEAD_BYTES);
    r->inside = r->n != BLOB_BATCH_ABSENT && r->n != BLOB_BATCH_ALONE;
    if (r->inside && r->n > BLOB_BATCH_BLOB_MAX) {
        return err_set(e, E_PROTOCOL, "the response has a record of %lu bytes, which is too large",
                       (unsigned long)r->n);
    }
    r->left = r->inside ? r->n : 0;
    r->due--;
    return BLOB_BATCH_RECORD;
}

int blob_batch_next(struct blob_batch_reader *r, struct slice *rest, struct slice *out,
                    struct err *e)
{
    *out = SLICE_NONE;
    if (r->inside && r->left == 0) {
        r->inside = false;
        return BLOB_BATCH_WHOLE;
    }
    if (rest->n == 0) {
        return BLOB_BATCH_NEED;
    }
    if (!r->inside) {
        return next_head(r, rest, e);
    }
    *out = cut_batch_field(rest, r->left);
    r->left -= (uint32_t)out->n;
    return BLOB_BATCH_SOME;
}

bool blob_batch_between(const struct blob_batch_reader *r)
{
    return !r->inside && r->nhead == 0;
}
