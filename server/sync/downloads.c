/* downloads.c - the fetch stage: what the plan wants is asked of the engine, so many at once; what
 * fails in passing is asked again, from where it broke. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/os/clock.h"
#include "common/os/crash.h"
#include "common/os/newfile.h"
#include "server/store/ingest.h"
#include "server/sync/run_priv.h"
#include "server/sync/seen.h"

enum { FILE_DOWNLOAD_VALIDATOR_MAX = 1024 };

struct file_download { /* one file under way */
    struct list node;  /* of takes.active, takes.whole, or a sealing */
    struct downloads *all;
    uint32_t index;          /* in the entry list */
    struct sync_entry entry; /* its slices point into the bufs below */
    struct buf path, validator, listed_validator;
    struct download *download;
    struct event *timer;             /* the next try */
    struct ingest *in;               /* NULL: nothing has come */
    struct partial *kept;            /* what its row says; NULL: there is none */
    struct download_checkpoint *job; /* at the ingest; or NULL */
    uint64_t save_at;  /* what came by then is to be saved as soon as it is hashed; 0: not yet */
    uint64_t progress; /* at the last failure */
    unsigned tries;
    bool again;     /* it was wrong once */
    bool small_one; /* it counts with those of engine_ops.smalls */
    bool was_there; /* the published tree has a file of this path */
    bool was_seen;  /* and this is known of it */
    struct seen old_seen;
    struct buf old_row; /* what old_seen points into */
    struct blob *basis;
    bool basis_begins; /* it is what a former run left */
    bool came;         /* all of it, and is being hashed to its end */
    bool unchanged;
    struct download_result got;
    struct seen seen;
};

struct downloads {
    struct sync_run *run;
    struct list active;
    struct list whole; /* small ones that wait for a sealer */
    unsigned sealers;  /* jobs that seal small ones */
    size_t next;       /* in plan.todo */
    unsigned count;
    unsigned smalls; /* of them, beside the window */
    unsigned jobs;   /* at their bytes */
    _Atomic uint64_t recent_bytes;
    uint64_t vanished, done;
    bool over, closing;
    int rc;
    struct err why;
};

static void downloads_ask(struct file_download *t);
static void downloads_fail(struct downloads *x, int rc, const struct err *why);
static void downloads_came(struct file_download *t);
static void downloads_look_over(struct downloads *x);
static int file_download_on_packed(void *arg, struct slice bytes, uint64_t wire_bytes);

/* --- one file under way ---
 *
 * Its bytes go into an ingest, and what came whole
 * becomes a blob.
 *
 * The first HASH_HERE_BYTES are hashed as they come. What follows is hashed after it was written,
 * on the disk pool, so that a large file's way takes two cores. A large file outlives its try: it
 * is saved now and then and when it is given up, and found and verified when it is asked for again.
 * One job at a time is at a file; a taking that leaves before its job has ended leaves the ingest
 * to it.
 *
 * Small files share jobs and commits: what comes while both sealers are at work is the next one's,
 * so a lone file waits for nobody and a hundred thousand do not wait for as many commits.
 *
 * threads  the run's; hashing, saving and sealing on the disk pool
 */

enum {
    HASH_HERE_BYTES = 1 << 20,
    LEAST_BYTES = 4 << 20, /* of a file that is worth to be saved */
    LAG_BYTES = 1 << 20,   /* written and not hashed: worth a job, */
    HASH_BYTES = 8 << 20,  /* of so many at most; */
    /* No more may come meanwhile: what is hashed is still in memory, and an end waits briefly. */
    BEHIND_BYTES = 64 << 20,
    NAME_MAX_BYTES = 8192,
};

enum download_checkpoint_what {
    DOWNLOAD_CHECKPOINT_HASHES,
    DOWNLOAD_CHECKPOINT_SAVES,
    DOWNLOAD_CHECKPOINT_RESUMES, /* opens and verifies what is left of an earlier time */
    DOWNLOAD_CHECKPOINT_LEAVES,  /* parks it for a later one, or drops it */
};

struct download_checkpoint { /* a job */
    struct job job;
    enum download_checkpoint_what what;
    struct downloads *all;
    struct file_download *t; /* NULL: it has left, */
    struct ingest *in; /* and this is ours; DOWNLOAD_CHECKPOINT_RESUMES: ours until it is open */
    uint64_t upto;     /* bytes to hash */
    struct ingest_how how;
    struct partial *part;             /* what is saved, or resumed */
    struct partial *kept;             /* DOWNLOAD_CHECKPOINT_LEAVES: what its row says */
    bool is_void;                     /* the same: nothing of it is worth anything */
    struct download_checkpoint *next; /* ours: DOWNLOAD_CHECKPOINT_LEAVES */
    int rc;
    struct err why;
};

