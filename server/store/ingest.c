#include "server/store/ingest.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/crash.h"
#include "common/os/newfile.h"
#include "server/store/state.h"

enum {
    SAVE_MS = 5000,        /* what a SIGKILL may cost: what came in so long, */
    SAVE_BYTES = 64 << 20, /* or so much */
    RECENT_BYTES = 16 << 20,
    WRITEBACK_BYTES = 8 << 20,
};

/* --- bytes that are not hashed yet ------------------------------------------------------------ */

/* Blocks that were just written and are still in memory, so that they are hashed without being read
 * again, in the order of the file. Where one is missing (it was written in one piece with others,
 * or there was no room), the hasher reads the file. */
struct unhashed {
    struct list blocks;
    uint64_t bytes;
};

struct block {
    struct list node;
    uint64_t at;
    struct buf bytes;
};

static void unhashed_init(struct unhashed *r)
{
    list_init(&r->blocks);
    r->bytes = 0;
}

static struct block *first_unhashed_block(struct unhashed *r)
{
    return list_empty(&r->blocks) ? NULL : LIST_ITEM(r->blocks.next, struct block, node);
}

static void block_remove(struct unhashed *r, struct block *b)
{
    r->bytes -= b->bytes.n;
    list_remove(&b->node);
}

static void block_free(struct block *b)
{
    buf_free(&b->bytes);
    free(b);
}

/* Takes its memory. */
static void unhashed_put(struct unhashed *r, uint64_t at, struct buf *block)
{
    struct block *b = NEW(struct block);

    b->at = at;
    b->bytes = *block;
    *block = BUF_INIT(block->max);
    r->bytes += b->bytes.n;
    list_push_back(&r->blocks, &b->node);
}

/* The blocks that end at `upto` or before it. */
static void unhashed_take(struct unhashed *from, uint64_t upto, struct unhashed *to)
{
    struct block *b;

    while ((b = first_unhashed_block(from)) != NULL && b->at + b->bytes.n <= upto) {
        block_remove(from, b);
        to->bytes += b->bytes.n;
        list_push_back(&to->blocks, &b->node);
    }
}

static void unhashed_drop(struct unhashed *r)
{
    struct block *b;

    while ((b = first_unhashed_block(r)) != NULL) {
        block_remove(r, b);
        block_free(b);
    }
}

/* Hashes on to `upto`: from memory what is here, the rest from the file. Drops all blocks. */
static int unhashed_hash(struct unhashed *r, struct hasher *h, int fd, uint64_t upto, struct err *e)
{
    struct block *b;
    int rc = 0;

    while (rc == 0 && (b = first_unhashed_block(r)) != NULL) {
        if (b->at > hasher_count(h)) {
            rc = hasher_add_file(h, fd, min_u64(b->at, upto), e);
        }
        if (rc == 0 && b->at == hasher_count(h) && b->at + b->bytes.n <= upto) {
            hasher_add(h, b->bytes.p, b->bytes.n);
        }
        block_remove(r, b);
        block_free(b);
    }
    unhashed_drop(r);
    return rc != 0 ? rc : hasher_add_file(h, fd, upto, e);
}

/* --- the ingest ------------------------------------------------------------------------------- */

struct ingest {
    struct store *s;
    struct ingest_how how;
    _Atomic enum ingest_state state;
    struct stage *stage; /* NULL: MEMORY */
    struct buf small;    /* MEMORY: all; else the beginning of a block that is not written yet */
    uint64_t at;         /* where the next appended byte goes */
    _Atomic bool has_row;
    uint64_t saved_bytes, saved_ms; /* when a save was last due */
    struct lock lock;               /* of the hasher, held while it works, */
    struct hasher *hasher;
    struct hasher *mark;
    _Atomic uint64_t hashed;
    struct lock recent_lock; /* and of the blocks that it finds in memory */
    struct unhashed recent;
    struct digest digest; /* WHOLE */
    uint64_t size_bytes;
};

/* --- states ----------------------------------------------------------------------------------- */

static const struct state of_ingest[] = {
    [INGEST_MEMORY] = {"in memory", STATE(INGEST_FILE) | STATE(INGEST_WHOLE) | STATE(INGEST_ENDED)},
    [INGEST_FILE] = {"file", STATE(INGEST_LOST) | STATE(INGEST_WHOLE) | STATE(INGEST_ENDED)},
    [INGEST_LOST] = {"lost", STATE(INGEST_ENDED)},
    [INGEST_WHOLE] = {"whole", STATE(INGEST_ENDED)},
    [INGEST_ENDED] = {"ended", 0},
};
const struct state_table ingest_states = STATE_TABLE("ingest", of_ingest);

