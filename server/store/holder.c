#include "server/store/drop.h"
#include "server/store/state.h"

void holder_key(struct buf *out, const struct digest *d, struct slice repo, char kind,
                struct slice key)
{
    buf_adds(out, digest_key(d));
    buf_adds(out, repo);
    buf_byte(out, 0);
    buf_byte(out, (uint8_t)kind);
    buf_adds(out, key);
}

bool holder_parse(struct slice row_key, struct slice *repo, char *kind, struct slice *key)
{
    ptrdiff_t nul;

    if (row_key.n <= DIGEST_BYTES) {
        return false;
    }
    *key = slice_from(row_key, DIGEST_BYTES);
    nul = slice_find(*key, '\0');
    if (nul <= 0 || (size_t)nul + 2 > key->n) {
        return false;
    }
    *repo = slice_first(*key, (size_t)nul);
    *kind = key->p[nul + 1];
    *key = slice_from(*key, (size_t)nul + 2);
    return true;
}

struct holder_walk {
    int (*each)(void *arg, struct slice repo, char kind, struct slice key);
    void *arg;
};

static int on_row(void *arg, struct slice row_key, struct slice value)
{
    struct holder_walk *w = arg;
    struct slice repo, key;
    char kind;

    (void)value;
    return holder_parse(row_key, &repo, &kind, &key) ? w->each(w->arg, repo, kind, key) : 0;
}

bool key_after_prefix(struct slice prefix, struct buf *out)
{
    buf_clear(out);
    while (prefix.n != 0 && (uint8_t)prefix.p[prefix.n - 1] == 0xff) {
        prefix.n--;
    }
    if (prefix.n == 0) {
        return false;
    }
    buf_adds(out, prefix);
    out->p[out->n - 1]++;
    return true;
}

int holder_each(struct store *s, const struct digest *d,
                int (*each)(void *arg, struct slice repo, char kind, struct slice key), void *arg,
                struct err *e)
{
    struct holder_walk w = {each, arg};
    struct buf end = BUF_INIT(DIGEST_BYTES);
    bool bounded = key_after_prefix(digest_key(d), &end);
    int rc = kv_scan(s->kv, NULL, TABLE_HOLDER, digest_key(d),
                     bounded ? buf_slice(&end) : SLICE_NONE, on_row, &w, e);

    buf_free(&end);
    return rc;
}
