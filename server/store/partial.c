#include "server/store/partial.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/store/state.h"

enum { ROW_MAX = 4 << 20, KEEP_S = 7 * 86400, FETCHES_MAX = 4096 };
enum { FLAG_DIGEST = 1, FLAG_SUM = 2 };
#define ROW_MAGIC SLICE("ingest1")

struct partials {
    struct lock lock;
    struct partial *parked; /* uthash, by key */
    struct list lost;
};

struct partial *partial_new(enum partial_kind kind, struct slice name)
{
    struct partial *p = NEW(struct partial);
    char *key = arena_alloc(&p->arena, name.n + 1);

    key[0] = (char)kind;
    if (name.n != 0) {
        memcpy(key + 1, name.p, name.n);
    }
    p->key = slice_of(key, name.n + 1);
    return p;
}

void partial_free(struct partial **pp)
{
    struct partial *p = *pp;

    *pp = NULL;
    if (p != NULL) {
        extents_fini(&p->have);
        arena_fini(&p->arena);
        free(p);
    }
}

struct slice partial_name(const struct partial *p)
{
    return slice_from(p->key, 1);
}

/* --- rows -------------------------------------------------------------------------------------
 *
 * magic | key | source | validator | flags | digest | sum | saved | total | extents
 */

int partial_put(struct batch *b, const struct partial *p, struct err *e)
{
    struct buf row = BUF_INIT(ROW_MAX);
    char key[STAGE_KEY_BYTES];
    int rc;

    buf_adds(&row, ROW_MAGIC);
    buf_counted(&row, 4, p->key);
    buf_counted(&row, 4, p->source);
    buf_counted(&row, 4, p->validator);
    buf_byte(&row, (p->digest_known ? FLAG_DIGEST : 0) | (p->summed ? FLAG_SUM : 0));
    buf_add(&row, p->digest.b, DIGEST_BYTES);
    buf_add(&row, p->sum.b, DIGEST_BYTES);
    buf_be(&row, 8, p->saved_unix_s);
    buf_be(&row, 8, p->total_bytes);
    extents_encode(&p->have, &row);
    rc = row.rc;
    if (rc == 0) {
        stage_key(p->id, key);
        batch_put(b, TABLE_PARTIAL, slice_of(key, sizeof key), buf_slice(&row));
    }
    buf_free(&row);
    return rc != 0 ? err_set(e, rc, "too many pieces") : 0;
}

void partial_del(struct batch *b, uint64_t id)
{
    char key[STAGE_KEY_BYTES];

    stage_key(id, key);
    batch_del(b, TABLE_PARTIAL, slice_of(key, sizeof key));
}

static bool take_partial_digest(struct slice *row, struct digest *out)
{
    struct slice bytes;

    if (!slice_take(row, DIGEST_BYTES, &bytes)) {
        return false;
    }
    memcpy(out->b, bytes.p, DIGEST_BYTES);
    return true;
}

static struct partial *decode_partial_row(struct slice row)
{
    struct slice key, source, validator;
    struct partial *p;
    uint64_t flags;

    if (!slice_counted(&row, 4, &key) || key.n < 2 || !slice_counted(&row, 4, &source) ||
        !slice_counted(&row, 4, &validator) || !slice_be(&row, 1, &flags)) {
        return NULL;
    }
    p = partial_new((enum partial_kind)key.p[0], slice_from(key, 1));
    p->source = arena_copy(&p->arena, source);
    p->validator = arena_copy(&p->arena, validator);
    p->digest_known = (flags & FLAG_DIGEST) != 0;
    p->summed = (flags & FLAG_SUM) != 0;
    if (!take_partial_digest(&row, &p->digest) || !take_partial_digest(&row, &p->sum) ||
        !slice_be(&row, 8, &p->saved_unix_s) || !slice_be(&row, 8, &p->total_bytes) ||
        !extents_decode(&p->have, &row, p->total_bytes)) {
        partial_free(&p);
    }
    return p;
}

/* --- rows of earlier versions: a fetch's, and a sync's --- */

