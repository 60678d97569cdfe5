#include "server/store/batch.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/base/endian.h"
#include "server/store/seal.h"

enum { STEP_HEAD = 10, BATCH_MAX = 1 << 30, SORT_LEAST = 32 };

struct batch *batch_new(void)
{
    struct batch *b = NEW(struct batch);

    b->steps = BUF_INIT(BATCH_MAX);
    return b;
}

void batch_free(struct batch **bp)
{
    struct batch *b = *bp;

    if (b == NULL) {
        return;
    }
    *bp = NULL;
    for (size_t i = 0; i < b->nafter; i++) {
        if (b->after[i].kind == AFTER_SEALED) {
            seal_leave(b->store, &b->after[i].digest, b->committed);
        }
        if (b->after[i].fd != -1) {
            close(b->after[i].fd);
        }
    }
    free(b->after);
    buf_free(&b->steps);
    free(b);
}

static void add_step(struct batch *b, enum batch_op op, enum table t, struct slice key,
                     struct slice value)
{
    char head[STEP_HEAD];

    CHECK(key.n <= UINT32_MAX && value.n <= UINT32_MAX);
    if (buf_room(&b->steps, sizeof head + key.n + value.n) == NULL) {
        return; /* whole steps only: batch_next() walks them to the last byte */
    }
    head[0] = (char)op;
    head[1] = (char)t;
    be_put(head + 2, 4, key.n);
    be_put(head + 6, 4, value.n);
    buf_add(&b->steps, head, sizeof head);
    buf_adds(&b->steps, key);
    buf_adds(&b->steps, value);
}

static struct batch_step step_at(const char *p, size_t *bytes)
{
    size_t kn = (size_t)be_get(p + 2, 4), vn = (size_t)be_get(p + 6, 4);

    *bytes = STEP_HEAD + kn + vn;
    return (struct batch_step){
        .op = (enum batch_op)p[0],
        .table = (enum table)p[1],
        .key = slice_of(p + STEP_HEAD, kn),
        .value = slice_of(p + STEP_HEAD + kn, vn),
    };
}

bool batch_next(const struct batch *b, size_t *at, struct batch_step *out)
{
    size_t bytes;

    if (*at == b->steps.n) { /* an empty one has no bytes to point to */
        return false;
    }
    *out = step_at(b->steps.p + *at, &bytes);
    *at += bytes;
    return true;
}

static const uint8_t shared_number[TABLES] = {
#define TABLE(name, cf, prefix, shared) [name] = (shared),
#include "server/store/tables.def"
#undef TABLE
};

uint8_t table_shared_number(enum table t)
{
    return shared_number[t];
}

bool table_of_shared_number(uint8_t number, enum table *out)
{
    for (int t = 0; number != 0 && t < TABLES; t++) {
        if (shared_number[t] == number) {
            *out = (enum table)t;
            return true;
        }
    }
    return false;
}

bool batch_is_shared(const struct batch *b)
{
    struct batch_step st;

    for (size_t at = 0; batch_next(b, &at, &st);) {
        if ((st.op == OP_PUT || st.op == OP_DEL) && shared_number[st.table] != 0) {
            return true;
        }
    }
    return false;
}

void batch_step_add(struct batch *b, const struct batch_step *st)
{
    add_step(b, st->op, st->table, st->key, st->value);
}

void batch_add(struct batch *b, const struct batch *from)
{
    struct batch_step st;

    for (size_t at = 0; batch_next(from, &at, &st);) {
        batch_step_add(b, &st);
    }
}

/* --- in the order of their rows --- */

struct located {
    uint64_t head; /* table, and how the key begins */
    const char *p; /* the step */
};

static uint64_t head_of_row(enum table t, struct slice key)
{
    char head[8] = {0};

    head[0] = (char)t;
    memcpy(head + 1, key.p, key.n < 7 ? key.n : 7);
    return be_get(head, 8);
}

static int by_key(const void *x, const void *y)
{
    const struct located *a = x, *b = y;
    size_t n;
    int rc;

    if (a->head != b->head) {
        return a->head < b->head ? -1 : 1;
    }
    rc = slice_cmp(step_at(a->p, &n).key, step_at(b->p, &n).key);
    return rc != 0 ? rc : a->p < b->p ? -1 : 1;
}

static size_t count_steps(const struct batch *b)
{
    struct batch_step st;
    size_t count = 0;

    for (size_t at = 0; batch_next(b, &at, &st);) {
        count++;
    }
    return count;
}

/* Sorted by table and key; steps of one key keep their order. */
static struct located *located_steps(const struct batch *b, size_t count)
{
    struct located *at = mem_array(count + 1, sizeof at[0]);
    const char *p = b->steps.p;
    size_t bytes;

    for (size_t i = 0; i < count; i++, p += bytes) {
        struct batch_step st = step_at(p, &bytes);
        at[i] = (struct located){head_of_row(st.table, st.key), p};
    }
    qsort(at, count, sizeof at[0], by_key);
    return at;
}

