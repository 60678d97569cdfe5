/* keeping.c - what has come of a file is hashed behind the writer. That of a large one outlives its try: saved now and then and when
 * it is given up, found and verified when it is asked for again. Jobs on the disk pool, one at a time of a file; a taking that
 * leaves before its job has ended leaves stage and hasher to it. */
#include <stdlib.h>

#include "common/os/clock.h"
#include "common/os/crash.h"
#include "server/sync/taking.h"

enum {
    LEAST_BYTES = 4 << 20,     /* of a file that is worth it */
    SAVE_BYTES = 64 << 20,     /* that came since it was saved, */
    SAVE_AGAIN_MS = 250,       /* and that time, as a sync holds up the hashing; */
    SAVE_SLOW_BYTES = 1 << 20, /* or so many, after that time */
    SAVE_MS = 10000,
    LAG_BYTES = 1 << 20,  /* written and not hashed: worth a job, */
    HASH_BYTES = 8 << 20, /* of so many at most; */
    BEHIND_BYTES =
        64
        << 20, /* no more may come meanwhile: what is hashed lies in memory still, and an end waits for little */
    TEXT_MAX = 8192,
};

enum keeping_what { KEEPING_HASHES, KEEPING_SAVES, KEEPING_CHECKS };

struct keeping { /* a job */
    struct job job;
    enum keeping_what what;
    struct takes *all;
    struct taking *t;       /* NULL: it has left, and the stage is ours */
    struct stage *stage;    /* t's, or ours */
    struct hasher *hasher;  /* t's meanwhile, or ours */
    struct unhashed recent; /* blocks to hash, */
    uint64_t recent_bytes;  /* and how much that was */
    uint64_t from, upto;    /* bytes of the stage that it is to see */
    struct part part;
    struct buf text;      /* the part's path and validator */
    struct keeping *next; /* ours: to be saved after this */
    bool forget, has_row;
    int rc;
    struct err why;
};

bool keeping_worth(const struct sync_entry *en)
{
    return en->size_bytes == SYNC_SIZE_UNKNOWN || en->size_bytes >= LEAST_BYTES;
}

static bool is_worth(const struct taking *t)
{
    return t->stage != NULL && stage_id(t->stage) != 0 && t->at >= LEAST_BYTES;
}

static struct keeping *keeping_new(struct taking *t, enum keeping_what what)
{
    struct keeping *k = NEW(struct keeping);

    k->what = what;
    k->upto = taking_written(t);
    k->all = t->all;
    k->t = t;
    k->stage = t->stage;
    k->has_row = t->has_row;
    unhashed_init(&k->recent);
    k->text = BUF_INIT(TEXT_MAX);
    k->part.stage_id = stage_id(t->stage);
    return k;
}

static void keeping_free(struct keeping **kp)
{
    struct keeping *k = *kp;

    *kp = NULL;
    k->all->recent_bytes -= k->recent_bytes;
    unhashed_drop(&k->recent);
    hasher_free(&k->hasher);
    buf_free(&k->text);
    free(k);
}

static void describe(struct keeping *k, const struct taking *t)
{
    const struct sync_entry *en = &t->entry;
    struct part *p = &k->part;

    buf_adds(&k->text, t->entry.path);
    buf_adds(&k->text, buf_slice(&t->validator));
    p->repo = slice_str(t->all->run->job->repo);
    p->path = slice_first(buf_slice(&k->text), t->entry.path.n);
    p->upstream = t->all->run->site.url;
    p->digest_known = en->digest_known;
    p->digest = en->digest;
    p->seen = (struct seen){.listed_size = en->size_bytes,
                            .size_step = en->size_step,
                            .listed_mtime_ns = en->mtime_ns,
                            .mtime_step_s = en->mtime_step_s,
                            .taken_unix_s = clock_unix_s(),
                            .validator = slice_from(buf_slice(&k->text), t->entry.path.n)};
}

/* --- jobs --- */

static int save(struct keeping *k)
{
    struct batch *b = batch_new();
    int rc = stage_sync(k->stage, &k->why);

    if (rc == 0) {
        k->part.seen.size_bytes = k->upto;
        hasher_so_far(k->hasher, &k->part.seen.digest);
        part_put(b, &k->part);
        rc = store_commit(k->all->run->world.store, &b, COMMIT_LAZY, &k->why);
        crash_point("sync.kept");
    }
    batch_free(&b);
    return rc;
}

static int check(struct keeping *k)
{
    struct digest got;

    hasher_so_far(k->hasher, &got);
    return digest_eq(&got, &k->part.seen.digest)
               ? 0
               : err_set(&k->why, E_CORRUPT, "what was kept is damaged");
}

static void work(struct job *j)
{
    struct keeping *k = CONTAINER_OF(j, struct keeping, job);

    k->rc = unhashed_hash(&k->recent, k->hasher, stage_fd(k->stage), k->upto, &k->why);
    if (k->rc == 0 && k->what == KEEPING_SAVES) {
        k->rc = save(k);
    } else if (k->rc == 0 && k->what == KEEPING_CHECKS) {
        k->rc = check(k);
    }
}

