#include "server/sync/taking.h"

#include <fcntl.h>
#include <stdlib.h>

#include "common/os/clock.h"
#include "common/os/newfile.h"

enum { WRITEBACK_BYTES = 8 << 20 };

void taking_free(struct taking *t)
{
    struct takes *x = t->all;

    if (t->take != NULL) {
        x->run->ops->cancel(&t->take);
    }
    keeping_leave(t);
    hasher_free(&t->hasher);
    taking_drop_recent(t);
    event_free(t->timer);
    buf_free(&t->small);
    buf_free(&t->path);
    buf_free(&t->validator);
    buf_free(&t->listed_validator);
    buf_free(&t->old_row);
    blob_release(&t->basis);
    list_remove_if(&t->node);
    x->count--;
    x->smalls -= t->small_one;
    free(t);
}

/* The disk is at work while bytes come: what the seal's sync finds left to do is little. */
static void begin_writeback(struct taking *t, uint64_t at, uint64_t upto)
{
    uint64_t from = at / WRITEBACK_BYTES * WRITEBACK_BYTES;

    if (upto - from >= WRITEBACK_BYTES) {
        (void)!sync_file_range(stage_fd(t->stage), (off_t)from, (off_t)(upto - from),
                               SYNC_FILE_RANGE_WRITE);
    }
}

uint64_t taking_expects(const struct taking *t)
{
    const struct sync_entry *en = &t->entry;

    return en->size_bytes != SYNC_SIZE_UNKNOWN && en->size_step <= 1 ? en->size_bytes : 0;
}

uint64_t taking_written(const struct taking *t)
{
    return t->stage != NULL ? t->at - t->small.n : 0;
}

static int put(struct taking *t, struct slice bytes, uint64_t at, struct err *e)
{
    const struct run_world *w = &t->all->run->world;
    int rc = stage_write(t->stage, bytes.p, bytes.n, at, e);

    if (rc == E_NOSPACE && w->make_room(w->arg, bytes.n) == 0) {
        rc = stage_write(t->stage, bytes.p, bytes.n, at, e);
    }
    if (rc == 0) {
        begin_writeback(t, at, at + bytes.n);
    }
    return rc;
}

void taking_drop_recent(struct taking *t)
{
    t->all->recent_bytes -= t->recent.bytes;
    unhashed_drop(&t->recent);
}

/* A block was written: it stays in memory until it is hashed, where there is room for it. */
static void written(struct taking *t, uint64_t at)
{
    struct takes *x = t->all;

    if (at < HASH_HERE_BYTES || x->recent_bytes + t->small.n > RECENT_BYTES) {
        buf_clear(&t->small);
        return;
    }
    x->recent_bytes += t->small.n;
    unhashed_put(&t->recent, at, &t->small);
}

int taking_flush(struct taking *t, struct err *e)
{
    uint64_t at = taking_written(t);
    int rc = 0;

    if (t->stage != NULL && t->small.n != 0) {
        rc = put(t, buf_slice(&t->small), at, e);
        if (rc == 0) {
            written(t, at);
        }
    }
    return rc;
}

static int open_stage(struct taking *t, struct err *e)
{
    const struct run_world *w = &t->all->run->world;
    uint64_t expect = taking_expects(t);
    bool named = keeping_worth(&t->entry);
    int rc = stage_open(w->store, expect, named, &t->stage, e);

    if (rc == E_NOSPACE && w->make_room(w->arg, expect) == 0) {
        rc = stage_open(w->store, expect, named, &t->stage, e);
    }
    return rc;
}

/* Whole blocks, as they lie in the file: cut as they come they cost half as many calls more, smaller folios in the page cache, and
 * zeros that nobody sees. Moves t->at with what it takes. */
static int write_on(struct taking *t, struct slice bytes, struct err *e)
{
    int rc = 0;

    if (t->stage == NULL && t->at + bytes.n <= BLOB_INLINE_BYTES) {
        buf_adds(&t->small, bytes);
        t->at += bytes.n;
        return 0;
    }
    if (t->stage == NULL) {
        rc = open_stage(t, e);
    }
    while (rc == 0 && bytes.n != 0) {
        size_t n = (size_t)min_u64(bytes.n, SPARSE_BLOCK - t->at % SPARSE_BLOCK);
        if (t->small.n == 0 && n == SPARSE_BLOCK - t->at % SPARSE_BLOCK) {
            n += (bytes.n - n) / SPARSE_BLOCK * SPARSE_BLOCK;
            rc = put(t, slice_first(bytes, n), t->at, e);
            t->at += rc == 0 ? n : 0;
        } else {
            (void)buf_room(&t->small, SPARSE_BLOCK - t->small.n);
            buf_adds(&t->small, slice_first(bytes, n));
            t->at += n;
            rc = t->at % SPARSE_BLOCK == 0 ? taking_flush(t, e) : 0;
        }
        bytes = slice_from(bytes, n);
    }
    return rc;
}

