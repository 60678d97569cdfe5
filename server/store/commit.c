#include "server/store/commit.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/endian.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/store/kv.h"
#include "server/store/row.h"
#include "server/store/state.h"

/* --- counters --- */

#define COUNTS_KEY SLICE("counts")

static void counts_encode(const struct counts *c, char out[COUNTS_BYTES])
{
    be_put(out, 8, c->used_bytes);
    be_put(out + 8, 8, c->small_bytes);
    be_put(out + 16, 8, c->blobs);
}

int counts_decode(struct slice bytes, struct counts *out, struct err *e)
{
    if (bytes.n != COUNTS_BYTES) {
        return err_set(e, E_CORRUPT, "the row of counters has an invalid size: %zu bytes", bytes.n);
    }
    out->used_bytes = be_get(bytes.p, 8);
    out->small_bytes = be_get(bytes.p + 8, 8);
    out->blobs = be_get(bytes.p + 16, 8);
    return 0;
}

void counts_add(struct counts *c, uint64_t size_bytes)
{
    c->used_bytes += size_bytes;
    c->small_bytes += size_bytes <= BLOB_SMALL_BYTES ? size_bytes : 0;
    c->blobs++;
}

/* Never below zero. */
static void counts_sub(struct counts *c, uint64_t size_bytes)
{
    c->used_bytes -= min_u64(c->used_bytes, size_bytes);
    if (size_bytes <= BLOB_SMALL_BYTES) {
        c->small_bytes -= min_u64(c->small_bytes, size_bytes);
    }
    c->blobs -= min_u64(c->blobs, 1);
}

int counts_load(struct store *s, struct counts *out, struct err *e)
{
    struct buf row = BUF_INIT(256);
    int rc = kv_get(s->kv, TABLE_META, COUNTS_KEY, &row, e);

    rc = rc != 0 ? rc : counts_decode(buf_slice(&row), out, e);
    buf_free(&row);
    return rc;
}

struct admission {
    struct store *s;
    struct kv_batch *kvb;
    struct buf row;
    struct counts counts;  /* with what is pending */
    struct counts written; /* without */
    bool counted;          /* they are to be written, too */
};

/* --- admission ---
 *
 * Does a batch hold, and what does it change: judged against the database and the batches before it
 * in its group.
 *
 * What is taken is pending until admission_write(). A batch with a check of its own looks at the
 * database itself: nothing may be pending then.
 *
 * owns     what is pending; the counters of TABLE_META, as of it
 * threads  the commit thread
 * errors   E_CHANGED: a precondition does not hold; E_NOSPACE: no room is left for rows; E_INVALID,
 *          E_TOOBIG, those of kv.h
 */

enum {
    ROW_MAX = 64 << 20,
    FREEING_BYTES = 256 << 10, /* what a batch that frees space may leave */
};

static void admission_init(struct admission *a, struct store *s, const struct counts *counts)
{
    *a = (struct admission){.s = s,
                            .kvb = kv_batch_new(),
                            .row = BUF_INIT(ROW_MAX),
                            .counts = *counts,
                            .written = *counts};
}

static void admission_fini(struct admission *a)
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
        return rc == E_NOTFOUND ? 0
               : rc != 0        ? rc
                                : err_set(e, E_CHANGED, "the row was created in the meantime");
    }
    if (rc == 0 && slice_eq(buf_slice(&a->row), st->value)) {
        return 0;
    }
    return rc == 0 || rc == E_NOTFOUND
               ? err_set(e, E_CHANGED, "the row was changed in the meantime")
               : rc;
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
    struct digest d;
    int rc;

    if (st->key.n < DIGEST_BYTES) {
        return err_set(e, E_INVALID, "a holder's key is too short");
    }
    blob.key.n = DIGEST_BYTES;
    rc = current(a, &blob, e);
    if (rc == E_NOTFOUND) {
        memcpy(d.b, blob.key.p, DIGEST_BYTES);
        rc = blob_is_elsewhere(a->s, &d, NULL) ? 0 : rc;
    }
    return rc == E_NOTFOUND ? err_set(e, E_CHANGED, "the blob was deleted in the meantime") : rc;
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

static bool batch_fits_commit(struct admission *a, const struct batch *b)
{
    uint64_t margin;
    uint64_t room = space_for_rows(a->s, &margin);

    return room >= 2 * b->steps.n + (frees_space(b) ? FREEING_BYTES : margin);
}