#define OLD_FETCH SLICE("fill3")
#define OLD_SYNC  SLICE("sync1")

static bool old_slice(struct slice *in, struct slice *out)
{
    uint64_t n;

    *out = SLICE_NONE;
    return slice_be(in, 8, &n) &&
           (n == UINT64_MAX || (n <= in->n && slice_take(in, (size_t)n, out)));
}

/* key | saved | total | origin | validator | digest known, digest | extents */
static struct partial *decode_old_fetch(struct slice row)
{
    struct slice key, origin, validator;
    struct partial *p;
    uint64_t saved, total, known;

    if (!old_slice(&row, &key) || key.n == 0 || !slice_be(&row, 8, &saved) ||
        !slice_be(&row, 8, &total) || !slice_take(&row, 8, &origin) ||
        !old_slice(&row, &validator) || !slice_be(&row, 1, &known)) {
        return NULL;
    }
    p = partial_new(PARTIAL_FETCH, key);
    p->saved_unix_s = saved;
    p->total_bytes = total;
    p->source = arena_copy(&p->arena, origin);
    p->validator = arena_copy(&p->arena, validator);
    p->digest_known = known != 0;
    if (!take_partial_digest(&row, &p->digest) || !extents_decode(&p->have, &row, total)) {
        partial_free(&p);
    }
    return p;
}

/* repo | path | upstream | digest known, digest | version, flags | listed size, time, step | saved
 * | bytes | time | time's step | sum | validator */
static struct partial *decode_old_sync(struct slice row)
{
    struct slice repo, path, upstream, listed, step;
    uint64_t known, saved, bytes, skip;
    struct digest digest, sum;
    struct buf name = BUF_INIT(KV_KEY_MAX);
    struct partial *p;

    if (!slice_counted(&row, 2, &repo) || !slice_counted(&row, 2, &path) ||
        !slice_counted(&row, 2, &upstream) || !slice_be(&row, 1, &known) ||
        !take_partial_digest(&row, &digest) || !slice_be(&row, 2, &skip) ||
        !slice_take(&row, 24, &listed) || !slice_be(&row, 8, &saved) ||
        !slice_be(&row, 8, &bytes) || bytes == 0 || !slice_be(&row, 8, &skip) ||
        !slice_take(&row, 4, &step) || !take_partial_digest(&row, &sum)) {
        return NULL;
    }
    buf_adds(&name, repo);
    buf_byte(&name, 0);
    buf_adds(&name, path);
    p = partial_new(PARTIAL_SYNC, buf_slice(&name));
    buf_clear(&name);
    buf_adds(&name, upstream);
    buf_adds(&name, listed);
    buf_adds(&name, step);
    p->source = arena_copy(&p->arena, buf_slice(&name));
    buf_free(&name);
    p->validator = arena_copy(&p->arena, row);
    p->saved_unix_s = saved;
    p->total_bytes = UINT64_MAX;
    p->digest_known = known != 0;
    p->digest = digest;
    p->summed = true;
    p->sum = sum;
    extents_add(&p->have, 0, bytes);
    return p;
}

/* --- the table -------------------------------------------------------------------------------- */

/* Under the lock, as the next two. */
static struct partial *find_partial_of(struct partials *x, struct slice key)
{
    struct partial *p;

    HASH_FIND(hh, x->parked, key.p, key.n, p);
    return p;
}

static void lose_partial(struct partials *x, struct partial *p)
{
    HASH_DEL(x->parked, p);
    list_push_back(&x->lost, &p->node);
}

static void park_partial(struct partials *x, struct partial *p)
{
    struct partial *other = find_partial_of(x, p->key);

    if (other != NULL && extents_bytes(&other->have) >= extents_bytes(&p->have)) {
        list_push_back(&x->lost, &p->node);
        return;
    }
    if (other != NULL) {
        lose_partial(x, other);
    }
    HASH_ADD_KEYPTR(hh, x->parked, p->key.p, p->key.n, p);
}