/* Two saves of a stage may both find that it is lost. */
static void set_ingest_state(struct ingest *in, enum ingest_state to)
{
    enum ingest_state from = atomic_load(&in->state);

    do {
        if (from == to && to == INGEST_LOST) {
            return;
        }
        (void)state_step(&ingest_states, from, to);
    } while (!atomic_compare_exchange_weak(&in->state, &from, to));
}

enum ingest_state ingest_state(const struct ingest *in)
{
    return atomic_load(&in->state);
}

static bool is(const struct ingest *in, enum ingest_state state)
{
    return ingest_state(in) == state;
}

static bool takes_bytes(const struct ingest *in)
{
    return is(in, INGEST_MEMORY) || is(in, INGEST_FILE) || is(in, INGEST_LOST);
}

static int refuse_lost(const struct ingest *in, struct err *e)
{
    return is(in, INGEST_LOST) ? err_set(e, E_IO, "the disk lost bytes of the file") : 0;
}

uint64_t ingest_id(const struct ingest *in)
{
    return in->stage != NULL ? stage_id(in->stage) : 0;
}

uint64_t ingest_bytes(const struct ingest *in)
{
    return in->at;
}

uint64_t ingest_written(const struct ingest *in)
{
    return in->stage != NULL ? in->at - in->small.n : 0;
}

uint64_t ingest_hashed(const struct ingest *in)
{
    return atomic_load(&in->hashed);
}

int ingest_fd(const struct ingest *in)
{
    return in->stage != NULL ? stage_fd(in->stage) : -1;
}

/* --- open and close --------------------------------------------------------------------------- */

static bool makes_room(const struct ingest *in, uint64_t n)
{
    return in->how.make_room != NULL && in->how.make_room(in->how.make_room_arg, n) == 0;
}

static int open_ingest_stage(struct ingest *in, struct err *e)
{
    uint64_t expect = in->how.reserve ? in->how.length_bytes : 0;
    int rc = stage_open(in->s, expect, in->how.named, &in->stage, e);

    if (rc == E_NOSPACE && makes_room(in, max_u64(expect, in->at))) {
        rc = stage_open(in->s, expect, in->how.named, &in->stage, e);
    }
    return rc;
}

static int resume_stage(struct ingest *in, uint64_t id, struct err *e)
{
    uint64_t expect = in->how.reserve ? in->how.length_bytes : 0;
    int rc = stage_resume(in->s, id, expect, &in->stage, e);

    if (rc == E_NOSPACE && makes_room(in, expect - min_u64(expect, in->at))) {
        rc = stage_resume(in->s, id, expect, &in->stage, e);
    }
    return rc;
}

static struct ingest *ingest_new(struct store *s, const struct ingest_how *how,
                                 enum ingest_state state)
{
    struct ingest *in = NEW(struct ingest);

    in->s = s;
    in->how = *how;
    atomic_init(&in->state, state);
    in->small = BUF_INIT(SPARSE_BLOCK);
    in->hasher = hasher_new();
    in->saved_ms = clock_now_ms();
    lock_init(&in->lock, LOCK_INGEST);
    lock_init(&in->recent_lock, LOCK_LEAF);
    unhashed_init(&in->recent);
    return in;
}

static void recent_gone(struct ingest *in, uint64_t bytes)
{
    if (in->how.recent_bytes != NULL) {
        atomic_fetch_sub(in->how.recent_bytes, bytes);
    }
}

/* The stage has gone where it goes. */
static void end_ingest(struct ingest **ip)
{
    struct ingest *in = *ip;

    *ip = NULL;
    set_ingest_state(in, INGEST_ENDED);
    CHECK(in->stage == NULL);
    recent_gone(in, in->recent.bytes);
    unhashed_drop(&in->recent);
    hasher_free(&in->hasher);
    hasher_free(&in->mark);
    buf_free(&in->small);
    lock_fini(&in->recent_lock);
    lock_fini(&in->lock);
    free(in);
}

static void expect(struct ingest *in)
{
    if (!in->how.reserve && in->how.length_bytes != 0) {
        stage_expect(in->stage, in->how.length_bytes);
    }
}

int ingest_open(struct store *s, const struct ingest_how *how, struct ingest **out, struct err *e)
{
    struct ingest *in = ingest_new(s, how, how->small ? INGEST_MEMORY : INGEST_FILE);
    int rc = how->small ? 0 : open_ingest_stage(in, e);

    if (rc != 0) {
        end_ingest(&in);
    } else if (in->stage != NULL) {
        expect(in);
    }
    *out = in;
    return rc;
}

