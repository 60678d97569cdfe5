#include "server/cluster/generation.h"

#include <sys/random.h>

#include "common/base/endian.h"
#include "server/cluster/place.h"
#include "server/store/batch.h"

#define GENERATION SLICE("g")
#define ORPHANS    SLICE("o")
#define RUN        SLICE("r")

enum {
    CONDEMNED_KEY_BYTES = 1 + 8,
    CONDEMNED_BYTES = 8 + 8,
    RUN_NODE_BYTES = 32,
    RUN_BYTES = RUN_NODE_BYTES + 7 * 8,
};

static int row_number(struct store *s, struct slice key, uint64_t *out, struct err *e)
{
    struct buf value = BUF_INIT(64);
    int rc = store_get(s, TABLE_COLLECT, key, &value, e);

    if (rc == 0 && value.n != 8) {
        rc = err_set(e, E_CORRUPT, "a row of the collection has %zu bytes", value.n);
    }
    *out = rc == 0 ? be_get(value.p, 8) : 0;
    buf_free(&value);
    return rc;
}

static void put_row_number(struct batch *b, struct slice key, uint64_t n)
{
    char value[8];

    be_put(value, sizeof value, n);
    batch_put(b, TABLE_COLLECT, key, slice_of(value, sizeof value));
}

int generation_get(struct store *s, struct generation *out, struct err *e)
{
    int rc = row_number(s, GENERATION, &out->number, e);

    out->none = rc == E_NOTFOUND;
    return out->none ? 0 : rc;
}

void generation_require(struct batch *b, const struct generation *g)
{
    char value[8];

    be_put(value, sizeof value, g->number);
    if (g->none) {
        batch_require_absent(b, TABLE_COLLECT, GENERATION);
    } else {
        batch_require_value(b, TABLE_COLLECT, GENERATION, slice_of(value, sizeof value));
    }
}

void generation_change(struct batch *b)
{
    uint64_t number;

    CHECK(getrandom(&number, sizeof number, 0) == (ssize_t)sizeof number);
    put_row_number(b, GENERATION, number);
}

static bool is_requirement(const struct batch_step *st)
{
    return (st->op == OP_REQUIRE_ABSENT || st->op == OP_REQUIRE_VALUE) &&
           st->table == TABLE_COLLECT && slice_eq(st->key, GENERATION);
}

static bool find_requirement(const struct batch *b, struct batch_step *out)
{
    for (size_t at = 0; batch_next(b, &at, out);) {
        if (is_requirement(out)) {
            return true;
        }
    }
    return false;
}

bool generation_in_batch(const struct batch *b)
{
    struct batch_step st;

    return find_requirement(b, &st);
}

bool generation_is_over(struct store *s, const struct batch *b)
{
    struct generation now;
    struct batch_step st;

    if (!find_requirement(b, &st) || generation_get(s, &now, NULL) != 0) {
        return false;
    }
    return st.op == OP_REQUIRE_ABSENT ? !now.none : now.none || be_get(st.value.p, 8) != now.number;
}

static bool is_of_objects(const struct batch_step *st)
{
    return st->op == OP_PUT && (st->table == TABLE_INDEX || st->table == TABLE_PLACE);
}

void generation_forget(struct batch *b, bool objects)
{
    struct batch *rest = batch_new();
    struct batch_step st;
    struct buf steps;

    for (size_t at = 0; batch_next(b, &at, &st);) {
        if (!is_requirement(&st) && !(objects && is_of_objects(&st))) {
            batch_step_add(rest, &st);
        }
    }
    steps = b->steps;
    b->steps = rest->steps;
    rest->steps = steps;
    batch_free(&rest);
}

uint64_t generation_begun_unix_s(const struct batch *b)
{
    uint64_t least = UINT64_MAX;
    struct index_row row;
    struct batch_step st;

    for (size_t at = 0; batch_next(b, &at, &st);) {
        if (st.op == OP_PUT && st.table == TABLE_INDEX &&
            index_decode(st.key, st.value, &row, NULL) == 0) {
            least = min_u64(least, row.begun_unix_s);
        }
    }
    return least;
}

int orphans_get(struct store *s, uint64_t *before_unix_s, struct err *e)
{
    int rc = row_number(s, ORPHANS, before_unix_s, e);

    return rc == E_NOTFOUND ? 0 : rc;
}