/* bytes that came */
static uint64_t file_download_at(const struct file_download *t)
{
    return t->in != NULL ? ingest_bytes(t->in) : 0;
}

static uint64_t kept_bytes(const struct file_download *t)
{
    return t->kept != NULL ? extents_bytes(&t->kept->have) : 0;
}

static struct ingest_how how_of(const struct file_download *t)
{
    const struct sync_entry *en = &t->entry;
    const struct run_world *w = &t->all->run->world;
    bool sized = en->size_bytes != SYNC_SIZE_UNKNOWN && en->size_step <= 1;

    return (struct ingest_how){.length_bytes = sized ? en->size_bytes : 0,
                               .reserve = true,
                               .named = en->size_bytes == SYNC_SIZE_UNKNOWN ||
                                        en->size_bytes >= LEAST_BYTES,
                               .small = true,
                               .blocks = true,
                               .hash_bytes = HASH_HERE_BYTES,
                               .recent_bytes = &t->all->recent_bytes,
                               .make_room = w->make_room,
                               .make_room_arg = w->arg};
}

static int open_ingest(struct file_download *t, struct err *e)
{
    struct ingest_how how = how_of(t);

    return t->in != NULL ? 0 : ingest_open(t->all->run->world.store, &how, &t->in, e);
}

/* --- what is kept of it ----------------------------------------------------------------------- */

static void name_of_sync_partial(struct buf *out, struct slice repo, struct slice path)
{
    buf_adds(out, repo);
    buf_byte(out, 0);
    buf_adds(out, path);
}

/* It is the beginning of what is listed now, as far as a list can tell. */
static void source_of(struct buf *out, const struct file_download *t)
{
    const struct sync_entry *en = &t->entry;

    buf_adds(out, t->all->run->site.url);
    buf_be(out, 8, en->size_bytes);
    buf_be(out, 8, (uint64_t)en->mtime_ns);
    buf_be(out, 8, en->size_step);
    buf_be(out, 4, en->mtime_step_s);
}

static struct partial *describe_download_partial(const struct file_download *t, uint64_t bytes)
{
    struct buf text = BUF_INIT(NAME_MAX_BYTES);
    struct partial *p;

    name_of_sync_partial(&text, slice_str(t->all->run->job->repo), t->entry.path);
    p = partial_new(PARTIAL_SYNC, buf_slice(&text));
    buf_clear(&text);
    source_of(&text, t);
    p->source = arena_copy(&p->arena, buf_slice(&text));
    p->validator = arena_copy(&p->arena, buf_slice(&t->validator));
    p->digest_known = t->entry.digest_known;
    p->digest = t->entry.digest;
    p->total_bytes = UINT64_MAX;
    p->summed = true;
    extents_add(&p->have, 0, bytes);
    buf_free(&text);
    return p;
}

static bool partial_fits_download(const struct partial *p, const struct file_download *t)
{
    struct buf source = BUF_INIT(NAME_MAX_BYTES);
    bool same;

    if (t->entry.digest_known) {
        return p->digest_known && digest_eq(&p->digest, &t->entry.digest);
    }
    source_of(&source, t);
    same = !p->digest_known && slice_eq(p->source, buf_slice(&source));
    buf_free(&source);
    return same;
}

static bool is_worth(const struct file_download *t)
{
    return t->in != NULL && ingest_id(t->in) != 0 && ingest_state(t->in) == INGEST_FILE &&
           file_download_at(t) >= LEAST_BYTES;
}

/* --- jobs ------------------------------------------------------------------------------------- */

static int save_checkpoint(struct download_checkpoint *k)
{
    int rc = ingest_save(k->in, k->part, NULL, COMMIT_LAZY, &k->why);

    if (rc == 0) {
        crash_point("sync.kept");
    }
    return rc;
}

/* What is damaged goes, what there is no room for now stays for another time. */
static int resume_checkpoint(struct download_checkpoint *k)
{
    struct store *s = k->all->run->world.store;
    int rc = ingest_resume(s, k->part, &k->how, &k->in, &k->why);

    if (rc == E_NOSPACE) {
        partial_give(s, &k->part);
    } else if (rc != 0) {
        partial_drop(s, &k->part);
    }
    return rc;
}

static int park_checkpoint(struct download_checkpoint *k)
{
    if (k->part != NULL) {
        k->rc = save_checkpoint(k);
        if (k->rc == 0) {
            partial_free(&k->kept);
            k->kept = k->part;
            k->part = NULL;
        }
    }
    if (k->kept != NULL && !k->is_void && ingest_state(k->in) != INGEST_LOST) {
        ingest_park(&k->in);
        partial_give(k->all->run->world.store, &k->kept);
    } else {
        ingest_drop(&k->in);
    }
    return k->rc;
}

