#include "common/codec/sheaf.h"

#include "common/base/endian.h"

void sheaf_put_head(struct buf *out, uint32_t n)
{
    buf_be(out, SHEAF_HEAD_BYTES, n);
}

void sheaf_reader_init(struct sheaf_reader *r, size_t asked)
{
    *r = (struct sheaf_reader){.due = asked};
}

static struct slice cut(struct slice *rest, size_t n)
{
    struct slice first = slice_first(*rest, n < rest->n ? n : rest->n);

    *rest = slice_from(*rest, first.n);
    return first;
}

static int next_head(struct sheaf_reader *r, struct slice *rest, struct err *e)
{
    struct slice some;

    if (r->due == 0) {
        return err_set(e, E_PROTOCOL, "more records than were asked for");
    }
    some = cut(rest, SHEAF_HEAD_BYTES - r->nhead);
    memcpy(r->head + r->nhead, some.p, some.n);
    r->nhead += (unsigned)some.n;
    if (r->nhead < SHEAF_HEAD_BYTES) {
        return SHEAF_NEED;
    }
    r->nhead = 0;
    r->n = (uint32_t)be_get(r->head, SHEAF_HEAD_BYTES);
    r->inside = r->n != SHEAF_ABSENT && r->n != SHEAF_ALONE;
    if (r->inside && r->n > SHEAF_BLOB_MAX) {
        return err_set(e, E_PROTOCOL, "a record of %lu bytes", (unsigned long)r->n);
    }
    r->left = r->inside ? r->n : 0;
    r->due--;
    return SHEAF_RECORD;
}

int sheaf_next(struct sheaf_reader *r, struct slice *rest, struct slice *out, struct err *e)
{
    *out = SLICE_NONE;
    if (r->inside && r->left == 0) {
        r->inside = false;
        return SHEAF_WHOLE;
    }
    if (rest->n == 0) {
        return SHEAF_NEED;
    }
    if (!r->inside) {
        return next_head(r, rest, e);
    }
    *out = cut(rest, r->left);
    r->left -= (uint32_t)out->n;
    return SHEAF_SOME;
}

bool sheaf_between(const struct sheaf_reader *r)
{
    return !r->inside && r->nhead == 0;
}