static void on_done(struct job *j);

static void submit(struct keeping *k)
{
    k->job = (struct job){.work = work, .done = on_done, .reply = k->all->run->box};
    k->all->keepings++;
    pool_submit(k->all->run->world.disk, &k->job, k->all->run->client);
}

static void drop_row(struct run *r, uint64_t stage_id)
{
    struct batch *b = batch_new();
    struct err e = {0};

    part_del(b, stage_id);
    if (store_commit(r->world.store, &b, COMMIT_LAZY, &e) != 0) {
        run_say(r, "%s", e.text); /* swept at the next start */
    }
}

/* Nobody writes to it any more. */
static void settle_left(struct keeping *k)
{
    bool lost = stage_lost(k->stage);
    bool good =
        k->has_row && !k->forget && !lost && !(k->what == KEEPING_CHECKS && k->rc == E_CORRUPT);

    if (k->next != NULL && lost) {
        keeping_free(&k->next);
    }
    if (k->next != NULL) {
        k->next->stage = k->stage;
        k->next->has_row = k->has_row;
        k->next->hasher = k->hasher;
        k->hasher = NULL;
        submit(k->next);
    } else if (good) {
        stage_park(&k->stage);
    } else {
        stage_abort(&k->stage);
        if (k->has_row) {
            drop_row(k->all->run, k->part.stage_id);
        }
    }
}

static void settle_checked(struct keeping *k, struct taking *t)
{
    if (k->rc == 0) {
        t->at = t->progress = t->kept_bytes = k->part.seen.size_bytes;
        taking_counted(t, t->at);
    } else {
        taking_begin_anew(t);
    }
    takes_ask(t);
}

static void settle_here(struct keeping *k)
{
    struct taking *t = k->t;

    t->keeping = NULL;
    t->has_row = k->has_row;
    hasher_free(&t->hasher);
    t->hasher = k->hasher;
    k->hasher = NULL;
    if (k->what == KEEPING_CHECKS) {
        settle_checked(k, t);
        return;
    }
    if (k->what == KEEPING_SAVES && k->rc == 0) {
        t->kept_bytes = k->upto;
    } else if (k->what == KEEPING_SAVES) {
        t->save_next_ms = clock_now_ms() + SAVE_MS;
    }
    if (hasher_count(t->hasher) < k->upto || stage_lost(t->stage)) { /* our own disk */
        run_say(k->all->run, "failed: " SLICE_FMT ": %s", SLICE_ARG(t->entry.path), k->why.text);
        takes_fail(k->all, k->rc, &k->why);
    } else if (!t->came) {
        keeping_look(t, clock_now_ms());
    } else if (!keeping_hash_rest(t)) {
        takes_came(t);
    }
}

/* A file that is not kept comes all the same. */
static void tell_trouble(const struct keeping *k)
{
    if (k->rc != 0 && k->what != KEEPING_HASHES) {
        run_say(k->all->run, SLICE_FMT ": not %s: %s", SLICE_ARG(k->part.path),
                k->what == KEEPING_CHECKS ? "gone on with" : "kept", k->why.text);
    }
}

static void on_done(struct job *j)
{
    struct keeping *k = CONTAINER_OF(j, struct keeping, job);
    struct takes *x = k->all;

    x->keepings--;
    k->has_row = k->has_row || (k->what == KEEPING_SAVES && k->rc == 0);
    tell_trouble(k);
    if (k->t != NULL) {
        settle_here(k);
    } else {
        settle_left(k);
    }
    keeping_free(&k);
    takes_look_over(x);
}

/* --- what happens to a taking --- */

static void start(struct taking *t, enum keeping_what what, uint64_t upto)
{
    struct keeping *k = keeping_new(t, what);

    if (what == KEEPING_SAVES) {
        describe(k, t);
    }
    k->from = hasher_count(t->hasher);
    k->upto = upto;
    k->hasher = t->hasher;
    unhashed_take(&t->recent, upto, &k->recent);
    k->recent_bytes = k->recent.bytes;
    t->hasher = NULL;
    t->keeping = k;
    submit(k);
}

static void start_hash(struct taking *t, uint64_t upto)
{
    start(t, KEEPING_HASHES, min_u64(upto, hasher_count(t->hasher) + HASH_BYTES));
}

static void start_save(struct taking *t)
{
    start(t, KEEPING_SAVES, t->save_at);
    t->save_at = 0;
}

static bool save_due(const struct taking *t, uint64_t now_ms)
{
    uint64_t more = taking_written(t) - min_u64(taking_written(t), t->kept_bytes);

    return is_worth(t) && now_ms >= t->save_next_ms &&
           (more >= SAVE_BYTES || (more >= SAVE_SLOW_BYTES && now_ms - t->kept_ms >= SAVE_MS));
}

