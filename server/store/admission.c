#include "server/store/admission.h"

#include "server/store/row.h"
#include "server/store/state.h"

enum {
    ROW_MAX = 64 << 20,
    FREEING_BYTES = 256 << 10, /* what a batch that frees space may leave */
};

#define COUNTS_KEY SLICE("counts")

void admission_init(struct admission *a, struct store *s, const struct counts *counts)
{
    *a = (struct admission){.s = s,
                            .kvb = kv_batch_new(),
                            .row = BUF_INIT(ROW_MAX),
                            .counts = *counts,
                            .written = *counts};
}

void admission_fini(struct admission *a)
{
    kv_batch_free(&a->kvb);
    buf_free(&a->row);
}

static int current(struct admission *a, const struct batch_step *st, struct err *e)
{
    return kv_batch_get(a->s->kv, a->kvb, st->table, st->key, &a->row, e);
}

static int require(struct admission *a, const struct batch_step *st, struct err *e)
{
    int rc = current(a, st, e);

    if (st->op == OP_REQUIRE_ABSENT) {
        return rc == E_NOTFOUND ? 0 : rc != 0 ? rc : err_set(e, E_CHANGED, "the row exists by now");
    }
    if (rc == 0 && slice_eq(buf_slice(&a->row), st->value)) {
        return 0;
    }
    return rc == 0 || rc == E_NOTFOUND ? err_set(e, E_CHANGED, "the row changed meanwhile") : rc;
}

/* Every change of a blob's row moves the counters. */
static int count_blob(struct admission *a, const struct batch_step *st, struct err *e)
{
    struct blob_row row;
    int rc = current(a, st, e);

    if (rc == 0 && blob_row_decode(buf_slice(&a->row), &row, NULL) == 0) {
        counts_sub(&a->counts, row.size_bytes);
        a->counted = true;
    } else if (rc != 0 && rc != E_NOTFOUND) {
        return rc;
    }
    if (st->op == OP_PUT) {
        rc = blob_row_decode(st->value, &row, e);
        if (rc != 0) {
            return rc;
        }
        counts_add(&a->counts, row.size_bytes);
        a->counted = true;
    }
    return 0;
}

static int change(struct admission *a, const struct batch_step *st, struct err *e)
{
    int rc = st->table == TABLE_BLOB ? count_blob(a, st, e) : 0;

    if (rc == 0 && st->op == OP_PUT) {
        kv_batch_put(a->s->kv, a->kvb, st->table, st->key, st->value);
    } else if (rc == 0) {
        kv_batch_del(a->s->kv, a->kvb, st->table, st->key);
    }
    return rc;
}

static int holder_has_blob(struct admission *a, const struct batch_step *st, struct err *e)
{
    struct batch_step blob = {.table = TABLE_BLOB, .key = st->key};
    int rc;

    if (st->key.n < DIGEST_BYTES) {
        return err_set(e, E_INVALID, "a holder's key is too short");
    }
    blob.key.n = DIGEST_BYTES;
    rc = current(a, &blob, e);
    return rc == E_NOTFOUND ? err_set(e, E_CHANGED, "the blob is gone by now") : rc;
}

static int check_steps(struct admission *a, const struct batch *b, struct err *e)
{
    struct batch_step st;
    int rc = 0;

    for (size_t at = 0; rc == 0 && batch_next(b, &at, &st);) {
        if (st.op == OP_REQUIRE_ABSENT || st.op == OP_REQUIRE_VALUE) {
            rc = require(a, &st, e);
        }
    }
    return rc;
}

static int change_steps(struct admission *a, const struct batch *b, struct err *e)
{
    struct batch_step st;
    int rc = 0;

    for (size_t at = 0; rc == 0 && batch_next(b, &at, &st);) {
        if (st.op == OP_PUT || st.op == OP_DEL) {
            rc = change(a, &st, e);
        }
    }
    for (size_t at = 0; rc == 0 && batch_next(b, &at, &st);) {
        if (st.op == OP_PUT && st.table == TABLE_HOLDER) {
            rc = holder_has_blob(a, &st, e);
        }
    }
    return rc;
}

static bool frees_space(const struct batch *b)
{
    for (size_t i = 0; i < b->nafter; i++) {
        if (b->after[i].kind == AFTER_UNLINK) {
            return true;
        }
    }
    return false;
}

static bool fits(struct admission *a, const struct batch *b)
{
    uint64_t margin;
    uint64_t room = space_for_rows(a->s, &margin);

    return room >= 2 * b->steps.n + (frees_space(b) ? FREEING_BYTES : margin);
}

/* RocksDB 7.8 aborts when its log meets ENOSPC a second time: so it shall not meet it a first time. What frees space may go
 * nearer to the edge than what takes some. */
static int check_room(struct admission *a, const struct batch *b, struct err *e)
{
    if (fits(a, b)) {
        return 0;
    }
    space_exhausted(a->s); /* the ballast's bytes are for what frees */
    return frees_space(b) && fits(a, b)
               ? 0
               : err_set(e, E_NOSPACE, "the disk is full: no room is left for the store's rows");
}

int admission_take(struct admission *a, const struct batch *b, struct err *e)
{
    struct counts before = a->counts;
    bool counted = a->counted;
    int rc;

    if (b->steps.rc != 0) {
        return err_set(e, b->steps.rc, "the batch is too big");
    }
    rc = check_room(a, b, e);
    if (rc != 0) {
        return rc;
    }
    rc = b->check != NULL ? b->check(a->s, b->check_arg, e) : 0;
    if (rc == 0) {
        rc = check_steps(a, b, e);
    }
    if (rc == 0) {
        kv_batch_mark(a->kvb);
        rc = change_steps(a, b, e);
        if (rc != 0) {
            kv_batch_undo(a->kvb);
        }
    }
    if (rc != 0) {
        a->counts = before;
        a->counted = counted;
    }
    return rc;
}

void admission_put(struct admission *a, enum table t, struct slice key, struct slice value)
{
    kv_batch_put(a->s->kv, a->kvb, t, key, value);
}

int admission_write(struct admission *a, bool sync, struct err *e)
{
    char counts[COUNTS_BYTES];
    int rc;

    if (a->counted) {
        counts_encode(&a->counts, counts);
        admission_put(a, TABLE_META, COUNTS_KEY, slice_of(counts, sizeof counts));
    }
    rc = kv_write(a->s->kv, a->kvb, sync, e);
    kv_batch_clear(a->kvb);
    if (rc == 0) {
        a->written = a->counts;
    } else {
        a->counts = a->written;
    }
    a->counted = false;
    return rc;
}

int counts_load(struct store *s, struct counts *out, struct err *e)
{
    struct buf row = BUF_INIT(256);
    int rc = kv_get(s->kv, TABLE_META, COUNTS_KEY, &row, e);

    if (rc == 0) {
        rc = counts_decode(buf_slice(&row), out, e);
    }
    buf_free(&row);
    return rc;
}