static void run_checkpoint_job(struct job *j)
{
    struct download_checkpoint *k = CONTAINER_OF(j, struct download_checkpoint, job);

    switch (k->what) {
    case DOWNLOAD_CHECKPOINT_HASHES:
        k->rc = ingest_hash(k->in, k->upto, &k->why);
        break;
    case DOWNLOAD_CHECKPOINT_SAVES:
        k->rc = save_checkpoint(k);
        break;
    case DOWNLOAD_CHECKPOINT_RESUMES:
        k->rc = resume_checkpoint(k);
        break;
    case DOWNLOAD_CHECKPOINT_LEAVES:
        k->rc = park_checkpoint(k);
        break;
    }
}

static void on_worked(struct job *j);

static void submit_checkpoint(struct download_checkpoint *k)
{
    k->job = (struct job){.work = run_checkpoint_job, .done = on_worked, .reply = k->all->run->box};
    k->all->jobs++;
    pool_submit(k->all->run->world.disk, &k->job, k->all->run->client);
}

static struct download_checkpoint *download_checkpoint_new(struct file_download *t,
                                                           enum download_checkpoint_what what)
{
    struct download_checkpoint *k = NEW(struct download_checkpoint);

    k->what = what;
    k->all = t->all;
    k->t = t;
    k->in = t->in;
    k->how = how_of(t);
    return k;
}

static void download_checkpoint_free(struct download_checkpoint **kp)
{
    struct download_checkpoint *k = *kp;

    *kp = NULL;
    partial_free(&k->part);
    partial_free(&k->kept);
    free(k);
}

static void start_checkpoint(struct file_download *t, enum download_checkpoint_what what,
                             uint64_t upto)
{
    struct download_checkpoint *k = download_checkpoint_new(t, what);

    k->upto = upto;
    k->part = what == DOWNLOAD_CHECKPOINT_SAVES ? describe_download_partial(t, upto) : NULL;
    t->job = k;
    submit_checkpoint(k);
}

static void count_downloaded_bytes(struct file_download *t, uint64_t bytes)
{
    struct sync_run *r = t->all->run;

    lock_take(&r->lock);
    r->look.bytes_done += bytes;
    lock_drop(&r->lock);
}

static void schedule_checkpoint(struct file_download *t);
static bool hash_rest(struct file_download *t);

static void finish_checkpoint(struct download_checkpoint *k, struct file_download *t)
{
    t->job = NULL;
    if (k->what == DOWNLOAD_CHECKPOINT_RESUMES) {
        t->in = k->in;
        t->progress = kept_bytes(t);
        if (k->rc == 0) {
            count_downloaded_bytes(t, t->progress);
        } else {
            buf_clear(&t->validator);
        }
        downloads_ask(t);
    } else if (ingest_hashed(t->in) < k->upto ||
               ingest_state(t->in) == INGEST_LOST) { /* our own disk */
        run_say(k->all->run, "failed: " SLICE_FMT ": %s", SLICE_ARG(t->entry.path), k->why.text);
        downloads_fail(k->all, k->rc, &k->why);
    } else if (!t->came) {
        schedule_checkpoint(t);
    } else if (!hash_rest(t)) {
        downloads_came(t);
    }
}

static void settle_left(struct download_checkpoint *k, struct partial **kept)
{
    struct download_checkpoint *next = k->next;

    if (next == NULL) {
        return;
    }
    next->in = k->in;
    if (*kept != NULL) {
        partial_free(&next->kept);
        next->kept = *kept;
        *kept = NULL;
    }
    if (next->in != NULL) {
        submit_checkpoint(next);
    } else {
        download_checkpoint_free(&next);
    }
}

/* A file that is not kept comes all the same. */
static void on_worked(struct job *j)
{
    struct download_checkpoint *k = CONTAINER_OF(j, struct download_checkpoint, job);
    struct downloads *x = k->all;
    struct partial *kept = NULL;

    x->jobs--;
    if (k->rc != 0 && k->what != DOWNLOAD_CHECKPOINT_HASHES) {
        run_say(x->run, SLICE_FMT ": not %s: %s",
                SLICE_ARG(k->t != NULL ? k->t->entry.path : SLICE("a partial file")),
                k->what == DOWNLOAD_CHECKPOINT_RESUMES ? "resumed" : "saved", k->why.text);
    } else if (k->rc == 0 && k->what != DOWNLOAD_CHECKPOINT_LEAVES) {
        kept = k->part;
        k->part = NULL;
    }
    if (k->t != NULL) {
        if (kept != NULL) {
            partial_free(&k->t->kept);
            k->t->kept = kept;
        }
        finish_checkpoint(k, k->t);
    } else {
        settle_left(k, &kept);
        partial_free(&kept);
    }
    download_checkpoint_free(&k);
    downloads_look_over(x);
}

