/* takes.c - the fetch stage: what the plan wants is asked of the engine, so many at once, verified while it comes, sealed on
 * the disk pool, and noted in a stage row in the same batch. What fails in passing is asked again, from where it broke. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/os/clock.h"
#include "server/sync/run_priv.h"
#include "server/sync/stage_row.h"

enum {
    TRIES = 5, /* of one file, without progress */
    BACKOFF_MS = 100,
    PATH_ROOM = 4096,
    VALIDATOR_ROOM = 1024,
    FEW_VANISH = 10,
};

struct taking {       /* one file under way */
    struct list node; /* of takes.active */
    struct takes *all;
    uint32_t index;          /* in the roster */
    struct sync_entry entry; /* its slices point into the bufs below */
    struct buf path, validator, listed_validator;
    struct take *take;
    struct event *timer; /* the next try */
    struct hasher *hasher;
    struct buf small;    /* as long as it would lie in a row */
    struct stage *stage; /* from then on */
    uint64_t at;         /* bytes that came */
    uint64_t progress;   /* at the last failure */
    unsigned tries;
    bool again;     /* it was wrong once */
    bool was_there; /* the published tree has a file of this path */
    bool was_seen;  /* and this is known of it */
    struct seen old_seen;
    struct buf old_row; /* what old_seen points into */
    struct blob *basis;
    bool unchanged;
    struct seen seen;
    struct job seal;
    int seal_rc;
    struct err seal_why;
};

struct takes {
    struct run *run;
    struct list active;
    size_t next; /* in plan.todo */
    unsigned count;
    uint64_t vanished, done;
    bool over;
    int rc;
    struct err why;
};

static void start_more(struct takes *x);

static void taking_free(struct taking *t)
{
    struct takes *x = t->all;

    if (t->take != NULL) {
        x->run->ops->cancel(&t->take);
    }
    stage_abort(&t->stage);
    hasher_free(&t->hasher);
    event_free(t->timer);
    buf_free(&t->small);
    buf_free(&t->path);
    buf_free(&t->validator);
    buf_free(&t->listed_validator);
    buf_free(&t->old_row);
    blob_release(&t->basis);
    list_remove_if(&t->node);
    x->count--;
    free(t);
}

/* The first trouble that a retry does not mend ends the stage; what is being sealed is waited for. */
static void fail(struct takes *x, int rc, const struct err *why)
{
    if (x->rc == 0) {
        x->rc = rc;
        x->why = *why;
        x->why.code = rc;
    }
    x->over = true;
}

static void look_over(struct takes *x)
{
    if (x->rc == 0) {
        start_more(x);
    }
    x->over = x->rc != 0 || (x->count == 0 && x->next == x->run->plan.todo_count);
}

/* --- where the bytes go --- */

static int write_on(struct taking *t, struct slice bytes, struct err *e)
{
    struct takes *x = t->all;
    int rc;

    if (t->stage == NULL && t->at + bytes.n <= BLOB_INLINE_BYTES) {
        buf_adds(&t->small, bytes);
        return 0;
    }
    if (t->stage == NULL) {
        uint64_t expect = t->entry.size_bytes != SYNC_SIZE_UNKNOWN && t->entry.size_step <= 1
                              ? t->entry.size_bytes
                              : 0;
        rc = stage_open(x->run->world.store, expect, false, &t->stage, e);
        if (rc == E_NOSPACE && x->run->world.make_room(x->run->world.arg, expect) == 0) {
            rc = stage_open(x->run->world.store, expect, false, &t->stage, e);
        }
        if (rc == 0) {
            rc = stage_write(t->stage, t->small.p, t->small.n, 0, e);
        }
        if (rc != 0) {
            return rc;
        }
        buf_free(&t->small);
    }
    rc = stage_write(t->stage, bytes.p, bytes.n, t->at, e);
    if (rc == E_NOSPACE && x->run->world.make_room(x->run->world.arg, bytes.n) == 0) {
        rc = stage_write(t->stage, bytes.p, bytes.n, t->at, e);
    }
    return rc;
}

static void begin_anew(struct taking *t)
{
    stage_abort(&t->stage);
    buf_clear(&t->small);
    hasher_free(&t->hasher);
    t->hasher = hasher_new();
    t->at = 0;
}

static void count_bytes(struct run *r, uint64_t n)
{
    lock_take(&r->lock);
    r->look.bytes_done += n;
    r->look.wire_bytes += n;
    lock_drop(&r->lock);
}

static int on_begin(void *arg, uint64_t at, struct slice validator)
{
    struct taking *t = arg;

    if (at != t->at) {
        if (at != 0) {
            return E_INTERNAL;
        }
        begin_anew(t);
    }
    buf_clear(&t->validator);
    buf_adds(&t->validator, slice_first(validator, validator.n < VALIDATOR_ROOM ? validator.n : 0));
    return 0;
}

static void timer_in(struct taking *t, uint64_t ms)
{
    struct timeval tv = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};
    evtimer_add(t->timer, &tv);
}