void taking_begin_anew(struct taking *t)
{
    struct run *r = t->all->run;

    keeping_forget(t);
    taking_drop_recent(t);
    buf_clear(&t->small);
    hasher_free(&t->hasher);
    t->hasher = hasher_new();
    t->came = false;
    lock_take(&r->lock);
    r->look.bytes_done -= t->at; /* they come again */
    lock_drop(&r->lock);
    t->at = 0;
}

void taking_counted(struct taking *t, uint64_t bytes)
{
    struct run *r = t->all->run;

    lock_take(&r->lock);
    r->look.bytes_done += bytes;
    lock_drop(&r->lock);
}

static void count_bytes(struct run *r, uint64_t n, uint64_t wire_bytes, bool copied)
{
    lock_take(&r->lock);
    r->look.bytes_done += n;
    r->look.wire_bytes += wire_bytes;
    r->look.saved_bytes += copied ? n : 0;
    lock_drop(&r->lock);
}

int taking_on_begin(void *arg, uint64_t at, struct slice validator)
{
    struct taking *t = arg;

    if (at != t->at) {
        if (at != 0) {
            return E_INTERNAL;
        }
        taking_begin_anew(t);
    }
    buf_clear(&t->validator);
    buf_adds(&t->validator,
             slice_first(validator, validator.n < TAKING_VALIDATOR_MAX ? validator.n : 0));
    return 0;
}

void taking_timer(struct taking *t, uint64_t ms)
{
    struct timeval tv = clock_timeval(ms);
    evtimer_add(t->timer, &tv);
}

static int take_bytes(struct taking *t, struct slice bytes, uint64_t wire_bytes, uint64_t now_ms,
                      bool copied)
{
    struct err e = {0};
    bool hash_here = t->at + bytes.n <= HASH_HERE_BYTES;
    int rc = write_on(t, bytes, &e);

    if (rc != 0) {
        takes_fail(t->all, rc, &e);
        return rc;
    }
    if (hash_here) {
        hasher_add(t->hasher, bytes.p, bytes.n);
    }
    count_bytes(t->all->run, bytes.n, wire_bytes, copied);
    keeping_look(t, now_ms);
    return 0;
}

static int go_on_in(struct taking *t, uint64_t pause_ms)
{
    enum { BEHIND_MS = 5 }; /* in which a core hashes less than may wait */

    if (keeping_behind(t)) {
        pause_ms = max_u64(pause_ms, BEHIND_MS);
    }
    if (pause_ms == 0) {
        return 0;
    }
    taking_timer(t, pause_ms);
    return TAKE_PAUSE;
}

int taking_on_copy(void *arg, struct slice bytes)
{
    int rc = take_bytes(arg, bytes, 0, clock_now_ms(), true);

    return rc != 0 ? rc : go_on_in(arg, 0);
}

int taking_on_body(void *arg, struct slice bytes)
{
    return taking_on_packed(arg, bytes, bytes.n);
}

int taking_on_packed(void *arg, struct slice bytes, uint64_t wire_bytes)
{
    struct taking *t = arg;
    uint64_t now_ms = clock_now_ms();
    int rc = take_bytes(t, bytes, wire_bytes, now_ms, false);

    return rc != 0
               ? rc
               : go_on_in(t, pace_spend(&t->all->run->pace, wire_bytes, now_ms, clock_unix_s()));
}

static void seen_of_take(struct taking *t, const struct take_got *got)
{
    const struct sync_entry *en = &t->entry;
    bool sized = en->size_bytes != SYNC_SIZE_UNKNOWN && en->size_step <= 1;
    bool timed = en->mtime_ns != SYNC_TIME_UNKNOWN && en->mtime_step_s == 0;

    t->seen.listed_size = en->size_bytes;
    t->seen.listed_mtime_ns = en->mtime_ns;
    t->seen.mtime_step_s = en->mtime_step_s;
    t->seen.size_step = en->size_step;
    t->seen.taken_unix_s = clock_unix_s();
    t->seen.doubtful = sized && !en->digest_known && en->size_bytes != t->seen.size_bytes;
    /* An exact time of the list is what the next list is compared with. */
    t->seen.mtime_ns = timed                                ? en->mtime_ns
                       : got->mtime_ns != SYNC_TIME_UNKNOWN ? got->mtime_ns
                       : got->unchanged                     ? t->seen.mtime_ns
                       : en->mtime_ns != SYNC_TIME_UNKNOWN  ? en->mtime_ns
                                                            : 0;
    if (en->validator.n != 0 || got->validator.n != 0) {
        struct slice v = en->validator.n != 0 ? en->validator : got->validator;
        if (v.p != t->validator.p) {
            buf_clear(&t->validator);
            buf_adds(&t->validator, v);
        }
    }
    /* A digest says more than any of them. */
    t->seen.validator = en->digest_known ? SLICE_NONE : buf_slice(&t->validator);
}

void taking_seal(struct taking *t, const struct take_got *got)
{
    seen_of_take(t, got);
    t->seal_due = true;
    CHECK(t->keeping == NULL);
    sealing_add(t);
}