void partial_give(struct store *s, struct partial **pp)
{
    lock_take(&s->partials->lock);
    park_partial(s->partials, *pp);
    lock_drop(&s->partials->lock);
    *pp = NULL;
}

struct partial *partial_take(struct store *s, enum partial_kind kind, struct slice name)
{
    struct buf key = BUF_INIT(KV_KEY_MAX);
    struct partial *p;

    buf_byte(&key, (uint8_t)kind);
    buf_adds(&key, name);
    lock_take(&s->partials->lock);
    p = key.rc == 0 ? find_partial_of(s->partials, buf_slice(&key)) : NULL;
    if (p != NULL) {
        HASH_DEL(s->partials->parked, p);
    }
    lock_drop(&s->partials->lock);
    buf_free(&key);
    return p;
}

static bool is_kind(const struct partial *p, enum partial_kind kind)
{
    return p->key.p[0] == (char)kind;
}

struct partial *partial_take_if(struct store *s, enum partial_kind kind,
                                bool (*suits)(void *arg, const struct partial *p), void *arg)
{
    struct partials *x = s->partials;
    struct partial *found = NULL;
    struct partial *p, *tmp;

    lock_take(&x->lock);
    HASH_ITER(hh, x->parked, p, tmp)
    {
        if (found == NULL && is_kind(p, kind) && suits(arg, p)) {
            HASH_DEL(x->parked, p);
            found = p;
        }
    }
    lock_drop(&x->lock);
    return found;
}

void partials_each(struct store *s, enum partial_kind kind,
                   void (*each)(void *arg, const struct partial *p), void *arg)
{
    struct partial *p, *tmp;

    lock_take(&s->partials->lock);
    HASH_ITER(hh, s->partials->parked, p, tmp)
    {
        if (is_kind(p, kind)) {
            each(arg, p);
        }
    }
    lock_drop(&s->partials->lock);
}

/* --- those that go ---------------------------------------------------------------------------- */

void partial_lose(struct store *s, uint64_t id)
{
    struct partial *p = partial_new(PARTIAL_FETCH, SLICE_NONE);

    p->id = id;
    lock_take(&s->partials->lock);
    list_push_back(&s->partials->lost, &p->node);
    lock_drop(&s->partials->lock);
}

void partials_lose(struct store *s, enum partial_kind kind,
                   bool (*goes)(void *arg, const struct partial *p), void *arg)
{
    struct partial *p, *tmp;

    lock_take(&s->partials->lock);
    HASH_ITER(hh, s->partials->parked, p, tmp)
    {
        if (is_kind(p, kind) && goes(arg, p)) {
            lose_partial(s->partials, p);
        }
    }
    lock_drop(&s->partials->lock);
}

static int by_age(const void *a, const void *b)
{
    const struct partial *const *x = a;
    const struct partial *const *y = b;

    return (*x)->saved_unix_s < (*y)->saved_unix_s ? -1 : (*x)->saved_unix_s > (*y)->saved_unix_s;
}

/* The oldest fetches, until the others are few enough and have at most that many bytes. */
static void lose_oldest_fetches(struct partials *x, uint64_t max_bytes)
{
    struct partial **fill = mem_array(HASH_COUNT(x->parked) + 1, sizeof *fill);
    struct partial *p, *tmp;
    uint64_t bytes = 0;
    size_t count = 0;

    HASH_ITER(hh, x->parked, p, tmp)
    {
        if (is_kind(p, PARTIAL_FETCH)) {
            bytes += extents_bytes(&p->have);
            fill[count++] = p;
        }
    }
    if (bytes > max_bytes || count > FETCHES_MAX) {
        qsort(fill, count, sizeof(struct partial *), by_age);
    }
    for (size_t i = 0; bytes > max_bytes || count - i > FETCHES_MAX; i++) {
        bytes -= extents_bytes(&fill[i]->have);
        lose_partial(x, fill[i]);
    }
    free(fill);
}