static int on_body(void *arg, struct slice bytes)
{
    struct taking *t = arg;
    struct err e = {0};
    uint64_t pause_ms;
    int rc = write_on(t, bytes, &e);

    if (rc != 0) {
        fail(t->all, rc, &e);
        return rc;
    }
    hasher_add(t->hasher, bytes.p, bytes.n);
    t->at += bytes.n;
    count_bytes(t->all->run, bytes.n);
    pause_ms = pace_spend(&t->all->run->pace, bytes.n, clock_now_ms(), clock_unix_s());
    if (pause_ms == 0) {
        return 0;
    }
    timer_in(t, pause_ms);
    return TAKE_PAUSE;
}

/* --- sealing --- */

static void seal_work(struct job *j)
{
    struct taking *t = CONTAINER_OF(j, struct taking, seal);
    struct run *r = t->all->run;
    struct batch *b = batch_new();
    struct err *e = &t->seal_why;
    size_t chunks = 0;
    const struct digest *chunk = hasher_chunks(t->hasher, &chunks);
    int rc;

    if (t->unchanged) {
        rc = 0; /* the bytes are the published ones: only the row is new */
    } else if (t->stage == NULL) {
        rc = blob_put_bytes(r->world.store, buf_slice(&t->small), b, NULL, e);
    } else {
        rc = stage_seal(&t->stage, &t->seen.digest, t->at, chunk, chunks, b, NULL, e);
    }
    if (rc == 0) {
        stage_row_put(b, slice_str(r->job->repo), t->entry.path, &t->seen);
        rc = store_commit(r->world.store, &b, COMMIT_LAZY, e);
    }
    batch_free(&b);
    t->seal_rc = rc;
}

static void seal_done(struct job *j)
{
    struct taking *t = CONTAINER_OF(j, struct taking, seal);
    struct takes *x = t->all;
    struct run *r = x->run;

    if (t->seal_rc != 0) {
        fail(x, t->seal_rc, &t->seal_why);
    } else {
        r->plan.fate[t->index] = FATE_STAGED;
        x->done++;
        lock_take(&r->lock);
        r->look.files_done++;
        lock_drop(&r->lock);
    }
    taking_free(t);
    look_over(x);
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
    t->seen.validator = buf_slice(&t->validator);
}

static void seal(struct taking *t)
{
    t->seal = (struct job){.work = seal_work, .done = seal_done, .reply = t->all->run->box};
    pool_submit(t->all->run->world.disk, &t->seal);
}

/* --- the end of a try --- */

static void give_up_entry(struct taking *t, int rc, const struct err *why)
{
    struct takes *x = t->all;
    struct run *r = x->run;
    bool there = t->was_there;

    run_say(r, "%s: " SLICE_FMT ": %s", there ? "kept as it was" : "left out",
            SLICE_ARG(t->entry.path), why->text[0] != '\0' ? why->text : err_plain(rc));
    r->plan.fate[t->index] = there ? FATE_KEEP : FATE_DROP;
    x->vanished++;
    lock_take(&r->lock);
    r->look.kept++;
    lock_drop(&r->lock);
    taking_free(t);
    look_over(x);
}

static void give_up_run(struct taking *t, int rc, const struct err *why)
{
    struct takes *x = t->all;

    if (x->rc == 0) {
        run_say(x->run, "failed: " SLICE_FMT ": %s", SLICE_ARG(t->entry.path), why->text);
    }
    fail(x, rc, why);
    taking_free(t);
    look_over(x);
}

static void ask(struct taking *t);

/* The next try, or the end of a pause. */
static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct taking *t = arg;

    (void)fd;
    (void)what;
    if (t->take == NULL) {
        ask(t);
    } else {
        t->all->run->ops->resume(t->take);
    }
}

static void try_again(struct taking *t, int rc, const struct err *why)
{
    if (t->at > t->progress) {
        t->tries = 0;
    }
    t->progress = t->at;
    if (++t->tries >= TRIES || t->all->run->broken) {
        give_up_run(t, rc, why);
    } else {
        timer_in(t, (uint64_t)BACKOFF_MS << t->tries);
    }
}

/* All bytes came. A digest that is not the announced one is asked for once more, from the start: it may have been cut
 * together of two. */
static void finish(struct taking *t, const struct take_got *got)
{
    struct err why = {0};

    hasher_final(t->hasher, &t->seen.digest);
    t->seen.size_bytes = t->at;
    if (!t->entry.digest_known || digest_eq(&t->seen.digest, &t->entry.digest)) {
        seen_of_take(t, got);
        seal(t);
    } else if (!t->again) {
        t->again = true;
        begin_anew(t);
        timer_in(t, 0);
    } else {
        err_set(&why, E_CORRUPT, "its SHA-256 is not the announced one");
        give_up_run(t, E_CORRUPT, &why);
    }
}

