#include "server/store/alias.h"

struct slice alias_key(const struct sha512 *name)
{
    return slice_of((const char *)name->b, SHA512_BYTES);
}

void alias_put(struct batch *b, const struct sha512 *name, const struct digest *d)
{
    batch_put(b, TABLE_ALIAS, alias_key(name), slice_of((const char *)d->b, DIGEST_BYTES));
}

bool alias_decode(struct slice value, struct digest *out)
{
    if (value.n != DIGEST_BYTES) {
        return false;
    }
    memcpy(out->b, value.p, DIGEST_BYTES);
    return true;
}

static int get(struct store *s, const struct sha512 *name, struct digest *out, struct err *e)
{
    struct buf row = BUF_INIT(256);
    int rc = store_get(s, TABLE_ALIAS, alias_key(name), &row, e);

    if (rc == 0 && !alias_decode(buf_slice(&row), out)) {
        rc = err_set(e, E_CORRUPT, "the row of a SHA-512 cannot be decoded");
    }
    buf_free(&row);
    return rc;
}

int alias_find(struct store *s, const struct called *c, struct digest *out, bool *known,
               struct err *e)
{
    int rc = 0;

    *known = c->by == CALLED_SHA256;
    *out = c->sha256;
    if (c->by == CALLED_SHA512) {
        rc = get(s, &c->sha512, out, e);
        *known = rc == 0;
    }
    return rc == E_NOTFOUND ? 0 : rc;
}
