/* keeping.c - what has come of a large file outlives its try: saved now and then and when it is given up, found and verified
 * when it is asked for again. Jobs on the disk pool; a taking that leaves before its job has ended leaves the stage to it. */
#include <stdlib.h>

#include "common/os/clock.h"
#include "common/os/crash.h"
#include "common/os/newfile.h"
#include "server/sync/taking.h"

enum {
    LEAST_BYTES = 4 << 20,     /* of a file that is worth it */
    SAVE_BYTES = 64 << 20,     /* that came since it was saved; */
    SAVE_SLOW_BYTES = 1 << 20, /* or so many, after that time */
    SAVE_MS = 10000,
    READ_BYTES = 1 << 20,
    TEXT_MAX = 8192,
};

struct keeping { /* a job */
    struct job job;
    struct takes *all;
    struct taking *t;    /* NULL: it has left, and the stage is ours */
    struct stage *stage; /* t's, or ours */
    struct part part;
    struct buf text;       /* the part's path and validator */
    struct hasher *hasher; /* of what is checked; NULL: it is saved */
    struct keeping *next;  /* ours: to be saved after this */
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

static struct keeping *keeping_new(struct taking *t)
{
    struct keeping *k = NEW(struct keeping);

    k->all = t->all;
    k->t = t;
    k->stage = t->stage;
    k->has_row = t->has_row;
    k->text = BUF_INIT(TEXT_MAX);
    k->part.stage_id = stage_id(t->stage);
    return k;
}

static void keeping_free(struct keeping **kp)
{
    struct keeping *k = *kp;

    *kp = NULL;
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
                            .size_bytes = t->at,
                            .validator = slice_from(buf_slice(&k->text), t->entry.path.n)};
    hasher_so_far(t->hasher, &p->seen.digest);
}

/* --- jobs --- */

static void save(struct job *j)
{
    struct keeping *k = CONTAINER_OF(j, struct keeping, job);
    struct batch *b = batch_new();

    k->rc = stage_sync(k->stage, &k->why);
    if (k->rc == 0) {
        part_put(b, &k->part);
        k->rc = store_commit(k->all->run->world.store, &b, COMMIT_LAZY, &k->why);
        crash_point("sync.kept");
    }
    batch_free(&b);
}

static void check(struct job *j)
{
    struct keeping *k = CONTAINER_OF(j, struct keeping, job);
    char *room = mem_new(READ_BYTES);
    uint64_t off = 0, end = k->part.seen.size_bytes;
    struct digest got;

    while (off < end && k->rc == 0) {
        size_t n = (size_t)min_u64(READ_BYTES, end - off);
        k->rc = fd_pread_all(stage_fd(k->stage), room, n, off, &k->why);
        if (k->rc == 0) {
            hasher_add(k->hasher, room, n);
            off += n;
        }
    }
    free(room);
    if (k->rc == 0) {
        hasher_so_far(k->hasher, &got);
        if (!digest_eq(&got, &k->part.seen.digest)) {
            k->rc = err_set(&k->why, E_CORRUPT, "what was kept is damaged");
        }
    }
}

static void on_done(struct job *j);

static void submit(struct keeping *k)
{
    k->job = (struct job){
        .work = k->hasher != NULL ? check : save, .done = on_done, .reply = k->all->run->box};
    k->all->keepings++;
    pool_submit(k->all->run->world.disk, &k->job);
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
    bool good = k->has_row && !k->forget && !(k->hasher != NULL && k->rc == E_CORRUPT);

    if (k->next != NULL) {
        k->next->stage = k->stage;
        k->next->has_row = k->has_row;
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

static void settle_here(struct keeping *k)
{
    struct taking *t = k->t;

    t->keeping = NULL;
    t->has_row = k->has_row;
    if (k->hasher == NULL) {
        if (k->rc == 0) {
            t->kept_bytes = k->part.seen.size_bytes;
        }
        if (t->seal_due) {
            sealing_add(t);
        }
        return;
    }
    if (k->rc == 0) {
        hasher_free(&t->hasher);
        t->hasher = k->hasher;
        k->hasher = NULL;
        t->at = t->progress = t->kept_bytes = k->part.seen.size_bytes;
        taking_counted(t, t->at);
    } else {
        taking_begin_anew(t);
    }
    takes_ask(t);
}

static void on_done(struct job *j)
{
    struct keeping *k = CONTAINER_OF(j, struct keeping, job);
    struct takes *x = k->all;

    x->keepings--;
    k->has_row = k->has_row || (k->hasher == NULL && k->rc == 0);
    if (k->rc != 0) {
        run_say(x->run, SLICE_FMT ": not %s: %s", SLICE_ARG(k->part.path),
                k->hasher != NULL ? "gone on with" : "kept", k->why.text);
    }
    if (k->t != NULL) {
        settle_here(k);
    } else {
        settle_left(k);
    }
    keeping_free(&k);
    takes_look_over(x);
}

/* --- what happens to a taking --- */

void keeping_look(struct taking *t, uint64_t now_ms)
{
    uint64_t more = t->at - t->kept_bytes;

    if (t->keeping != NULL || !is_worth(t) ||
        (more < SAVE_BYTES && (more < SAVE_SLOW_BYTES || now_ms - t->kept_ms < SAVE_MS))) {
        return;
    }
    t->kept_ms = now_ms;
    t->keeping = keeping_new(t);
    describe(t->keeping, t);
    submit(t->keeping);
}

/* The job in flight, if any, gets the stage. */
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
    t->kept_bytes = 0;
}

void keeping_leave(struct taking *t)
{
    struct keeping *more = NULL, *k;
    bool worth = is_worth(t);

    if (worth && !t->seal_due && t->at > t->kept_bytes) {
        more = keeping_new(t);
        describe(more, t);
        more->t = NULL;
    }
    k = let_go(t);
    if (k != NULL) {
        k->next = more;
    } else if (more != NULL) {
        t->stage = NULL;
        submit(more);
    } else if (t->stage != NULL && t->has_row) {
        stage_park(&t->stage);
    } else {
        stage_abort(&t->stage);
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
    k = t->keeping = keeping_new(t);
    k->hasher = hasher_new();
    k->part.seen = p->seen;
    buf_adds(&k->text, t->entry.path);
    k->part.path = buf_slice(&k->text);
    part_free(&p);
    submit(k);
    return true;
}
