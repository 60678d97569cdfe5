#include "server/store/drop.h"
#include "server/store/state.h"

enum { HOLDER_KEY_MAX = 8192 };

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

static int on_holder_row(void *arg, struct slice row_key, struct slice value)
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

/* All whose keys begin with `prefix`. */
static int scan_prefix(struct store *s, struct slice prefix,
                       int (*row)(void *arg, struct slice key, struct slice value), void *arg,
                       struct err *e)
{
    struct buf end = BUF_INIT(prefix.n);
    bool bounded = key_after_prefix(prefix, &end);
    int rc = kv_scan(s->kv, NULL, TABLE_HOLDER, prefix, bounded ? buf_slice(&end) : SLICE_NONE, row,
                     arg, e);

    buf_free(&end);
    return rc;
}

int holder_each(struct store *s, const struct digest *d,
                int (*each)(void *arg, struct slice repo, char kind, struct slice key), void *arg,
                struct err *e)
{
    struct holder_walk w = {each, arg};

    return scan_prefix(s, digest_key(d), on_holder_row, &w, e);
}

int holder_each_of(struct store *s, const struct digest *d, struct slice repo, char kind,
                   int (*each)(void *arg, struct slice repo, char kind, struct slice key),
                   void *arg, struct err *e)
{
    struct holder_walk w = {each, arg};
    struct buf prefix = BUF_INIT(HOLDER_KEY_MAX);
    int rc;

    holder_key(&prefix, d, repo, kind, SLICE(""));
    rc = prefix.rc != 0 ? 0 : scan_prefix(s, buf_slice(&prefix), on_holder_row, &w, e);
    buf_free(&prefix);
    return rc;
}

/* --- passing over ----------------------------------------------------------------------------- */

enum { STEPS = 8 }; /* to step over a few rows costs less than to begin a scan anew */

struct holder_jump {
    int (*each)(void *arg, struct slice repo, char kind, struct slice key, struct buf *to);
    void *arg;
    struct buf to;
    struct buf next; /* rows before it are passed over; empty: none are */
    unsigned steps;
};

static void set_next(struct holder_jump *j, struct slice row_key, struct slice repo)
{
    size_t n = DIGEST_BYTES + repo.n;

    buf_clear(&j->next);
    buf_adds(&j->next, slice_first(row_key, n));
    buf_byte(&j->next, j->to.n == 0); /* behind the NUL there is nothing of this repo */
    buf_adds(&j->next, buf_slice(&j->to));
    j->steps = 0;
}

static int on_jump_row(void *arg, struct slice row_key, struct slice value)
{
    struct holder_jump *j = arg;
    struct slice repo, key;
    char kind;
    int rc;

    (void)value;
    if (j->next.n != 0 && slice_cmp(row_key, buf_slice(&j->next)) < 0) {
        return ++j->steps < STEPS ? 0 : HOLDER_SKIP;
    }
    buf_clear(&j->next);
    if (!holder_parse(row_key, &repo, &kind, &key)) {
        return 0;
    }
    buf_clear(&j->to);
    rc = j->each(j->arg, repo, kind, key, &j->to);
    if (rc == HOLDER_SKIP) {
        set_next(j, row_key, repo);
        rc = 0;
    }
    return rc;
}

int holder_seek(struct store *s, const struct digest *d,
                int (*each)(void *arg, struct slice repo, char kind, struct slice key,
                            struct buf *to),
                void *arg, struct err *e)
{
    struct holder_jump j = {each, arg, BUF_INIT(HOLDER_KEY_MAX), BUF_INIT(2 * HOLDER_KEY_MAX), 0};
    struct buf from = BUF_INIT(2 * HOLDER_KEY_MAX), end = BUF_INIT(DIGEST_BYTES);
    bool bounded = key_after_prefix(digest_key(d), &end);
    int rc;

    buf_adds(&from, digest_key(d));
    do {
        rc = kv_scan(s->kv, NULL, TABLE_HOLDER, buf_slice(&from),
                     bounded ? buf_slice(&end) : SLICE_NONE, on_jump_row, &j, e);
        buf_clear(&from);
        buf_adds(&from, buf_slice(&j.next));
    } while (rc == HOLDER_SKIP);
    buf_free(&j.to);
    buf_free(&j.next);
    buf_free(&from);
    buf_free(&end);
    return rc;
}