/* True: bytes of an earlier time are being verified, then downloads_ask(). False: there are none,
 * or they are the basis. */
static bool file_download_resume(struct file_download *t)
{
    struct sync_run *r = t->all->run;
    struct buf name = BUF_INIT(NAME_MAX_BYTES);
    struct blob *b = NULL;
    struct partial *p;

    name_of_sync_partial(&name, slice_str(r->job->repo), t->entry.path);
    p = partial_take(r->world.store, PARTIAL_SYNC, buf_slice(&name));
    buf_free(&name);
    if (p == NULL) {
        return false;
    }
    if (!partial_fits_download(p, t) || extents_bytes(&p->have) < LEAST_BYTES) {
        partial_drop(r->world.store, &p);
        return false;
    }
    if (!r->ops->from_basis) {
        buf_adds(&t->validator, p->validator);
        t->job = download_checkpoint_new(t, DOWNLOAD_CHECKPOINT_RESUMES);
        t->job->part = p;
        submit_checkpoint(t->job);
        return true;
    }
    /* The engine copies what still fits from what is here. It stays until all has come: another cut
     * leaves the longer one. */
    if (partial_peek(r->world.store, p, &b, NULL) == 0) {
        blob_release(&t->basis);
        t->basis = b;
        t->basis_begins = true;
    }
    partial_give(r->world.store, &p);
    return false;
}

/* Has the last word: what is kept is parked, unless all of it is void. */
static void release_file_download(struct file_download *t, bool is_void)
{
    struct download_checkpoint *k;

    if (t->in == NULL && t->job == NULL) {
        return;
    }
    k = download_checkpoint_new(t, DOWNLOAD_CHECKPOINT_LEAVES);
    k->t = NULL;
    k->is_void = is_void;
    if (!is_void && is_worth(t)) {
        (void)!ingest_flush(t->in, NULL); /* else without the last block */
        if (ingest_written(t->in) > kept_bytes(t)) {
            k->part = describe_download_partial(t, ingest_written(t->in));
        }
    }
    k->kept = t->kept;
    t->kept = NULL;
    t->in = NULL;
    t->save_at = 0;
    if (t->job != NULL) {
        t->job->t = NULL;
        t->job->next = k;
        t->job = NULL;
    } else {
        submit_checkpoint(k);
    }
}

/* Nothing of it has come, or what has is void. */
static void file_download_forget(struct file_download *t)
{
    release_file_download(t, true);
}