static void on_done(void *arg, int rc, const struct err *why, const struct take_got *got)
{
    struct taking *t = arg;
    struct takes *x = t->all;

    t->take = NULL;
    evtimer_del(t->timer); /* of a pause */
    if (x->rc != 0) {
        taking_free(t);
        look_over(x);
        return;
    }
    switch (sync_class_of(rc, true)) {
    case SYNC_OK:
        if (got->absent) {
            x->run->plan.fate[t->index] = FATE_DROP;
            x->done++;
            taking_free(t);
            look_over(x);
        } else if (got->unchanged) {
            CHECK(t->was_seen);
            t->unchanged = true;
            t->seen = t->old_seen;
            seen_of_take(t, got);
            seal(t);
        } else {
            finish(t, got);
        }
        return;
    case SYNC_ENTRY:
        if (rc == E_CHANGED && !t->again) { /* became another while it came */
            t->again = true;
            begin_anew(t);
            timer_in(t, 0);
        } else {
            give_up_entry(t, rc, why);
        }
        return;
    case SYNC_RETRY:
        try_again(t, rc, why);
        return;
    case SYNC_HERE:
    case SYNC_STOPPED:
    case SYNC_FINAL:
        give_up_run(t, rc, why);
        return;
    }
}

/* --- beginning --- */

static const struct take_events events = {on_begin, on_body, on_done};

static void ask(struct taking *t)
{
    struct run *r = t->all->run;
    struct take_want w = {.entry = &t->entry,
                          .basis = t->basis,
                          .have_bytes = t->at,
                          .validator = buf_slice(&t->validator)};

    if (t->at == 0 && t->was_seen && t->old_seen.validator.n != 0) {
        w.validator = t->old_seen.validator;
        w.unchanged_is_fine = true;
    }
    t->take = r->ops->take(r->engine, &w, &events, t);
}

/* The path's published bytes: a basis, something to keep, maybe unchanged. */
static void look_back(struct taking *t)
{
    struct run *r = t->all->run;
    struct arena a = {0};
    struct entry old;
    struct seen s;

    if (!r->plan.has_base ||
        tree_get(r->world.store, &r->plan.base, t->entry.path, &a, &old, NULL) != 0 ||
        old.type != ENTRY_FILE) {
        arena_fini(&a);
        return;
    }
    t->was_there = true;
    if (blob_open(r->world.store, &old.digest, &t->basis, NULL) == 0 &&
        plan_seen(&r->plan, t->entry.path, &t->old_row, &s, NULL) == 0 &&
        digest_eq(&s.digest, &old.digest) && !t->entry.digest_known) {
        t->was_seen = true;
        t->old_seen = s;
    }
    arena_fini(&a);
}

static struct slice keep(struct buf *b, struct slice s)
{
    buf_adds(b, s);
    return buf_slice(b);
}

static void start_one(struct takes *x, uint32_t index)
{
    struct run *r = x->run;
    struct taking *t = NEW(struct taking);

    t->all = x;
    t->index = index;
    t->path = BUF_INIT(PATH_ROOM);
    t->validator = BUF_INIT(VALIDATOR_ROOM);
    t->listed_validator = BUF_INIT(VALIDATOR_ROOM);
    t->old_row = BUF_INIT(2 * VALIDATOR_ROOM);
    t->small = BUF_INIT(BLOB_INLINE_BYTES);
    t->hasher = hasher_new();
    t->timer = evtimer_new(r->base, on_timer, t);
    CHECK(t->timer != NULL);
    roster_get(r->roster, index, &t->entry);
    t->entry.path = keep(&t->path, t->entry.path);
    t->entry.validator = keep(&t->listed_validator, t->entry.validator);
    t->entry.target = t->entry.leader = SLICE_NONE;
    list_push_back(&x->active, &t->node);
    x->count++;
    look_back(t);
    ask(t);
}

static void start_more(struct takes *x)
{
    struct run *r = x->run;
    unsigned window = r->ops->window(r->engine);

    while (x->rc == 0 && x->count < window && x->next < r->plan.todo_count) {
        start_one(x, r->plan.todo[x->next++]);
    }
}

/* What is under way goes; what is being sealed is waited for, its rows are good. */
static void stop_all(struct takes *x)
{
    LIST_EACH (&x->active, it) {
        struct taking *t = LIST_ITEM(it, struct taking, node);
        if (t->seal.work == NULL) {
            taking_free(t);
        }
    }
    while (x->count > 0) {
        (void)!event_base_loop(x->run->base, EVLOOP_ONCE);
    }
}

/* An upstream that lost most of what it lists is not mirrored. */
static int judge_vanished(const struct takes *x, struct err *e)
{
    size_t all = x->run->plan.todo_count;

    if (x->vanished >= FEW_VANISH && x->vanished > all / 2) {
        return err_set(e, E_AGAIN, "%" PRIu64 " of %zu listed files could not be had", x->vanished,
                       all);
    }
    return 0;
}

void run_takes_broken(struct run *r, int rc, const struct err *why)
{
    if (r->takes != NULL) {
        fail(r->takes, rc, why);
    }
}

int run_take_all(struct run *r, struct err *e)
{
    struct takes x = {.run = r};
    int rc;

    list_init(&x.active);
    r->takes = &x;
    start_more(&x);
    x.over = x.count == 0;
    rc = run_turn(r, &x.over, e);
    stop_all(&x);
    r->takes = NULL;
    if (rc == 0 && x.rc != 0) {
        rc = x.rc;
        *e = x.why;
    }
    return rc == 0 ? judge_vanished(&x, e) : rc;
}