void partials_lose_old(struct store *s, uint64_t now_unix_s, uint64_t max_bytes)
{
    struct partials *x = s->partials;
    struct partial *p, *tmp;

    lock_take(&x->lock);
    HASH_ITER(hh, x->parked, p, tmp)
    {
        if (p->saved_unix_s + KEEP_S <= now_unix_s) {
            lose_partial(x, p);
        }
    }
    lose_oldest_fetches(x, max_bytes);
    lock_drop(&x->lock);
}

void partial_drop(struct store *s, struct partial **pp)
{
    struct batch *b = batch_new();
    struct stage *st = NULL;
    struct err e = {0};
    uint64_t id = (*pp)->id;

    partial_free(pp);
    if (stage_resume(s, id, 0, &st, &e) != E_BUSY) { /* else somebody goes on with it */
        log_info("partial.dropped", "bytes=%" PRIu64, st != NULL ? stage_written_bytes(st) : 0);
        stage_abort(&st);
        partial_del(b, id);
        if (store_commit(s, &b, COMMIT_LAZY, &e) != 0) { /* swept at the next start */
            log_warn("partial.drop", "why=\"%s\"", e.text);
        }
    }
    batch_free(&b);
}

int partial_peek(struct store *s, const struct partial *p, struct blob **out, struct err *e)
{
    struct stage *st = NULL;
    int rc = stage_resume(s, p->id, 0, &st, e);

    if (rc == 0) {
        rc = stage_peek(st, extents_until(&p->have, 0), out, e);
        stage_park(&st);
    }
    return rc;
}

void partials_drop_lost(struct store *s)
{
    struct list *n;

    for (;;) {
        struct partial *p;
        lock_take(&s->partials->lock);
        n = list_pop_front(&s->partials->lost);
        lock_drop(&s->partials->lock);
        if (n == NULL) {
            return;
        }
        p = LIST_ITEM(n, struct partial, node);
        partial_drop(s, &p);
    }
}

/* --- with the store --------------------------------------------------------------------------- */

static int load_row(void *arg, struct slice key, struct slice row)
{
    struct partials *x = arg;
    struct partial *p = NULL;
    uint64_t id;

    if (slice_starts(row, SLICE("upload ")) || !slice_be(&key, STAGE_KEY_BYTES, &id)) {
        return 0;
    }
    if (slice_starts(row, ROW_MAGIC)) {
        p = decode_partial_row(slice_from(row, ROW_MAGIC.n));
    } else if (slice_starts(row, OLD_FETCH)) {
        p = decode_old_fetch(slice_from(row, OLD_FETCH.n));
    } else if (slice_starts(row, OLD_SYNC)) {
        p = decode_old_sync(slice_from(row, OLD_SYNC.n));
    }
    if (p != NULL && is_kind(p, PARTIAL_UPLOAD)) {
        partial_free(&p);
        return 0;
    }
    if (p != NULL) {
        p->id = id;
        park_partial(x, p);
    } else { /* damaged, or of a version that is not known */
        p = partial_new(PARTIAL_FETCH, SLICE_NONE);
        p->id = id;
        list_push_back(&x->lost, &p->node);
    }
    return 0;
}

int partials_open(struct store *s, struct partials **out, struct err *e)
{
    struct partials *x = *out = NEW(struct partials);

    lock_init(&x->lock, LOCK_PARTIAL);
    list_init(&x->lost);
    return kv_scan(s->kv, NULL, TABLE_PARTIAL, SLICE_NONE, SLICE_NONE, load_row, x, e);
}

void partials_close(struct partials **xp)
{
    struct partials *x = *xp;
    struct partial *p, *tmp;
    struct list *n;

    *xp = NULL;
    if (x == NULL) {
        return;
    }
    HASH_ITER(hh, x->parked, p, tmp)
    {
        HASH_DEL(x->parked, p);
        partial_free(&p);
    }
    while ((n = list_pop_front(&x->lost)) != NULL) {
        p = LIST_ITEM(n, struct partial, node);
        partial_free(&p);
    }
    lock_fini(&x->lock);
    free(x);
}