void orphans_put(struct batch *b, uint64_t before_unix_s, uint64_t earlier_unix_s)
{
    char value[8];

    be_put(value, sizeof value, earlier_unix_s);
    if (earlier_unix_s == 0) {
        batch_require_absent(b, TABLE_COLLECT, ORPHANS);
    } else {
        batch_require_value(b, TABLE_COLLECT, ORPHANS, slice_of(value, sizeof value));
    }
    put_row_number(b, ORPHANS, max_u64(before_unix_s, earlier_unix_s));
}

/* --- condemned objects --- */

static struct slice condemned_key(const struct condemned *c, char key[CONDEMNED_KEY_BYTES])
{
    key[0] = 'c';
    be_put(key + 1, 8, c->list);
    return slice_of(key, CONDEMNED_KEY_BYTES);
}

static struct slice condemned_value(const struct condemned *c, char value[CONDEMNED_BYTES])
{
    be_put(value, 8, c->objects);
    be_put(value + 8, 8, c->bytes);
    return slice_of(value, CONDEMNED_BYTES);
}

void condemned_put(struct batch *b, const struct condemned *c)
{
    char key[CONDEMNED_KEY_BYTES], value[CONDEMNED_BYTES];

    batch_put(b, TABLE_COLLECT, condemned_key(c, key), condemned_value(c, value));
}

void condemned_del(struct batch *b, const struct condemned *c)
{
    char key[CONDEMNED_KEY_BYTES], value[CONDEMNED_BYTES];

    batch_require_value(b, TABLE_COLLECT, condemned_key(c, key), condemned_value(c, value));
    batch_del(b, TABLE_COLLECT, slice_of(key, sizeof key));
}

struct condemned_scan {
    int (*each)(void *arg, const struct condemned *c);
    void *arg;
};

static int on_condemned_row(void *arg, struct slice key, struct slice value)
{
    struct condemned_scan *x = arg;
    struct condemned c;

    if (key.n != CONDEMNED_KEY_BYTES || value.n != CONDEMNED_BYTES) {
        return 0;
    }
    c.list = be_get(key.p + 1, 8);
    c.objects = be_get(value.p, 8);
    c.bytes = be_get(value.p + 8, 8);
    return x->each(x->arg, &c);
}

int condemned_each(struct store *s, int (*each)(void *arg, const struct condemned *c), void *arg,
                   struct err *e)
{
    struct condemned_scan x = {each, arg};

    return store_scan(s, TABLE_COLLECT, SLICE("c"), SLICE("d"), on_condemned_row, &x, e);
}

/* --- runs --- */

int collect_run_get(struct store *s, struct collect_run *out, struct err *e)
{
    struct buf value = BUF_INIT(256);
    int rc = store_get(s, TABLE_COLLECT, RUN, &value, e);

    *out = (struct collect_run){.number = 0};
    if (rc == 0 && value.n != RUN_BYTES) {
        rc = err_set(e, E_CORRUPT, "the row of a collection has %zu bytes", value.n);
    }
    if (rc == 0) {
        const char *p = value.p + RUN_NODE_BYTES;
        memcpy(out->node, value.p, RUN_NODE_BYTES);
        out->number = be_get(p, 8);
        out->began_unix_s = be_get(p + 8, 8);
        out->ended_unix_s = be_get(p + 16, 8);
        out->condemned = be_get(p + 24, 8);
        out->condemned_bytes = be_get(p + 32, 8);
        out->orphans = be_get(p + 40, 8);
        out->orphan_bytes = be_get(p + 48, 8);
    }
    buf_free(&value);
    return rc;
}

static struct slice run_value(const struct collect_run *r, char value[RUN_BYTES])
{
    char *p = value + RUN_NODE_BYTES;

    memcpy(value, r->node, RUN_NODE_BYTES);
    be_put(p, 8, r->number);
    be_put(p + 8, 8, r->began_unix_s);
    be_put(p + 16, 8, r->ended_unix_s);
    be_put(p + 24, 8, r->condemned);
    be_put(p + 32, 8, r->condemned_bytes);
    be_put(p + 40, 8, r->orphans);
    be_put(p + 48, 8, r->orphan_bytes);
    return slice_of(value, RUN_BYTES);
}

void collect_run_put(struct batch *b, const struct collect_run *run,
                     const struct collect_run *before)
{
    char value[RUN_BYTES];

    if (before == NULL) {
        batch_require_absent(b, TABLE_COLLECT, RUN);
    } else {
        batch_require_value(b, TABLE_COLLECT, RUN, run_value(before, value));
    }
    batch_put(b, TABLE_COLLECT, RUN, run_value(run, value));
}