static int verify_resumed_bytes(struct ingest *in, const struct partial *p, struct err *e)
{
    struct digest got;
    int rc = ingest_hash(in, in->at, e);

    if (rc == 0) {
        hasher_so_far(in->hasher, &got);
        rc = digest_eq(&got, &p->sum)
                 ? 0
                 : err_set(e, E_CORRUPT, "the saved part of the file is damaged");
    }
    return rc;
}

int ingest_resume(struct store *s, const struct partial *p, const struct ingest_how *how,
                  struct ingest **out, struct err *e)
{
    struct ingest *in = ingest_new(s, how, INGEST_FILE);
    int rc;

    in->at = extents_until(&p->have, 0);
    in->saved_bytes = extents_bytes(&p->have);
    in->has_row = true;
    rc = resume_stage(in, p->id, e);
    if (rc == 0) {
        expect(in);
        rc = p->summed ? verify_resumed_bytes(in, p, e) : 0;
    }
    if (rc != 0 && in->stage != NULL) {
        ingest_park(&in); /* it is for the caller to drop it */
    } else if (rc != 0) {
        end_ingest(&in);
    }
    *out = in;
    return rc;
}

void ingest_park(struct ingest **ip)
{
    if ((*ip)->has_row) {
        stage_park(&(*ip)->stage);
        end_ingest(ip);
    } else {
        ingest_drop(ip);
    }
}

void ingest_drop(struct ingest **ip)
{
    struct ingest *in = *ip;
    struct batch *b = batch_new();
    struct err e = {0};

    if (in != NULL && in->has_row) {
        partial_del(b, ingest_id(in));
        if (store_commit(in->s, &b, COMMIT_LAZY, &e) != 0) { /* swept at the next start */
            log_warn("ingest.drop", "why=\"%s\"", e.text);
        }
    }
    batch_free(&b);
    if (in != NULL) {
        stage_abort(&in->stage);
        end_ingest(ip);
    }
}

/* --- bytes ------------------------------------------------------------------------------------ */

int ingest_write(struct ingest *in, const void *p, size_t n, uint64_t off, struct err *e)
{
    int rc;

    CHECK(takes_bytes(in) && in->stage != NULL);
    rc = stage_write(in->stage, p, n, off, e);
    if (rc == E_NOSPACE && makes_room(in, n)) {
        rc = stage_write(in->stage, p, n, off, e);
    }
    return rc;
}

/* The disk is at work while bytes come: what the seal's sync finds left to do is little. */
static int write_ingest_bytes(struct ingest *in, struct slice bytes, uint64_t at, struct err *e)
{
    uint64_t from = at / WRITEBACK_BYTES * WRITEBACK_BYTES;
    int rc = ingest_write(in, bytes.p, bytes.n, at, e);

    if (rc == 0 && in->how.blocks && at + bytes.n - from >= WRITEBACK_BYTES) {
        (void)!sync_file_range(ingest_fd(in), (off_t)from, (off_t)(at + bytes.n - from),
                               SYNC_FILE_RANGE_WRITE);
    }
    return rc;
}

/* A block was written: it stays in memory until it is hashed, where there is room for it. */
static void keep_recent(struct ingest *in, uint64_t at)
{
    uint64_t n = in->small.n;

    if (in->how.recent_bytes == NULL || at < in->how.hash_bytes ||
        atomic_load(in->how.recent_bytes) + n > RECENT_BYTES) {
        buf_clear(&in->small);
        return;
    }
    atomic_fetch_add(in->how.recent_bytes, n);
    lock_take(&in->recent_lock);
    unhashed_put(&in->recent, at, &in->small);
    lock_drop(&in->recent_lock);
}

int ingest_flush(struct ingest *in, struct err *e)
{
    uint64_t at = ingest_written(in);
    int rc = 0;

    if (in->stage != NULL && in->small.n != 0) {
        rc = write_ingest_bytes(in, buf_slice(&in->small), at, e);
        if (rc == 0) {
            keep_recent(in, at);
        }
    }
    return rc;
}

/* Whole blocks, as they lie in the file: cut as they come they cost half as many calls more,
 * smaller folios in the page cache, and zeros that nobody sees. */