/* RocksDB 7.8 aborts when its log meets ENOSPC a second time: so it shall not meet it a first time.
 * What frees space may go nearer to the edge than what takes some. */
static int check_room(struct admission *a, const struct batch *b, struct err *e)
{
    if (batch_fits_commit(a, b)) {
        return 0;
    }
    space_exhausted(a->s); /* the ballast's bytes are for what frees */
    return frees_space(b) && batch_fits_commit(a, b)
               ? 0
               : err_set(
                     e, E_NOSPACE,
                     "the disk is full: there is no room for the store's rows; free some space");
}

/* A batch that fails changes nothing. */
static int admission_take(struct admission *a, const struct batch *b, struct err *e)
{
    struct counts before = a->counts;
    bool counted = a->counted;
    int rc;

    if (b->steps.rc != 0) {
        return err_set(e, b->steps.rc, "the batch is too large");
    }
    rc = check_room(a, b, e);
    if (rc != 0) {
        return rc;
    }
    rc = b->check != NULL ? b->check(a->s, b->check_arg, e) : 0;
    rc = rc != 0 ? rc : check_steps(a, b, e);
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

static void admission_put(struct admission *a, enum table t, struct slice key, struct slice value)
{
    kv_batch_put(a->s->kv, a->kvb, t, key, value);
}

/* Nothing is pending afterwards. */
static void admission_forget(struct admission *a)
{
    kv_batch_clear(a->kvb);
    a->counts = a->written;
    a->counted = false;
}

/* Nothing is pending afterwards, also when it fails. */
static int admission_write(struct admission *a, bool sync, struct err *e)
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

enum {
    GROUP_BATCHES = 512,
    GROUP_BYTES = 8 << 20,
    IDLE_MS = 60000, /* between flushes of access times */
    LOOK_MS = 5000,  /* between looks at what RocksDB does on its own */
    SICK_MS = 1000,  /* between tries to write again */
    TRIAL_BYTES = 64 << 10,
    ATIMES_A_WRITE = 1024,
};

/* A caller that sleeps until the commit thread has its result. */
struct sleeper {
    struct commit_wait w;
    int (*work)(struct committer *c, void *arg, struct err *e); /* instead of a batch, or NULL */
    void *arg;
    struct cond over_cond;
    bool over;
};

struct committer {
    struct store *s;
    struct lock lock; /* LOCK_COMMIT */
    struct cond more;
    struct list queue;
    bool closing;
    struct err sick;   /* of the last write; code 0: it succeeded */
    uint64_t stuck_ms; /* since when the disk takes what RocksDB does not; 0: it is not so */
    pthread_t thread;
    /* The commit thread's own: */
    struct admission admission;
    struct digest *doubt; /* seals of failed writes */
    size_t ndoubt;
    size_t doubt_room;
    uint64_t background_errors; /* seen so far */
    uint64_t looked_ms;         /* for new ones, or whether writing goes again */
};

/* --- the write --- */

void committer_adjust(struct store *s, const struct counts *add, const struct counts *sub)
{
    struct counts *c = &s->committer->admission.counts;

    c->used_bytes = c->used_bytes + add->used_bytes - sub->used_bytes;
    c->small_bytes = c->small_bytes + add->small_bytes - sub->small_bytes;
    c->blobs = c->blobs + add->blobs - sub->blobs;
    s->committer->admission.counted = true;
}

static void doubt(struct committer *c, struct batch *b)
{
    for (size_t i = 0; i < b->nafter; i++) {
        if (b->after[i].kind != AFTER_SEALED) {
            continue;
        }
        if (c->ndoubt == c->doubt_room) {
            c->doubt_room = c->doubt_room != 0 ? 2 * c->doubt_room : 16;
            c->doubt = realloc(c->doubt, c->doubt_room * sizeof c->doubt[0]);
            CHECK(c->doubt != NULL);
        }
        c->doubt[c->ndoubt++] = b->after[i].digest;
    }
    batch_forget_seals(b);
}

static void end_doubt(struct committer *c)
{
    for (size_t i = 0; i < c->ndoubt; i++) {
        seal_leave(c->s, &c->doubt[i], false);
    }
    c->ndoubt = 0;
}

static void set_sick(struct committer *c, int rc, const struct err *e)
{
    bool was, is = rc != 0;

    lock_take(&c->lock);
    was = c->sick.code != 0;
    if (is) {
        c->sick = *e;
    } else {
        err_clear(&c->sick);
        c->stuck_ms = 0;
    }
    lock_drop(&c->lock);
    if (rc == E_NOSPACE) {
        space_exhausted(c->s);
    }
    if (is && !was) {
        log_error("store.write", "why=\"%s\"", e->text);
    } else if (was && !is) {
        log_info("store.recovered", "doubtful=%zu", c->ndoubt);
    }
    if (!is) {
        end_doubt(c);
    }
}

static void remove_partial(struct store *s, uint64_t id)
{
    char name[STAGE_NAME];

    stage_name(id, name);
    unlinkat(s->partial_fd, name, 0); /* what stays is swept at the next start */
}

static void afterwards(struct committer *c, struct batch *b)
{
    for (size_t i = 0; i < b->nafter; i++) {
        struct after *a = &b->after[i];
        switch (a->kind) {
        case AFTER_SEALED:
            break; /* batch_free() */
        case AFTER_UNLINK:
            a->fd = seal_remove_file(c->s, &a->digest, SEAL_UNLINK);
            break;
        case AFTER_QUARANTINE:
            a->fd = seal_remove_file(c->s, &a->digest, SEAL_QUARANTINE);
            break;
        case AFTER_SET_ASIDE:
            a->fd = seal_remove_file(c->s, &a->digest, SEAL_SET_ASIDE);
            break;
        case AFTER_UNPARK:
            remove_partial(c->s, a->id);
            break;
        }
    }
}

/* --- groups --- */

static struct sleeper *sleeper_of(struct commit_wait *w)
{
    return w->reply == NULL ? CONTAINER_OF(w, struct sleeper, w) : NULL;
}

static bool is_work(struct commit_wait *w)
{
    return sleeper_of(w) != NULL && sleeper_of(w)->work != NULL;
}

static bool needs_sync(const struct commit_wait *w)
{
    /* A file must not go before the end of its row is on disk. */
    for (size_t i = 0; i < w->batch->nafter; i++) {
        enum after_kind kind = w->batch->after[i].kind;
        if (kind == AFTER_UNLINK || kind == AFTER_QUARANTINE || kind == AFTER_SET_ASIDE) {
            return true;
        }
    }
    return w->how == COMMIT_SYNC;
}

static void deliver(struct message *l)
{
    struct commit_wait *w = CONTAINER_OF(l, struct commit_wait, message);
    w->done(w, w->rc, &w->why);
}

static void wake_commit_waiter(struct committer *c, struct commit_wait *w)
{
    struct sleeper *z = sleeper_of(w);

    if (z == NULL) {
        batch_free(&w->batch); /* closing a big file's last descriptor is nothing for a loop */
        w->message.deliver = deliver;
        message_queue_post(w->reply, &w->message);
    } else {
        lock_take(&c->lock);
        z->over = true;
        cond_signal(&z->over_cond);
        lock_drop(&c->lock);
    }
}

static void commit_group(struct committer *c, struct list *group)
{
    bool sync = false;
    size_t admitted = 0;
    struct err e = {0};
    struct list *n;
    int rc = 0;

    LIST_EACH (group, it) {
        struct commit_wait *w = LIST_ITEM(it, struct commit_wait, node);
        w->rc = admission_take(&c->admission, w->batch, &w->why);
        if (w->rc == 0) {
            sync = sync || needs_sync(w);
            admitted++;
        }
    }
    if (admitted != 0) {
        rc = admission_write(&c->admission, sync, &e);
        space_counted(c->s, &c->admission.counts);
        set_sick(c, rc, &e);
    }
    while ((n = list_pop_front(group)) != NULL) {
        struct commit_wait *w = LIST_ITEM(n, struct commit_wait, node);
        if (w->rc == 0 && rc != 0) {
            w->rc = rc;
            w->why = e;
            doubt(c, w->batch);
        } else if (w->rc == 0) {
            w->batch->committed = true;
            afterwards(c, w->batch);
        }
        wake_commit_waiter(c, w);
    }
}

static void do_work(struct committer *c, struct list *group)
{
    struct commit_wait *w = LIST_ITEM(list_pop_front(group), struct commit_wait, node);
    struct sleeper *z = sleeper_of(w);

    w->rc = z->work(c, z->arg, &w->why);
    wake_commit_waiter(c, w);
}

/* Under the lock. Work, and a batch with a check of its own, look at the database themselves, so
 * nothing may be pending: each is a group alone. */
static void take_group(struct committer *c, struct list *group)
{
    size_t bytes = 0;

    for (size_t n = 0; n < GROUP_BATCHES && bytes < GROUP_BYTES && !list_empty(&c->queue); n++) {
        struct commit_wait *w = LIST_ITEM(c->queue.next, struct commit_wait, node);
        bool alone = is_work(w) || w->batch->check != NULL;

        if (alone && n != 0) {
            return;
        }
        list_remove(&w->node);
        list_push_back(group, &w->node);
        if (alone) {
            return;
        }
        bytes += w->batch->steps.n;
    }
}

static void write_atimes(struct committer *c)
{
    for (size_t n = ATIMES_A_WRITE; n == ATIMES_A_WRITE;) {
        struct batch *b = batch_new();
        struct err e = {0};
        n = atime_collect(&c->s->atimes, b, ATIMES_A_WRITE);
        if (n != 0 && admission_take(&c->admission, b, &e) == 0) {
            set_sick(c, admission_write(&c->admission, false, &e), &e);
        }
        batch_free(&b);
    }
}

static bool is_sick(struct committer *c)
{
    bool sick;

    lock_take(&c->lock);
    sick = c->sick.code != 0;
    lock_drop(&c->lock);
    return sick;
}

/* Whether the disk takes a file beside the rows. RocksDB heeds no name that it did not give. */
static bool disk_takes_writes(struct store *s)
{
    static const char bytes[TRIAL_BYTES];
    int fd = openat(s->dir_fd, "meta/trial", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = fd != -1 && write(fd, bytes, sizeof bytes) == sizeof bytes && fdatasync(fd) == 0;

    if (fd != -1) {
        close(fd);
        unlinkat(s->dir_fd, "meta/trial", 0);
    }
    return ok;
}

static void note_stuck(struct committer *c, bool room)
{
    bool stuck = room && is_sick(c) && disk_takes_writes(c->s);

    lock_take(&c->lock);
    c->stuck_ms = !stuck ? 0 : c->stuck_ms != 0 ? c->stuck_ms : clock_now_ms();
    lock_drop(&c->lock);
}

/* Sickness ends only by a write that succeeds; we do one, whoever else writes. */
static void try_to_recover(struct committer *c)
{
    struct err e = {0};
    uint64_t margin;
    bool room = space_for_rows(c->s, &margin) >= margin;

    if (room) {
        admission_put(&c->admission, TABLE_META, SLICE("probe"), SLICE(""));
        set_sick(c, admission_write(&c->admission, true, &e), &e);
    }
    note_stuck(c, room);
}

/* RocksDB reports a failed flush or compaction only with the next write, so we make one
 * immediately. */
static bool failed_behind(struct committer *c)
{
    uint64_t before = c->background_errors;

    c->background_errors = kv_background_errors(c->s->kv);
    return c->background_errors != before;
}

static void look_after_rows(struct committer *c, uint64_t now_ms)
{
    bool sick = is_sick(c);

    if (now_ms - c->looked_ms < (sick ? SICK_MS : LOOK_MS)) {
        return;
    }
    c->looked_ms = now_ms;
    if (sick || failed_behind(c)) {
        try_to_recover(c);
    }
}

static void *run_commits(void *arg)
{
    struct committer *c = arg;
    uint64_t atimes_ms = clock_now_ms();

    for (;;) {
        struct list group;
        bool stop;
        bool sick = is_sick(c);
        bool full = space_full(c->s);
        uint64_t now;

        list_init(&group);
        lock_take(&c->lock);
        if (list_empty(&c->queue) && !c->closing) {
            cond_wait_ms(&c->more, &c->lock, sick || full ? SICK_MS : LOOK_MS);
        }
        take_group(c, &group);
        stop = c->closing && list_empty(&group);
        lock_drop(&c->lock);
        if (stop) {
            write_atimes(c);
            return NULL;
        }
        if (!list_empty(&group) && is_work(LIST_ITEM(group.next, struct commit_wait, node))) {
            do_work(c, &group);
        } else if (!list_empty(&group)) {
            commit_group(c, &group);
        }
        now = clock_now_ms();
        look_after_rows(c, now);
        if (now - atimes_ms >= IDLE_MS) {
            write_atimes(c);
            atimes_ms = now;
        }
        if (!is_sick(c)) { /* RocksDB repeats an old ENOSPC until it has looked again */
            space_tick(c->s);
        }
    }
}

/* --- the outside --- */

struct committer *committer_open(struct store *s, const struct counts *counts)
{
    struct committer *c = NEW(struct committer);

    c->s = s;
    lock_init(&c->lock, LOCK_COMMIT);
    cond_init(&c->more);
    list_init(&c->queue);
    admission_init(&c->admission, s, counts);
    s->committer = c;
    space_counted(s, counts);
    c->thread = thread_start("commit", run_commits, c);
    return c;
}

void committer_close(struct committer **cp)
{
    struct committer *c = *cp;

    if (c == NULL) {
        return;
    }
    *cp = NULL;
    lock_take(&c->lock);
    c->closing = true;
    cond_signal(&c->more);
    lock_drop(&c->lock);
    pthread_join(c->thread, NULL);
    admission_fini(&c->admission);
    free(c->doubt);
    cond_fini(&c->more);
    lock_fini(&c->lock);
    free(c);
}

static void begin_wait(struct commit_wait *w)
{
    w->node = (struct list){0};
    w->rc = 0;
    err_clear(&w->why);
}

static void enqueue(struct committer *c, struct commit_wait *w)
{
    CHECK(!c->closing);
    begin_wait(w);
    list_push_back(&c->queue, &w->node);
    cond_signal(&c->more);
}

/* Under the lock. Its batch, if it has one, is freed. */
static int sleep_until_over(struct committer *c, struct sleeper *z, struct err *e)
{
    while (!z->over) {
        cond_wait(&z->over_cond, &c->lock);
    }
    lock_drop(&c->lock);
    cond_fini(&z->over_cond);
    batch_free(&z->w.batch);
    if (z->w.rc != 0 && e != NULL) {
        *e = z->w.why;
    }
    return z->w.rc;
}

static bool is_sequenced(const struct store *s, const struct batch *b)
{
    return s->sequencer != NULL && batch_is_shared(b);
}

void store_commit_async(struct store *s, struct batch **bp, enum durability how,
                        struct commit_wait *w)
{
    struct committer *c = s->committer;

    CHECK(w->reply != NULL && w->done != NULL);
    w->batch = *bp;
    w->how = how;
    *bp = NULL;
    if (is_sequenced(s, w->batch)) {
        begin_wait(w);
        s->sequencer->submit(s->sequencer->arg, w);
        return;
    }
    lock_take(&c->lock);
    enqueue(c, w);
    lock_drop(&c->lock);
}

static int commit_and_wait(struct store *s, struct batch **bp, enum durability how, bool alone,
                           struct err *e)
{
    struct committer *c = s->committer;
    struct sleeper z = {.w = {.batch = *bp, .how = how}};

    batch_sort(*bp); /* here, and not on the one thread that all wait for */
    *bp = NULL;
    cond_init(&z.over_cond);
    if (!alone && is_sequenced(s, z.w.batch)) {
        begin_wait(&z.w);
        s->sequencer->submit(s->sequencer->arg, &z.w);
        lock_take(&c->lock);
    } else {
        lock_take(&c->lock);
        enqueue(c, &z.w);
    }
    return sleep_until_over(c, &z, e);
}

int store_commit(struct store *s, struct batch **bp, enum durability how, struct err *e)
{
    return commit_and_wait(s, bp, how, false, e);
}

/* --- shared rows --- */

int store_commit_alone(struct store *s, struct batch **bp, enum durability how, struct err *e)
{
    return commit_and_wait(s, bp, how, true, e);
}

void store_set_sequencer(struct store *s, const struct sequencer *q)
{
    s->sequencer = q;
}

void store_answer(struct store *s, struct commit_wait *w, int rc, const struct err *why)
{
    w->rc = rc;
    if (rc != 0) {
        w->why = *why;
    }
    wake_commit_waiter(s->committer, w);
}

void store_pass(struct store *s, struct commit_wait *w)
{
    struct committer *c = s->committer;

    lock_take(&c->lock);
    enqueue(c, w);
    lock_drop(&c->lock);
}

static int on_commit_thread(struct store *s,
                            int (*work)(struct committer *c, void *arg, struct err *e), void *arg,
                            struct err *e)
{
    struct committer *c = s->committer;
    struct sleeper z = {.work = work, .arg = arg};

    cond_init(&z.over_cond);
    lock_take(&c->lock);
    enqueue(c, &z.w);
    return sleep_until_over(c, &z, e);
}

struct judgement {
    struct batch *const *batch;
    size_t n;
    int *rc;
    struct err *why;
};

static int judge_batches(struct committer *c, void *arg, struct err *e)
{
    struct judgement *j = arg;

    (void)e;
    for (size_t i = 0; i < j->n; i++) {
        j->rc[i] = admission_take(&c->admission, j->batch[i], &j->why[i]);
        admission_forget(&c->admission);
    }
    return 0;
}

void store_judge(struct store *s, struct batch *const *batch, size_t n, int *rc, struct err *why)
{
    struct judgement j = {batch, n, rc, why};
    int done = on_commit_thread(s, judge_batches, &j, NULL);

    CHECK(done == 0);
}

struct application {
    struct batch *entry;
    struct batch *const *own;
    size_t n;
};

/* Whether the blob of a holder is here, elsewhere, or comes with the batch. */
static bool has_blob_of(struct admission *a, const struct batch_rows *rows,
                        const struct batch_step *st)
{
    struct batch_step blob = {.table = TABLE_BLOB, .key = slice_first(st->key, DIGEST_BYTES)};
    struct slice value;
    struct digest d;

    if (st->key.n < DIGEST_BYTES) {
        return false;
    }
    memcpy(d.b, st->key.p, DIGEST_BYTES);
    return batch_rows_get(rows, TABLE_BLOB, blob.key, &value) || current(a, &blob, NULL) == 0 ||
           blob_is_elsewhere(a->s, &d, NULL);
}

/* A batch whose preconditions on rows of this node do not hold any more, or whose holders' blobs
 * were evicted: without these steps. The rest counts all the same. */
static int take_what_holds(struct admission *a, const struct batch *own, const struct err *why,
                           struct err *e)
{
    struct batch_rows *rows = batch_rows_open(own);
    struct batch *rest = batch_new();
    struct batch_step st;
    int rc;

    for (size_t at = 0; batch_next(own, &at, &st);) {
        bool local = table_shared_number(st.table) == 0;
        bool requires = st.op == OP_REQUIRE_ABSENT || st.op == OP_REQUIRE_VALUE;
        bool holder = st.op == OP_PUT && st.table == TABLE_HOLDER;
        if (!(local && requires) && !(holder && !has_blob_of(a, rows, &st))) {
            batch_step_add(rest, &st);
        }
    }
    rc = admission_take(a, rest, e);
    batch_free(&rest);
    batch_rows_close(&rows);
    if (rc == 0) {
        log_info("store.partly", "why=\"%s\"", why->text);
    }
    return rc;
}

static int take_log_entry(struct admission *a, const struct application *x, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < x->n; i++) {
        struct err why = {0};
        rc = admission_take(a, x->own[i], &why);
        if (rc == E_CHANGED) {
            rc = take_what_holds(a, x->own[i], &why, e);
        } else if (rc != 0 && e != NULL) {
            *e = why;
        }
    }
    return rc != 0 ? rc : admission_take(a, x->entry, e);
}

static int apply_entry(struct committer *c, void *arg, struct err *e)
{
    const struct application *x = arg;
    struct err why = {0};
    int rc = take_log_entry(&c->admission, x, e);

    if (rc != 0) {
        admission_forget(&c->admission);
        return rc;
    }
    rc = admission_write(&c->admission, true, &why);
    space_counted(c->s, &c->admission.counts);
    set_sick(c, rc, &why);
    for (size_t i = 0; i < x->n; i++) {
        if (rc != 0) {
            doubt(c, x->own[i]);
        } else {
            x->own[i]->committed = true;
            afterwards(c, x->own[i]);
        }
    }
    if (rc != 0 && e != NULL) {
        *e = why;
    }
    return rc;
}

int store_apply(struct store *s, struct batch **entry, struct batch *const *own, size_t n,
                struct err *e)
{
    struct application x = {*entry, own, n};
    int rc = on_commit_thread(s, apply_entry, &x, e);

    batch_free(entry);
    return rc;
}

uint64_t store_stuck_ms(struct store *s, uint64_t now_ms)
{
    struct committer *c = s->committer;
    uint64_t since;

    lock_take(&c->lock);
    since = c->stuck_ms;
    lock_drop(&c->lock);
    return since != 0 && now_ms > since ? now_ms - since : 0;
}

bool store_healthy(struct store *s, struct err *why)
{
    struct committer *c = s->committer;
    struct err sick;

    lock_take(&c->lock);
    sick = c->sick;
    lock_drop(&c->lock);
    if (sick.code == 0 && kv_stopped(s->kv)) {
        err_set(&sick, E_BUSY,
                "metadata: writes are paused until compaction catches up; try again later");
    }
    if (sick.code != 0 && why != NULL) {
        *why = sick;
    }
    return sick.code == 0;
}