static void file_download_free(struct file_download *t)
{
    struct downloads *x = t->all;

    if (t->download != NULL) {
        x->run->ops->cancel(&t->download);
    }
    release_file_download(t, false);
    partial_free(&t->kept);
    event_free(t->timer);
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

static void file_download_begin_anew(struct file_download *t)
{
    count_downloaded_bytes(t, 0 - file_download_at(t)); /* they come again */
    file_download_forget(t);
    t->came = false;
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* Bytes came: hashed behind the writer, saved now and then. The hasher never is beyond save_at: no
 * job begins before that one is saved, whatever comes meanwhile. */
static void schedule_checkpoint(struct file_download *t)
{
    uint64_t written = ingest_written(t->in);

    if (t->save_at == 0 && is_worth(t) && ingest_save_is_due(t->in, written, clock_now_ms())) {
        t->save_at = written;
    }
    if (t->job != NULL) {
        return;
    }
    if (t->save_at != 0) {
        start_checkpoint(t, DOWNLOAD_CHECKPOINT_SAVES, t->save_at);
        t->save_at = 0;
    } else if (written >= ingest_hashed(t->in) + LAG_BYTES) {
        start_checkpoint(t, DOWNLOAD_CHECKPOINT_HASHES,
                         min_u64(written, ingest_hashed(t->in) + HASH_BYTES));
    }
}

/* True: there is a job at it. */
static bool hash_rest(struct file_download *t)
{
    uint64_t hashed = ingest_hashed(t->in);

    if (t->job == NULL && t->save_at != 0) {
        start_checkpoint(t, DOWNLOAD_CHECKPOINT_SAVES, t->save_at);
        t->save_at = 0;
    } else if (t->job == NULL && hashed < file_download_at(t)) {
        start_checkpoint(t, DOWNLOAD_CHECKPOINT_HASHES,
                         min_u64(file_download_at(t), hashed + HASH_BYTES));
    }
    return t->job != NULL;
}

/* All came: downloads_came() follows, at once or when it is hashed. */
static int file_download_came(struct file_download *t, struct err *e)
{
    int rc = open_ingest(t, e);

    rc = rc != 0 ? rc : ingest_flush(t->in, e);
    t->came = rc == 0;
    if (rc == 0 && !hash_rest(t)) {
        downloads_came(t);
    }
    return rc;
}

/* It is hashed: seen.digest and seen.size_bytes are its own. */
static int file_download_finish(struct file_download *t, struct err *e)
{
    t->seen.size_bytes = file_download_at(t);
    return ingest_finish(t->in, t->seen.size_bytes, &t->seen.digest, e);
}

/* Events of the engine. */
static int file_download_on_begin(void *arg, uint64_t at, struct slice validator)
{
    struct file_download *t = arg;

    if (at != file_download_at(t)) {
        if (at != 0) {
            return E_INTERNAL;
        }
        file_download_begin_anew(t);
    }
    buf_clear(&t->validator);
    buf_adds(&t->validator,
             slice_first(validator, validator.n < FILE_DOWNLOAD_VALIDATOR_MAX ? validator.n : 0));
    return 0;
}

static void file_download_timer(struct file_download *t, uint64_t ms)
{
    struct timeval tv = clock_timeval(ms);
    evtimer_add(t->timer, &tv);
}

static int take_bytes(struct file_download *t, struct slice bytes, uint64_t wire_bytes, bool copied)
{
    struct sync_run *r = t->all->run;
    struct err e = {0};
    int rc = open_ingest(t, &e);

    rc = rc != 0 ? rc : ingest_append(t->in, bytes, &e);
    if (rc != 0) {
        downloads_fail(t->all, rc, &e);
        return rc;
    }
    lock_take(&r->lock);
    r->look.bytes_done += bytes.n;
    r->look.wire_bytes += wire_bytes;
    r->look.saved_bytes += copied ? bytes.n : 0;
    lock_drop(&r->lock);
    schedule_checkpoint(t);
    return 0;
}

static int go_on_in(struct file_download *t, uint64_t pause_ms)
{
    enum { BEHIND_MS = 5 }; /* in which a core hashes less than may wait */

    if (ingest_written(t->in) > ingest_hashed(t->in) + BEHIND_BYTES) {
        pause_ms = max_u64(pause_ms, BEHIND_MS);
    }
    if (pause_ms == 0) {
        return 0;
    }
    file_download_timer(t, pause_ms);
    return DOWNLOAD_PAUSE;
}

static int file_download_on_copy(void *arg, struct slice bytes)
{
    int rc = take_bytes(arg, bytes, 0, true);

    return rc != 0 ? rc : go_on_in(arg, 0);
}

static int file_download_on_body(void *arg, struct slice bytes)
{
    return file_download_on_packed(arg, bytes, bytes.n);
}

static int file_download_on_packed(void *arg, struct slice bytes, uint64_t wire_bytes)
{
    struct file_download *t = arg;
    int rc = take_bytes(t, bytes, wire_bytes, false);

    return rc != 0 ? rc
                   : go_on_in(t, pace_spend(&t->all->run->pace, wire_bytes, clock_now_ms(),
                                            clock_unix_s()));
}

/* --- sealing ---------------------------------------------------------------------------------- */

enum { SEALERS = 2, FILES_A_SEALER = 1024, BYTES_A_SEALER = 4 << 20 };

struct sealing { /* a job */
    struct job job;
    struct downloads *all;
    struct list these;
    bool small;
    int rc;
    struct err why;
};

static int seal_one(struct file_download *t, struct batch *b, struct err *e)
{
    /* Unchanged: the bytes are the published ones, only the row is new. */
    int rc = t->unchanged ? 0 : ingest_seal(&t->in, b, NULL, e);

    if (rc == 0) {
        stage_row_put(b, slice_str(t->all->run->job->repo), t->entry.path, &t->seen);
    }
    return rc;
}

static void seal_file_download(struct job *j)
{
    struct sealing *g = CONTAINER_OF(j, struct sealing, job);
    struct batch *b = batch_new();

    LIST_EACH (&g->these, it) {
        if (g->rc == 0) {
            g->rc = seal_one(LIST_ITEM(it, struct file_download, node), b, &g->why);
        }
    }
    crash_point("sync.seal");
    if (g->rc == 0) {
        g->rc = store_commit(g->all->run->world.store, &b, COMMIT_LAZY, &g->why);
    }
    batch_free(&b);
}

static void start_small(struct downloads *x);

static void on_download_sealed(struct job *j)
{
    struct sealing *g = CONTAINER_OF(j, struct sealing, job);
    struct downloads *x = g->all;
    struct sync_run *r = x->run;
    uint64_t files = 0;
    struct list *n;

    while ((n = list_pop_front(&g->these)) != NULL) {
        struct file_download *t = LIST_ITEM(n, struct file_download, node);
        if (g->rc == 0) {
            r->plan.action[t->index] = ACTION_STAGED;
            files++;
        }
        file_download_free(t);
    }
    if (g->rc != 0) {
        downloads_fail(x, g->rc, &g->why);
    }
    x->done += files;
    lock_take(&r->lock);
    r->look.files_done += files;
    lock_drop(&r->lock);
    x->sealers -= g->small;
    free(g);
    start_small(x);
    downloads_look_over(x);
}

static struct sealing *sealing_new(struct downloads *x, bool small)
{
    struct sealing *g = NEW(struct sealing);

    g->all = x;
    g->small = small;
    g->job =
        (struct job){.work = seal_file_download, .done = on_download_sealed, .reply = x->run->box};
    list_init(&g->these);
    return g;
}

static void start_small(struct downloads *x)
{
    struct sealing *g;
    uint64_t bytes = 0;

    if (x->sealers == SEALERS || list_empty(&x->whole)) {
        return;
    }
    g = sealing_new(x, true);
    for (size_t i = 0; i < FILES_A_SEALER && bytes < BYTES_A_SEALER && !list_empty(&x->whole);
         i++) {
        struct list *n = list_pop_front(&x->whole);
        bytes += file_download_at(LIST_ITEM(n, struct file_download, node));
        list_push_back(&g->these, n);
    }
    x->sealers++;
    pool_submit(x->run->world.disk, &g->job, x->run->client);
}

static void seen_of_download(struct file_download *t, const struct download_result *got)
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

/* All of it is here and right: sealed, noted, freed; then downloads_look_over(). It leaves
 * `active`; what is being sealed is waited for. */
static void file_download_seal(struct file_download *t, const struct download_result *got)
{
    struct downloads *x = t->all;

    CHECK(t->job == NULL);
    seen_of_download(t, got);
    list_remove(&t->node);
    if (t->in == NULL || ingest_fd(t->in) == -1) {
        list_push_back(&x->whole, &t->node);
        start_small(x);
    } else {
        struct sealing *g = sealing_new(x, false);
        list_push_back(&g->these, &t->node);
        pool_submit(x->run->world.disk, &g->job, x->run->client);
    }
}

/* --- all of them --- */

enum {
    TRIES = 5, /* of one file, without progress */
    BACKOFF_MS = 100,
    PATH_ROOM = 4096,
    FEW_VANISH = 10,
};

static void start_more(struct downloads *x);

/* The first trouble that a retry does not mend ends the stage. */
static void downloads_fail(struct downloads *x, int rc, const struct err *why)
{
    if (x->rc == 0) {
        x->rc = rc;
        x->why = *why;
        x->why.code = rc;
    }
    x->over = true;
}

/* after a file is done with */
static void downloads_look_over(struct downloads *x)
{
    if (x->rc == 0 && !x->closing) {
        start_more(x);
    }
    x->over = x->rc != 0 || (x->count == 0 && x->next == x->run->plan.todo_count);
}

/* --- the end of a try --- */

static void give_up_entry(struct file_download *t, int rc, const struct err *why)
{
    struct downloads *x = t->all;
    struct sync_run *r = x->run;
    bool there = t->was_there;

    run_say(r, "%s: " SLICE_FMT ": %s", there ? "previous version kept" : "left out",
            SLICE_ARG(t->entry.path), why->text[0] != '\0' ? why->text : err_plain(rc));
    r->plan.action[t->index] = there ? ACTION_KEEP : ACTION_DROP;
    x->vanished++;
    lock_take(&r->lock);
    r->look.kept++;
    lock_drop(&r->lock);
    file_download_forget(t);
    file_download_free(t);
    downloads_look_over(x);
}

static void give_up_run(struct file_download *t, int rc, const struct err *why)
{
    struct downloads *x = t->all;

    if (x->rc == 0) {
        run_say(x->run, "failed: " SLICE_FMT ": %s", SLICE_ARG(t->entry.path), why->text);
    }
    downloads_fail(x, rc, why);
    file_download_free(t);
    downloads_look_over(x);
}

/* The next try, or the end of a pause. */
static void on_downloads_timer(evutil_socket_t fd, short what, void *arg)
{
    struct file_download *t = arg;

    (void)fd;
    (void)what;
    if (t->download == NULL) {
        downloads_ask(t);
    } else {
        t->all->run->ops->resume(t->download);
    }
}

static void try_again(struct file_download *t, int rc, const struct err *why)
{
    if (file_download_at(t) > t->progress) {
        t->tries = 0;
    }
    t->progress = file_download_at(t);
    if (++t->tries >= TRIES || t->all->run->broken) {
        give_up_run(t, rc, why);
    } else {
        file_download_timer(t, (uint64_t)BACKOFF_MS << t->tries);
    }
}

/* A digest that is not the announced one is asked for once more, from the start: it may have been
 * cut together of two. */
static void verify_downloaded_file(struct file_download *t)
{
    struct err why = {0};
    int rc = file_download_finish(t, &why);
    bool right;

    if (rc != 0) {
        give_up_run(t, rc, &why);
        return;
    }
    right = (!t->entry.digest_known || digest_eq(&t->seen.digest, &t->entry.digest)) &&
            (!t->got.digest_known || digest_eq(&t->seen.digest, &t->got.digest));
    if (right) {
        file_download_seal(t, &t->got);
    } else if (!t->again) {
        t->again = true;
        file_download_begin_anew(t);
        file_download_timer(t, 0);
    } else {
        file_download_begin_anew(t);
        err_set(&why, E_CORRUPT, "its SHA-256 does not match the announced one");
        give_up_run(t, E_CORRUPT, &why);
    }
}

/* all is here and hashed: judged, sealed */
static void downloads_came(struct file_download *t)
{
    struct downloads *x = t->all;

    if (x->rc != 0) {
        file_download_free(t);
        downloads_look_over(x);
    } else {
        verify_downloaded_file(t);
    }
}

static void finish_file_download(struct file_download *t, const struct download_result *got)
{
    struct err why = {0};
    int rc;

    t->got = *got;
    if (got->validator.n != 0 && got->validator.p != t->validator.p) { /* it stays that long */
        buf_clear(&t->validator);
        buf_adds(&t->validator, got->validator);
        t->got.validator = buf_slice(&t->validator);
    }
    rc = file_download_came(t, &why);
    if (rc != 0) {
        give_up_run(t, rc, &why);
    }
}

static void on_engine_download_done(void *arg, int rc, const struct err *why,
                                    const struct download_result *got)
{
    struct file_download *t = arg;
    struct downloads *x = t->all;

    t->download = NULL;
    evtimer_del(t->timer); /* of a pause */
    if (x->rc != 0) {
        file_download_free(t);
        downloads_look_over(x);
        return;
    }
    switch (sync_class_of(rc, true)) {
    case SYNC_OK:
        lock_take(&x->run->lock);
        x->run->look.wire_bytes += got->beside_bytes;
        lock_drop(&x->run->lock);
        if (got->absent) {
            x->run->plan.action[t->index] = ACTION_DROP;
            x->done++;
            file_download_free(t);
            downloads_look_over(x);
        } else if (got->unchanged) {
            CHECK(t->was_seen);
            t->unchanged = true;
            t->seen = t->old_seen;
            file_download_seal(t, got);
        } else {
            finish_file_download(t, got);
        }
        return;
    case SYNC_ENTRY:
        if (rc == E_CHANGED && !t->again) { /* became another while it came */
            t->again = true;
            file_download_begin_anew(t);
            file_download_timer(t, 0);
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

static const struct download_events events = {.on_begin = file_download_on_begin,
                                              .on_body = file_download_on_body,
                                              .on_packed = file_download_on_packed,
                                              .on_copy = file_download_on_copy,
                                              .on_done = on_engine_download_done};

static void downloads_ask(struct file_download *t)
{
    struct sync_run *r = t->all->run;
    struct download_params w = {.entry = &t->entry,
                                .basis = t->basis,
                                .basis_begins = t->basis_begins,
                                .have_bytes = file_download_at(t),
                                .validator = buf_slice(&t->validator),
                                .again = t->again};

    if (file_download_at(t) == 0 && t->was_seen && t->old_seen.validator.n != 0) {
        w.validator = t->old_seen.validator;
        w.unchanged_is_fine = true;
    }
    t->download = r->ops->download(r->engine, &w, &events, t);
}

/* The path's published bytes: a basis, something to keep, maybe unchanged. */
static void look_back(struct file_download *t)
{
    struct sync_run *r = t->all->run;
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

static struct slice keep_download_field(struct buf *b, struct slice s)
{
    buf_adds(b, s);
    return buf_slice(b);
}

/* One whose bytes have come under another name meanwhile: only its row is new. */
static bool take_twin(struct file_download *t)
{
    struct download_result got = {.unchanged = true, .mtime_ns = SYNC_TIME_UNKNOWN};
    struct blob *b = NULL;

    if (blob_open(t->all->run->world.store, &t->entry.digest, &b, NULL) != 0) {
        return false;
    }
    t->unchanged = true;
    t->seen.digest = t->entry.digest;
    t->seen.size_bytes = blob_size_bytes(b);
    file_download_seal(t, &got);
    blob_release(&b);
    return true;
}

static void start_one(struct downloads *x, uint32_t index, bool twin, bool small_one)
{
    struct sync_run *r = x->run;
    struct file_download *t = NEW(struct file_download);

    t->all = x;
    t->index = index;
    t->small_one = small_one;
    t->path = BUF_INIT(PATH_ROOM);
    t->validator = BUF_INIT(FILE_DOWNLOAD_VALIDATOR_MAX);
    t->listed_validator = BUF_INIT(FILE_DOWNLOAD_VALIDATOR_MAX);
    t->old_row = BUF_INIT(2 * FILE_DOWNLOAD_VALIDATOR_MAX);
    t->timer = evtimer_new(r->base, on_downloads_timer, t);
    CHECK(t->timer != NULL);
    entry_list_get(r->entry_list, index, &t->entry);
    t->entry.path = keep_download_field(&t->path, t->entry.path);
    t->entry.validator = keep_download_field(&t->listed_validator, t->entry.validator);
    t->entry.target = t->entry.leader = SLICE_NONE;
    list_push_back(&x->active, &t->node);
    x->count++;
    x->smalls += small_one;
    if (twin && take_twin(t)) {
        return;
    }
    look_back(t);
    if (!file_download_resume(t)) {
        downloads_ask(t);
    }
}

/* How far the list may be gone through now: a rank begins when nothing of the one before is under
 * way. */
static size_t open_end(const struct downloads *x)
{
    const struct sync_plan *p = &x->run->plan;
    size_t begin = 0;

    for (size_t i = 0; i < ARRAY_LEN(p->rank_end); i++) {
        if (x->next < p->rank_end[i]) {
            return x->next == begin && x->count != 0 ? x->next : p->rank_end[i];
        }
        begin = p->rank_end[i];
    }
    return x->next;
}

/* Is there room for that one? Small ones may come many at a time, and count by themselves. */
static bool downloads_have_room(const struct downloads *x, uint32_t index, bool *small_one)
{
    const struct engine_ops *ops = x->run->ops;
    uint64_t upto_bytes = 0;
    unsigned smalls = ops->smalls != NULL ? ops->smalls(x->run->engine, &upto_bytes) : 0;
    struct sync_entry en;

    *small_one = false;
    if (smalls != 0) {
        entry_list_get(x->run->entry_list, index, &en);
        *small_one = en.size_bytes <= upto_bytes;
    }
    return *small_one ? x->smalls < smalls : x->count - x->smalls < ops->window(x->run->engine);
}

static void start_more(struct downloads *x)
{
    const struct sync_plan *p = &x->run->plan;
    size_t twins = p->todo_count - p->twins;
    bool small_one;

    while (x->rc == 0 && x->next < open_end(x) &&
           downloads_have_room(x, p->todo[x->next], &small_one)) {
        size_t i = x->next++;
        start_one(x, p->todo[i], i >= twins, small_one);
    }
}

/* What is under way goes; what is being sealed is waited for, its rows are good. */
static void stop_downloads(struct downloads *x)
{
    x->closing = true;
    LIST_EACH (&x->active, it) {
        file_download_free(LIST_ITEM(it, struct file_download, node));
    }
    while (x->count > 0 || x->jobs > 0) {
        (void)!event_base_loop(x->run->base, EVLOOP_ONCE);
    }
}

/* An upstream that lost most of what it lists is not mirrored. */
static int judge_vanished(const struct downloads *x, struct err *e)
{
    size_t all = x->run->plan.todo_count;

    if (x->vanished >= FEW_VANISH && x->vanished > all / 2) {
        return err_set(e, E_AGAIN,
                       "%" PRIu64
                       " of %zu listed files could not be downloaded, more than half; see "
                       "`mirrorctl sync logs`",
                       x->vanished, all);
    }
    return 0;
}

void run_downloads_broken(struct sync_run *r, int rc, const struct err *why)
{
    if (r->downloads != NULL) {
        downloads_fail(r->downloads, rc, why);
    }
}

static bool is_of_repo(void *arg, const struct partial *p)
{
    struct slice path = partial_name(p);

    return slice_eq(slice_cut(&path, '\0'), *(const struct slice *)arg);
}

void run_drop_left(struct store *s, struct slice repo)
{
    partials_lose(s, PARTIAL_SYNC, is_of_repo, &repo);
    partials_drop_lost(s);
}

int run_download_all(struct sync_run *r, struct err *e)
{
    struct downloads x = {.run = r};
    int rc;

    list_init(&x.active);
    list_init(&x.whole);
    r->downloads = &x;
    start_more(&x);
    x.over = x.count == 0;
    rc = run_turn(r, &x.over, e);
    stop_downloads(&x);
    r->downloads = NULL;
    if (rc == 0 && x.rc == 0) { /* before that, another attempt may want what was left */
        run_drop_left(r->world.store, slice_str(r->job->repo));
    }
    if (rc == 0 && x.rc != 0) {
        rc = x.rc;
        *e = x.why;
    }
    return rc != 0 ? rc : judge_vanished(&x, e);
}