static int append_blocks(struct ingest *in, struct slice bytes, struct err *e)
{
    int rc = 0;

    while (rc == 0 && bytes.n != 0) {
        size_t n = (size_t)min_u64(bytes.n, SPARSE_BLOCK - in->at % SPARSE_BLOCK);
        if (in->small.n == 0 && n == SPARSE_BLOCK - in->at % SPARSE_BLOCK) {
            n += (bytes.n - n) / SPARSE_BLOCK * SPARSE_BLOCK;
            rc = write_ingest_bytes(in, slice_first(bytes, n), in->at, e);
            in->at += rc == 0 ? n : 0;
        } else {
            (void)buf_room(&in->small, SPARSE_BLOCK - in->small.n);
            buf_adds(&in->small, slice_first(bytes, n));
            in->at += n;
            rc = in->at % SPARSE_BLOCK == 0 ? ingest_flush(in, e) : 0;
        }
        bytes = slice_from(bytes, n);
    }
    return rc;
}

static int append_ingest_bytes(struct ingest *in, struct slice bytes, struct err *e)
{
    int rc = 0;

    CHECK(takes_bytes(in));
    if (is(in, INGEST_MEMORY)) {
        if (in->at + bytes.n <= BLOB_INLINE_BYTES) {
            buf_adds(&in->small, bytes);
            in->at += bytes.n;
            return 0;
        }
        rc = open_ingest_stage(in, e);
        if (rc == 0) {
            expect(in);
            set_ingest_state(in, INGEST_FILE);
        }
    }
    if (rc == 0 && in->how.blocks) {
        return append_blocks(in, bytes, e);
    }
    rc = rc != 0 ? rc : ingest_flush(in, e);
    rc = rc != 0 ? rc : write_ingest_bytes(in, bytes, in->at, e);
    in->at += rc == 0 ? bytes.n : 0;
    return rc;
}

int ingest_append(struct ingest *in, struct slice bytes, struct err *e)
{
    uint64_t at = in->at;
    int rc = append_ingest_bytes(in, bytes, e);

    if (rc == 0 && at + bytes.n <= in->how.hash_bytes) {
        ingest_hash_along(in, bytes, at);
    }
    return rc;
}

int ingest_cut(struct ingest *in, uint64_t off, uint64_t n, struct err *e)
{
    lock_take(&in->lock);
    if (hasher_count(in->hasher) > off) {
        bool back = in->mark != NULL && hasher_count(in->mark) <= off;
        hasher_free(&in->hasher);
        in->hasher = back ? hasher_copy(in->mark) : hasher_new();
        atomic_store(&in->hashed, hasher_count(in->hasher));
    }
    lock_drop(&in->lock);
    return stage_unwrite(in->stage, off, n, e);
}

void ingest_mark(struct ingest *in)
{
    lock_take(&in->lock);
    hasher_free(&in->mark);
    in->mark = hasher_copy(in->hasher);
    lock_drop(&in->lock);
}

/* --- the digest ------------------------------------------------------------------------------- */

void ingest_hash_along(struct ingest *in, struct slice bytes, uint64_t off)
{
    if (ingest_hashed(in) != off || !lock_try(&in->lock)) {
        return;
    }
    if (hasher_count(in->hasher) == off) {
        hasher_add(in->hasher, bytes.p, bytes.n);
        atomic_store(&in->hashed, off + bytes.n);
    }
    lock_drop(&in->lock);
}

/* Under the hasher's lock. */
static int hash(struct ingest *in, uint64_t upto, struct err *e)
{
    struct unhashed recent;
    uint64_t kept;
    int rc;

    unhashed_init(&recent);
    lock_take(&in->recent_lock);
    unhashed_take(&in->recent, upto, &recent);
    lock_drop(&in->recent_lock);
    kept = recent.bytes;
    rc = hasher_count(in->hasher) < upto
             ? unhashed_hash(&recent, in->hasher, ingest_fd(in), upto, e)
             : 0;
    unhashed_drop(&recent);
    recent_gone(in, kept);
    atomic_store(&in->hashed, hasher_count(in->hasher));
    return rc;
}

int ingest_hash(struct ingest *in, uint64_t upto, struct err *e)
{
    int rc;

    lock_take(&in->lock);
    rc = hash(in, upto, e);
    lock_drop(&in->lock);
    return rc;
}

int ingest_finish(struct ingest *in, uint64_t size_bytes, struct digest *out, struct err *e)
{
    int rc = ingest_flush(in, e);

    CHECK(takes_bytes(in));
    rc = rc != 0 ? rc : ingest_hash(in, size_bytes, e);
    if (rc != 0) {
        return rc;
    }
    CHECK(ingest_hashed(in) == size_bytes);
    in->size_bytes = size_bytes;
    hasher_final(in->hasher, &in->digest);
    *out = in->digest;
    if (!is(in, INGEST_LOST)) {
        set_ingest_state(in, INGEST_WHOLE);
    }
    return 0;
}