bool keeping_behind(const struct taking *t)
{
    uint64_t hashed = t->keeping != NULL ? t->keeping->from : hasher_count(t->hasher);

    return taking_written(t) > hashed + BEHIND_BYTES;
}

/* The hasher never is beyond save_at: no job begins before that one is saved, whatever comes meanwhile. */
void keeping_look(struct taking *t, uint64_t now_ms)
{
    uint64_t written = taking_written(t);

    if (t->save_at == 0 && save_due(t, now_ms)) {
        t->kept_ms = now_ms;
        t->save_next_ms = now_ms + SAVE_AGAIN_MS;
        t->save_at = written;
    }
    if (t->keeping != NULL) {
        return;
    }
    if (t->save_at != 0) {
        start_save(t);
    } else if (t->stage != NULL && written >= hasher_count(t->hasher) + LAG_BYTES) {
        start_hash(t, written);
    }
}

bool keeping_hash_rest(struct taking *t)
{
    if (t->keeping != NULL) {
        return true;
    }
    if (t->save_at != 0) {
        start_save(t);
    } else if (hasher_count(t->hasher) < t->at) {
        start_hash(t, t->at);
    }
    return t->keeping != NULL;
}

/* The job in flight, if any, gets the stage; the hasher it has. */
static struct keeping *let_go(struct taking *t)
{
    struct keeping *k = t->keeping;

    t->keeping = NULL;
    if (k != NULL) {
        k->t = NULL;
        t->stage = NULL;
    }
    return k;
}

void keeping_forget(struct taking *t)
{
    struct keeping *k = let_go(t);

    if (k != NULL) {
        k->forget = true;
    } else if (t->stage != NULL) {
        uint64_t id = stage_id(t->stage);
        stage_abort(&t->stage);
        if (t->has_row) {
            drop_row(t->all->run, id);
        }
    }
    t->has_row = false;
    t->kept_bytes = t->save_at = 0;
}

void keeping_leave(struct taking *t)
{
    struct keeping *more = NULL, *k;
    bool lost = t->stage != NULL && stage_lost(t->stage);

    if (is_worth(t) && !lost && !t->seal_due && t->at > t->kept_bytes) {
        (void)!taking_flush(t, NULL); /* else without the last block */
        more = keeping_new(t, KEEPING_SAVES);
        describe(more, t);
        more->t = NULL;
    }
    k = let_go(t);
    if (k != NULL) {
        k->next = more;
    } else if (more != NULL) {
        more->hasher = t->hasher;
        t->hasher = NULL;
        t->stage = NULL;
        submit(more);
    } else if (t->stage != NULL && t->has_row && !lost) {
        stage_park(&t->stage);
    } else {
        keeping_forget(t);
    }
}

/* The engine copies what still fits from what is here. It stays until all has come: another cut leaves the longer one. */
static void begin_from(struct taking *t, const struct part *p)
{
    struct blob *b = NULL;

    if (stage_peek(t->stage, p->seen.size_bytes, &b, NULL) == 0) {
        blob_release(&t->basis);
        t->basis = b;
        t->basis_begins = true;
    }
    stage_park(&t->stage);
}

static int resume_stage(struct taking *t, const struct part *p, struct err *e)
{
    const struct run_world *w = &t->all->run->world;
    uint64_t expect = taking_expects(t);
    int rc = stage_resume(w->store, p->stage_id, expect, &t->stage, e);

    if (rc == E_NOSPACE &&
        w->make_room(w->arg, expect - min_u64(expect, p->seen.size_bytes)) == 0) {
        rc = stage_resume(w->store, p->stage_id, expect, &t->stage, e);
    }
    return rc;
}

bool keeping_resume(struct taking *t, struct list *parts)
{
    struct run *r = t->all->run;
    struct part *p = parts_take(parts, t->entry.path);
    struct err e = {0};
    struct keeping *k;
    int rc;

    if (p == NULL) {
        return false;
    }
    rc = part_fits(p, &t->entry, r->site.url) && p->seen.size_bytes >= LEAST_BYTES
             ? resume_stage(t, p, &e)
             : E_INVALID;
    if (rc == E_NOSPACE) { /* which the whole of it will meet too: it stays until there is room */
        list_push_back(parts, &p->node);
        return false;
    }
    if (rc != 0) {
        part_drop(r->world.store, &p);
        return false;
    }
    if (r->ops->from_basis) {
        begin_from(t, p);
        list_push_back(parts, &p->node);
        return false;
    }
    buf_adds(&t->validator, p->seen.validator);
    t->has_row = true;
    k = t->keeping = keeping_new(t, KEEPING_CHECKS);
    k->hasher = hasher_new();
    k->upto = p->seen.size_bytes;
    k->part.seen = p->seen;
    buf_adds(&k->text, t->entry.path);
    k->part.path = buf_slice(&k->text);
    part_free(&p);
    submit(k);
    return true;
}