void batch_sort(struct batch *b)
{
    struct buf sorted = BUF_INIT(BATCH_MAX);
    struct located *at;
    size_t count = count_steps(b), bytes;

    if (count < SORT_LEAST || b->steps.rc != 0) { /* E_TOOBIG: the commit refuses it */
        return;
    }
    at = located_steps(b, count);
    for (size_t i = 0; i < count; i++) {
        (void)step_at(at[i].p, &bytes);
        buf_add(&sorted, at[i].p, bytes);
    }
    free(at);
    buf_free(&b->steps);
    b->steps = sorted;
}

struct batch_rows {
    struct located *at;
    size_t count;
};

struct batch_rows *batch_rows_open(const struct batch *b)
{
    struct batch_rows *r = NEW(struct batch_rows);

    r->count = count_steps(b);
    r->at = located_steps(b, r->count);
    return r;
}

void batch_rows_close(struct batch_rows **rp)
{
    if (*rp != NULL) {
        free((*rp)->at);
        free(*rp);
        *rp = NULL;
    }
}

/* How many steps come before those of this row, or up to their end. */
static size_t steps_before(const struct batch_rows *r, enum table t, struct slice key,
                           bool or_equal)
{
    uint64_t head = head_of_row(t, key);
    size_t low = 0, high = r->count, bytes;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct located *x = &r->at[mid];
        int order =
            x->head != head ? (x->head < head ? -1 : 1) : slice_cmp(step_at(x->p, &bytes).key, key);
        if (order < 0 || (order == 0 && or_equal)) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

bool batch_rows_get(const struct batch_rows *r, enum table t, struct slice key, struct slice *value)
{
    size_t from = steps_before(r, t, key, false), i = steps_before(r, t, key, true), bytes;

    for (; i > from; i--) {
        struct batch_step st = step_at(r->at[i - 1].p, &bytes);
        if (st.op == OP_PUT || st.op == OP_DEL) {
            *value = st.value;
            return st.op == OP_PUT;
        }
    }
    return false;
}

void batch_put(struct batch *b, enum table t, struct slice key, struct slice value)
{
    add_step(b, OP_PUT, t, key, value);
}

void batch_del(struct batch *b, enum table t, struct slice key)
{
    add_step(b, OP_DEL, t, key, SLICE_NONE);
}

size_t batch_bytes(const struct batch *b)
{
    return b->steps.n;
}

bool batch_prune(struct batch *b, struct store *s, bool *replaces)
{
    return batch_filter(b, s, NULL, replaces);
}

bool batch_filter(struct batch *b, struct store *s,
                  bool (*fresh)(struct slice old, struct slice value), bool *replaces)
{
    struct buf all = b->steps;
    struct buf row = BUF_INIT(BATCH_MAX);
    struct batch from = {.steps = all};
    struct batch_step x;
    size_t at = 0;

    *replaces = false;
    if (all.rc != 0) {
        return false;
    }
    b->steps = BUF_INIT(BATCH_MAX);
    while (batch_next(&from, &at, &x)) {
        bool there = x.op == OP_PUT && store_get(s, x.table, x.key, &row, NULL) == 0;
        bool same = there && (slice_eq(buf_slice(&row), x.value) ||
                              (fresh != NULL && !fresh(buf_slice(&row), x.value)));
        *replaces = *replaces || (there && !same);
        if (!same) {
            add_step(b, x.op, x.table, x.key, x.value);
        }
    }
    buf_free(&all);
    buf_free(&row);
    return b->steps.n == 0 && b->nafter == 0;
}

void batch_require_absent(struct batch *b, enum table t, struct slice key)
{
    add_step(b, OP_REQUIRE_ABSENT, t, key, SLICE_NONE);
}

void batch_require_value(struct batch *b, enum table t, struct slice key, struct slice value)
{
    add_step(b, OP_REQUIRE_VALUE, t, key, value);
}

void batch_check(struct batch *b, int (*check)(struct store *s, void *arg, struct err *e),
                 void *arg)
{
    CHECK(b->check == NULL);
    b->check = check;
    b->check_arg = arg;
}

void batch_after(struct batch *b, enum after_kind kind, const struct digest *d, uint64_t id)
{
    if (b->nafter == b->after_room) {
        b->after_room = b->after_room != 0 ? 2 * b->after_room : 4;
        b->after = realloc(b->after, b->after_room * sizeof b->after[0]);
        CHECK(b->after != NULL);
    }
    b->after[b->nafter++] = (struct after){
        .kind = kind,
        .digest = d != NULL ? *d : (struct digest){{0}},
        .id = id,
        .fd = -1,
    };
}

void batch_sealed(struct batch *b, struct store *s, const struct digest *d)
{
    CHECK(b->store == NULL || b->store == s);
    b->store = s;
    batch_after(b, AFTER_SEALED, d, 0);
}

void batch_forget_seals(struct batch *b)
{
    size_t kept = 0;

    for (size_t i = 0; i < b->nafter; i++) {
        if (b->after[i].kind != AFTER_SEALED) {
            b->after[kept++] = b->after[i];
        }
    }
    b->nafter = kept;
}