struct hasher *ingest_hasher_take(struct ingest *in)
{
    struct hasher *h = is(in, INGEST_WHOLE) ? NULL : in->hasher; /* that one has ended */

    if (h != NULL) {
        in->hasher = NULL; /* it is parked or dropped next */
    }
    return h;
}

void ingest_hasher_give(struct ingest *in, struct hasher **hp)
{
    CHECK(is(in, INGEST_FILE));
    hasher_free(&in->hasher);
    in->hasher = *hp;
    *hp = NULL;
    atomic_store(&in->hashed, hasher_count(in->hasher));
}

int ingest_peek(const struct ingest *in, uint64_t size_bytes, struct blob **out, struct err *e)
{
    CHECK(in->stage != NULL);
    return stage_peek(in->stage, size_bytes, out, e);
}

int ingest_sha512(const struct ingest *in, uint64_t size_bytes, struct sha512 *out, struct err *e)
{
    if (in->stage != NULL) {
        return sha512_of_fd(ingest_fd(in), size_bytes, out, e);
    }
    sha512_of(slice_first(buf_slice(&in->small), (size_t)size_bytes), out);
    return 0;
}

/* --- what lasts ------------------------------------------------------------------------------- */

bool ingest_save_is_due(struct ingest *in, uint64_t have_bytes, uint64_t now_ms)
{
    uint64_t more = have_bytes - min_u64(have_bytes, in->saved_bytes);

    if (ingest_id(in) == 0 || more == 0 || (more < SAVE_BYTES && now_ms < in->saved_ms + SAVE_MS)) {
        return false;
    }
    in->saved_bytes = have_bytes;
    in->saved_ms = now_ms;
    return true;
}

/* Of exactly what the row says is there. */
static int sum_written(struct ingest *in, struct partial *p, struct err *e)
{
    uint64_t upto = extents_until(&p->have, 0);
    int rc;

    lock_take(&in->lock);
    rc = hash(in, upto, e);
    if (rc == 0) {
        CHECK(hasher_count(in->hasher) == upto);
        hasher_so_far(in->hasher, &p->sum);
    }
    lock_drop(&in->lock);
    return rc;
}

int ingest_sync(struct ingest *in, struct err *e)
{
    int rc = stage_sync(in->stage, e);

    if (stage_lost(in->stage)) {
        set_ingest_state(in, INGEST_LOST);
    }
    return rc;
}

int ingest_save(struct ingest *in, struct partial *p, struct batch **bp, enum durability how,
                struct err *e)
{
    struct batch *b = bp != NULL ? *bp : batch_new();
    int rc = refuse_lost(in, e);

    CHECK(takes_bytes(in) && ingest_id(in) != 0);
    p->id = ingest_id(in);
    p->saved_unix_s = clock_unix_s();
    rc = rc == 0 && p->summed ? sum_written(in, p, e) : rc;
    rc = rc == 0 && stage_written_bytes(in->stage) != 0 ? ingest_sync(in, e) : rc;
    rc = rc != 0 ? rc : partial_put(b, p, e);
    rc = rc != 0 ? rc : store_commit(in->s, &b, how, e);
    in->has_row = in->has_row || rc == 0;
    batch_free(&b);
    if (bp != NULL) {
        *bp = NULL;
    }
    return rc;
}

int ingest_seal(struct ingest **ip, struct batch *b, struct blob **out, struct err *e)
{
    struct ingest *in = *ip;
    uint64_t id = in->has_row ? ingest_id(in) : 0;
    size_t count;
    const struct digest *chunk = hasher_chunks(in->hasher, &count);
    int rc;

    CHECK(is(in, INGEST_WHOLE) || is(in, INGEST_LOST));
    rc = refuse_lost(in, e);
    if (rc != 0) {
        ingest_drop(ip);
        return rc;
    }
    if (in->stage == NULL) {
        blob_put_small(in->s, &in->digest, buf_slice(&in->small), b, out);
        rc = 0;
    } else {
        rc = stage_seal(&in->stage, &in->digest, in->size_bytes, chunk, count, b, out, e);
    }
    if (rc == 0 && id != 0) {
        partial_del(b, id);
    }
    end_ingest(ip);
    return rc;
}
