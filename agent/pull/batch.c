#include "agent/pull/batch.h"

#include <stdlib.h>

#include <uthash.h>

#include "agent/ask.h"
#include "agent/cache/stage.h"
#include "common/base/log.h"
#include "common/codec/blob_batch.h"
#include "common/os/clock.h"

enum {
    SMALLS_MAX = 4096,
    BLOB_BATCHES_MAX = 8,
    LINES_MAX = 16 << 20,
    WRONG_MAX = 8, /* records */
    TRIES_UNKNOWN =
        2, /* of a mirror that has never answered one: something on the way may not carry them */
};

struct small {        /* one file */
    struct list node; /* waiting, busy, alone or ended */
    UT_hash_handle hh;
    struct batch *of;
    struct pull_params want; /* its strings are ours */
    struct small *twin;      /* the same bytes under another name: ends when we do */
    void (*on_done)(void *arg, const struct pull_result *r);
    void *arg;
    struct sealing sealing;
    struct pull_tally tally;
    bool claimed; /* until it is sealed, or all is over */
    bool noted;   /* in the journal, by pull.c */
    struct pull_result result;
};

enum blob_batch_outcome {
    BLOB_BATCH_MISSED, /* has not come */
    BLOB_BATCH_STAGED,
    BLOB_BATCH_WRONG,  /* other bytes */
    BLOB_BATCH_ITSELF, /* the mirror has it not, or gives it by itself alone */
    BLOB_BATCH_FAILED, /* could not be staged: `disk` says why */
};

struct blob_batch_file {
    struct small *x;
    enum blob_batch_outcome outcome;
};

/* One request for many files. It is read on a worker when the transfer has ended, however it has:
 * an answer that broke off is good as far as it goes. One that was read to its end may be cleared
 * and used again. */
struct blob_batch {
    struct list node;
    struct batch *of;
    struct xfer *x;  /* with a connection */
    unsigned mirror; /* which one is asked */
    bool failed;     /* it is not able to answer */
    struct buf asked, came;
    uint64_t retry_after_s; /* that the mirror asked for, else 0 */
    int rc; /* of the transfer, then of what is in it; E_UNSUPPORTED: the mirror knows no batches */
    struct err why, disk;
    struct job job;
    size_t count;
    size_t done; /* records that came whole */
    struct blob_batch_file file[BLOB_BATCH_COUNT_MAX];
};

struct batch {
    struct pull_loop *loop;
    char *url;
    struct stage *stage; /* NULL: not opened yet */
    struct small *all;   /* uthash, by digest; without twins */
    struct list waiting, busy, alone, ended;
    size_t n, nwaiting;
    uint64_t waiting_bytes;
    uint64_t busy_since_ms; /* 0: nobody is in our way; UINT64_MAX: and it was said */
    struct list blob_batches, spare;
    unsigned nsheaves;
    bool singly;    /* no more batches */
    bool proven;    /* the mirror has answered one */
    unsigned wrong; /* records */
    unsigned tries; /* in a row that brought nothing */
    unsigned moves; /* and after which another mirror was asked at once */
    uint64_t not_before_ms;
};

static char *copy_batch_text(struct slice *text)
{
    char *p = mem_new(text->n + 1);

    memcpy(p, text->n != 0 ? text->p : "", text->n);
    text->p = p;
    return p;
}

static void unclaim(struct small *x)
{
    if (x->claimed) {
        x->claimed = false;
        stage_drop(x->of->stage, &x->want.digest);
    }
}

/* --- waiting ---------------------------------------------------------------------------------- */

static void wait_at(struct small *x, bool front)
{
    struct batch *s = x->of;

    unclaim(x);
    if (front) {
        list_push_front(&s->waiting, &x->node);
    } else {
        list_push_back(&s->waiting, &x->node);
    }
    s->nwaiting++;
    s->waiting_bytes += x->want.size_bytes;
}

/* NULL: none waits. */
static struct small *wait_no_more(struct batch *s)
{
    struct list *n = list_pop_front(&s->waiting);
    struct small *x = n != NULL ? LIST_ITEM(n, struct small, node) : NULL;

    if (x != NULL) {
        s->nwaiting--;
        s->waiting_bytes -= x->want.size_bytes;
    }
    return x;
}

static void small_add(struct batch *s, const struct pull_params *w,
                      void (*on_done)(void *arg, const struct pull_result *r), void *arg)
{
    struct small *x = NEW(struct small);
    struct small *first;

    s->n++;
    x->of = s;
    x->want = *w;
    x->on_done = on_done;
    x->arg = arg;
    (void)copy_batch_text(&x->want.url);
    (void)copy_batch_text(&x->want.other_url);
    HASH_FIND(hh, s->all, &x->want.digest, sizeof x->want.digest, first);
    if (first != NULL) {
        x->twin = first->twin;
        first->twin = x;
    } else {
        HASH_ADD(hh, s->all, want.digest, sizeof x->want.digest, x);
        wait_at(x, false);
    }
}

/* --- its end: it is in no list ---------------------------------------------------------------- */

static void show_small_progress(struct small *x, uint64_t bytes)
{
    pull_loop_show(x->of->loop, &x->tally, bytes, x->tally.known_bytes);
}

static void end_small_pull(struct small *x, int rc, const struct err *why)
{
    x->result.rc = rc;
    if (rc == 0) {
        x->result.digest = x->want.digest;
        x->result.size_bytes = x->want.size_bytes;
    } else {
        x->result.why = *why;
        x->result.why.code = rc;
        err_prefix(&x->result.why, SLICE_FMT, SLICE_ARG(x->want.url)); /* a folder's: no query */
    }
    show_small_progress(x, rc == 0 ? x->want.size_bytes : 0);
    unclaim(x);
    list_push_back(&x->of->ended, &x->node);
}

static void cancel(struct small *x)
{
    struct err why;

    err_set(&why, E_CANCELLED, "stopped");
    end_small_pull(x, E_CANCELLED, &why);
}

static void small_alone(struct small *x);

static void on_small_sealed(struct sealing *y)
{
    struct small *x = CONTAINER_OF(y, struct small, sealing);

    if (y->one.rc == E_NOTFOUND) { /* gc has taken it: as if it had not come */
        small_alone(x);
    } else {
        end_small_pull(x, y->one.rc, &y->one.why);
    }
}

static void seal_small_file(struct small *x)
{
    show_small_progress(x, x->want.size_bytes);
    x->sealing = (struct sealing){
        .one = {.key = x->want.digest, .digest = x->want.digest, .fd = -1, .staged = true},
        .done = on_small_sealed};
    pull_loop_seal(x->of->loop, &x->sealing);
}

/* --- to be fetched ---------------------------------------------------------------------------- */

/* True: it is to be fetched, and claimed. First what is staged, then the local cache: it goes from
 * the one to the other. */
static bool look_up_small_file(struct small *x)
{
    struct batch *s = x->of;
    struct local_cache *local_cache = s->loop->agent->local_cache;
    const struct digest *d = &x->want.digest;
    int rc = s->stage == NULL ? stage_open(local_cache, &s->stage, NULL) : 0;
    uint64_t size;

    rc = rc != 0 ? rc : stage_claim(s->stage, d, NULL);
    x->claimed = rc == 0;
    if (x->claimed && stage_find(local_cache, d, x->want.size_bytes)) {
        seal_small_file(x);
    } else if (local_cache_find(local_cache, d, &size, NULL) == 0) {
        x->result.was_there = true;
        end_small_pull(x, 0, NULL);
    } else if (x->claimed) {
        return true;
    } else if (rc == E_BUSY) {
        list_push_back(&s->busy, &x->node);
    } else { /* a local cache that cannot be written to: pull.c has the words for it */
        small_alone(x);
    }
    return false;
}

static struct small *small_next(struct batch *s)
{
    struct small *x;

    do {
        x = wait_no_more(s);
    } while (x != NULL && !look_up_small_file(x));
    return x;
}

static void small_came(struct small *x)
{
    x->result.fetched_bytes = x->want.size_bytes;
    seal_small_file(x);
}

static void small_again(struct small *x)
{
    if (x->of->loop->stopping) {
        cancel(x);
    } else {
        wait_at(x, true);
    }
}

static void small_failed(struct small *x, const struct err *why)
{
    end_small_pull(x, why->code, why);
}

/* --- by itself -------------------------------------------------------------------------------- */

static void small_alone(struct small *x)
{
    show_small_progress(x, 0);
    unclaim(x); /* pull.c has a lock of its own */
    if (x->of->loop->stopping) {
        cancel(x);
    } else {
        list_push_back(&x->of->alone, &x->node);
    }
}

static void send_all_alone(struct batch *s)
{
    struct small *x;

    while ((x = wait_no_more(s)) != NULL) {
        small_alone(x);
    }
}

static void on_pulled(void *arg, const struct pull_result *r)
{
    struct small *x = arg;
    uint64_t fetched_bytes = x->result.fetched_bytes;

    x->result = *r;
    x->result.fetched_bytes += fetched_bytes;
    x->noted = true;
    unclaim(x);
    list_push_back(&x->of->ended, &x->node);
}

static void feed_alone(struct batch *s)
{
    struct list *n;

    while (s->loop->slots > 0 && (n = list_pop_front(&s->alone)) != NULL) {
        struct small *x = LIST_ITEM(n, struct small, node);
        pull_add(s->loop, &x->want, on_pulled, x);
    }
}

/* --- now and then ----------------------------------------------------------------------------- */

static void say_waiting(struct batch *s, uint64_t now_ms)
{
    const struct small *x = LIST_ITEM(s->busy.next, struct small, node);

    if (s->busy_since_ms == 0) {
        s->busy_since_ms = now_ms;
    } else if (s->busy_since_ms != UINT64_MAX &&
               now_ms - s->busy_since_ms > (uint64_t)s->loop->agent->idle_timeout_s * 1000) {
        s->busy_since_ms = UINT64_MAX;
        log_warn("pull.waits", "url=" SLICE_FMT " another process on this node is downloading it",
                 SLICE_ARG(x->want.url));
    }
}

/* What another process fetched may be here by now, or free. */
static void batch_tick(struct batch *s, uint64_t now_ms)
{
    struct list *n;

    if (list_empty(&s->busy)) {
        s->busy_since_ms = 0;
        return;
    }
    say_waiting(s, now_ms);
    while ((n = list_pop_front(&s->busy)) != NULL) {
        wait_at(LIST_ITEM(n, struct small, node), false);
    }
}

static void stop_smalls(struct batch *s)
{
    struct small *x;
    struct list *n;

    while ((x = wait_no_more(s)) != NULL) {
        cancel(x);
    }
    while ((n = list_pop_front(&s->busy)) != NULL || (n = list_pop_front(&s->alone)) != NULL) {
        cancel(LIST_ITEM(n, struct small, node));
    }
}

static void report_small_pull(struct small *x, const struct pull_result *r)
{
    x->on_done(x->arg, r);
    free((char *)(uintptr_t)x->want.url.p);
    free((char *)(uintptr_t)x->want.other_url.p);
    x->of->n--;
    free(x);
}

static void tell_all(struct small *x, struct buf *lines)
{
    struct pull_result r = x->result;
    struct small *twin = x->twin;

    HASH_DELETE(hh, x->of->all, x);
    if (r.rc == 0 && !x->noted) {
        local_cache_note_line(lines, &r.digest, r.size_bytes, SLICE_NONE, SLICE_NONE);
    }
    report_small_pull(x, &r);
    r.fetched_bytes = 0;
    r.was_there = true;
    while (twin != NULL) {
        struct small *next = twin->twin;
        show_small_progress(twin, r.rc == 0 ? r.size_bytes : 0);
        report_small_pull(twin, &r);
        twin = next;
    }
}

static bool batch_reap(struct batch *s)
{
    struct buf lines = BUF_INIT(LINES_MAX);
    bool any = false;
    struct list *n;

    while ((n = list_pop_front(&s->ended)) != NULL) {
        tell_all(LIST_ITEM(n, struct small, node), &lines);
        any = true;
    }
    if (lines.n != 0) {
        local_cache_note_lines(s->loop->agent->local_cache, buf_slice(&lines));
    }
    buf_free(&lines);
    return any;
}

static void on_batch_request_end(struct blob_batch *b);

static enum blob_batch_outcome take_record(struct blob_batch *b, const struct pull_params *w,
                                           struct slice bytes)
{
    struct digest got;

    digest_of(bytes, &got);
    if (bytes.n != w->size_bytes || !digest_eq(&got, &w->digest)) {
        return BLOB_BATCH_WRONG;
    }
    return stage_put(b->of->loop->agent->local_cache, &got, bytes, &b->disk) == 0
               ? BLOB_BATCH_STAGED
               : BLOB_BATCH_FAILED;
}

static void read_records(struct job *j)
{
    struct blob_batch *b = CONTAINER_OF(j, struct blob_batch, job);
    struct slice rest = buf_slice(&b->came), bytes = SLICE_NONE, some;
    struct blob_batch_reader r;
    struct err why;
    int step;

    blob_batch_reader_init(&r, b->count);
    while ((step = blob_batch_next(&r, &rest, &some, &why)) > BLOB_BATCH_NEED) {
        if (step == BLOB_BATCH_SOME) {
            bytes = some;
        } else if (step == BLOB_BATCH_WHOLE) {
            b->file[b->done].outcome = take_record(b, &b->file[b->done].x->want, bytes);
            b->done++;
            bytes = SLICE_NONE;
        } else if (r.n == BLOB_BATCH_ABSENT || r.n == BLOB_BATCH_ALONE) {
            b->file[b->done++].outcome = BLOB_BATCH_ITSELF;
        }
    }
    if (step < 0) {
        b->rc = step;
        b->why = why;
    } else if (b->rc == 0 && !blob_batch_between(&r)) {
        b->rc = err_set(&b->why, E_PROTOCOL, "the response ends in the middle of a file");
    }
}

static void on_small_read(struct job *j)
{
    struct blob_batch *b = CONTAINER_OF(j, struct blob_batch, job);
    struct pull_loop *l = b->of->loop;

    on_batch_request_end(b);
    pull_loop_feed(l);
}

/* --- the transfer ----------------------------------------------------------------------------- */

static int on_pull_batch_head(void *arg, const struct xfer_head *h)
{
    struct blob_batch *b = arg;

    if (!slice_u64(xfer_head_field(h, "retry-after"), &b->retry_after_s)) {
        b->retry_after_s = 0;
    }
    if (h->status != 200) {
        struct ask_reason reason;
        b->failed = ask_has_failed(0, h->status);
        ask_reason_head(&reason, h);
        b->rc = ask_judge(h->status, &reason, &b->why);
        if (b->rc == 0 || h->status == 405 || h->status == 501) {
            b->rc = err_set(&b->why, E_UNSUPPORTED,
                            "the mirror responded to a batch request with %d", h->status);
        }
    } else if (!slice_eqs(slice_trim(xfer_head_field(h, "content-type")), BLOB_BATCH_BLOBS)) {
        b->rc = err_set(&b->why, E_UNSUPPORTED,
                        "the mirror responded to a batch request with another content type");
    }
    return b->rc;
}

static int on_pull_batch_body(void *arg, struct slice bytes)
{
    struct blob_batch *b = arg;

    buf_adds(&b->came, bytes);
    if (b->came.rc != 0) {
        b->rc = err_set(&b->why, E_PROTOCOL, "the response exceeds the size limit of a batch");
    }
    return b->rc;
}

static void on_sent(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct blob_batch *b = arg;
    struct pull_loop *l = b->of->loop;

    (void)body_bytes;
    b->x = NULL;
    pull_loop_give_conn(l);
    if (b->rc == 0 && rc != 0) {
        b->rc = rc;
        b->why = *why;
    }
    if (b->came.n != 0 && b->came.rc == 0) {
        b->job = (struct job){.work = read_records, .done = on_small_read, .reply = l->mail};
        pool_submit(l->workers, &b->job, CLIENT_PROGRAM);
    } else {
        on_batch_request_end(b);
    }
    pull_loop_feed(l);
}

/* The first file says which mirror: every node packs the same files together. */
static void blob_batch_send(struct blob_batch *b)
{
    static const struct xfer_events events = {on_pull_batch_head, on_pull_batch_body, on_sent};
    static const struct slice fields[] = {
        {"Accept: " BLOB_BATCH_BLOBS, 8 + sizeof BLOB_BATCH_BLOBS - 1},
        {"Content-Type: " BLOB_BATCH_DIGESTS, 14 + sizeof BLOB_BATCH_DIGESTS - 1}};
    const struct agent *ag = b->of->loop->agent;
    struct slice lines[ARRAY_LEN(fields) + 1];
    struct arena arena = {0};
    struct xfer_params w;

    b->mirror =
        mirrors_choose(ag->mirrors, &b->file[0].x->want.digest, 0, MIRRORS_ALL, clock_now_ms());
    w = ask_xfer_params(ag, XFER_POST,
                        mirrors_at(ag->mirrors, b->mirror, slice_str(b->of->url), &arena), lines,
                        fields, ARRAY_LEN(fields));

    w.body = buf_slice(&b->asked);
    b->x = xfer_start(b->of->loop->xfers, &w, &events, b);
    arena_fini(&arena);
}

static bool blob_batch_cancel(struct blob_batch *b)
{
    if (b->x == NULL) {
        return false;
    }
    xfer_cancel(&b->x);
    pull_loop_give_conn(b->of->loop);
    b->rc = E_CANCELLED;
    return true;
}

/* --- its life --------------------------------------------------------------------------------- */

static void blob_batch_add(struct blob_batch *b, struct small *x)
{
    CHECK(b->count < BLOB_BATCH_COUNT_MAX);
    b->file[b->count++] = (struct blob_batch_file){.x = x};
    buf_add(&b->asked, x->want.digest.b, DIGEST_BYTES);
}

static void blob_batch_clear(struct blob_batch *b)
{
    buf_clear(&b->asked);
    buf_clear(&b->came);
    b->count = b->done = 0;
    b->rc = 0;
    b->failed = false;
    b->why = (struct err){0};
    b->retry_after_s = 0;
}

static struct blob_batch *blob_batch_open(struct batch *s)
{
    struct blob_batch *b = NEW(struct blob_batch);

    b->of = s;
    b->asked = BUF_INIT(BLOB_BATCH_COUNT_MAX * DIGEST_BYTES);
    b->came = BUF_INIT(BLOB_BATCH_ANSWER_MAX);
    return b;
}

static void blob_batch_close(struct blob_batch **bp)
{
    struct blob_batch *b = *bp;

    if (b == NULL) {
        return;
    }
    *bp = NULL;
    buf_free(&b->asked);
    buf_free(&b->came);
    free(b);
}

/* --- the end of a batch ----------------------------------------------------------------------- */

static void give_up(struct batch *s, const char *why, bool usual)
{
    if (!s->singly) {
        s->singly = true;
        if (usual) {
            log_debug("pull.singly", "small files are requested one by one: %s", why);
        } else {
            log_warn("pull.singly", "small files are requested one by one from now on: %s", why);
        }
    }
}

/* Has a mirror that does not rest the files as well? */
static bool other_mirror_helps(struct batch *s)
{
    const struct mirrors *m = s->loop->agent->mirrors;

    return mirrors_count(m) > 1 && mirrors_any_fresh(m, clock_now_ms());
}

static void try_later(struct batch *s, const struct blob_batch *b)
{
    uint64_t now_ms = clock_now_ms();
    unsigned most = s->proven || b->rc == E_AGAIN ? s->loop->agent->tries : TRIES_UNKNOWN;

    if (now_ms < s->not_before_ms) {
        return; /* one outage, and many connections that it hits */
    }
    if (s->tries >= most) {
        give_up(s, b->why.text, false);
        return;
    }
    s->not_before_ms = now_ms + pull_loop_pause_ms(s->loop, s->tries, b->retry_after_s);
    s->tries++;
}

static void handle_batch_reply(struct batch *s, const struct blob_batch *b)
{
    struct mirrors *m = s->loop->agent->mirrors;

    if (b->done != 0) {
        s->tries = s->moves = 0;
        s->proven = true;
    }
    if (b->rc == 0) {
        mirrors_worked(m, b->mirror);
    } else if (b->failed || ask_has_failed(b->rc, 0)) {
        mirrors_failed(m, b->mirror, clock_now_ms());
        if (other_mirror_helps(s) && s->moves++ < s->loop->agent->tries * mirrors_count(m)) {
            return; /* the next request is for another one */
        }
    }
    switch (b->rc) {
    case 0:
        if (b->done == 0) {
            give_up(s, "a batch response had no file", false);
        }
        break;
    case E_NOTFOUND:
    case E_UNSUPPORTED:
        give_up(s, b->why.text, true);
        break;
    case E_AGAIN:
    case E_NETWORK:
    case E_TIMEOUT:
        if (b->done == 0) {
            try_later(s, b);
        }
        break;
    case E_CANCELLED:
        break;
    default: /* the request of a single file has the right words for it */
        give_up(s, b->why.text, b->rc == E_DENIED);
    }
}

static void came_wrong(struct batch *s, const struct blob_batch *b, struct small *x)
{
    mirrors_lied(s->loop->agent->mirrors, b->mirror, clock_now_ms());

    log_warn("pull.batch",
             "url=" SLICE_FMT " the file arrived damaged in a batch; it is requested by itself",
             SLICE_ARG(x->want.url));
    if (!other_mirror_helps(s) && ++s->wrong == WRONG_MAX) {
        give_up(s, "too many files arrived damaged", false);
    }
    small_alone(x);
}

static void finish_batch_file(struct batch *s, const struct blob_batch *b,
                              const struct blob_batch_file *f)
{
    struct small *x = f->x;

    switch (f->outcome) {
    case BLOB_BATCH_MISSED:
        small_again(x);
        break;
    case BLOB_BATCH_STAGED:
        small_came(x);
        break;
    case BLOB_BATCH_WRONG:
        came_wrong(s, b, x);
        break;
    case BLOB_BATCH_ITSELF:
        small_alone(x);
        break;
    case BLOB_BATCH_FAILED:
        small_failed(x, &b->disk);
        break;
    }
}

static void on_batch_request_end(struct blob_batch *b)
{
    struct batch *s = b->of;

    handle_batch_reply(s, b);
    for (size_t i = b->count; i-- > 0;) { /* backwards: those that wait again go to the front */
        finish_batch_file(s, b, &b->file[i]);
    }
    s->nsheaves--;
    list_remove(&b->node);
    list_push_back(&s->spare, &b->node);
}

/* --- the next one ----------------------------------------------------------------------------- */

static struct blob_batch *take_spare(struct batch *s)
{
    struct list *n = list_pop_front(&s->spare);
    struct blob_batch *b = n != NULL ? LIST_ITEM(n, struct blob_batch, node) : blob_batch_open(s);

    blob_batch_clear(b);
    return b;
}

static void fill_blob_batch(struct batch *s, struct blob_batch *b)
{
    uint64_t bytes = 0;
    struct small *x;

    while (b->count < BLOB_BATCH_COUNT_MAX && bytes < BLOB_BATCH_BYTES &&
           (x = small_next(s)) != NULL) {
        bytes += x->want.size_bytes;
        blob_batch_add(b, x);
    }
}

/* With a connection in hand. */
static void start_batch_request(struct batch *s)
{
    struct blob_batch *b = take_spare(s);

    fill_blob_batch(s, b);
    if (b->count > 1) {
        list_push_back(&s->blob_batches, &b->node);
        s->nsheaves++;
        blob_batch_send(b);
        return;
    }
    if (b->count == 1) { /* as short as it is, and judged by itself */
        small_alone(b->file[0].x);
    }
    list_push_back(&s->spare, &b->node);
    pull_loop_give_conn(s->loop);
}

static bool any_fetching(struct batch *s)
{
    LIST_EACH (&s->blob_batches, it) {
        if (LIST_ITEM(it, struct blob_batch, node)->x != NULL) {
            return true;
        }
    }
    return false;
}

static bool is_due(struct batch *s)
{
    bool full = s->nwaiting >= BLOB_BATCH_COUNT_MAX || s->waiting_bytes >= BLOB_BATCH_BYTES;

    return s->nwaiting > 0 && s->nsheaves < BLOB_BATCHES_MAX &&
           (full || s->loop->no_more || !any_fetching(s)) && clock_now_ms() >= s->not_before_ms;
}

static void batch_feed(struct batch *s)
{
    if (s->loop->stopping) {
        return;
    }
    if (s->singly) {
        send_all_alone(s);
    }
    while (is_due(s) && pull_loop_take_conn(s->loop)) {
        start_batch_request(s);
    }
    feed_alone(s);
}

/* --- its life --------------------------------------------------------------------------------- */

static void batch_stop(struct batch *s)
{
    LIST_EACH (&s->blob_batches, it) {
        struct blob_batch *b = LIST_ITEM(it, struct blob_batch, node);
        if (blob_batch_cancel(b)) { /* those that workers read go their way */
            on_batch_request_end(b);
        }
    }
    stop_smalls(s);
}

static struct batch *batch_open(struct pull_loop *l)
{
    struct batch *s = NEW(struct batch);
    struct slice mirror = l->agent->mirror;

    s->loop = l;
    s->url = mem_new(mirror.n + sizeof BLOB_BATCH_PATH);
    memcpy(s->url, mirror.p, mirror.n);
    memcpy(s->url + mirror.n, BLOB_BATCH_PATH, sizeof BLOB_BATCH_PATH);
    list_init(&s->waiting);
    list_init(&s->busy);
    list_init(&s->alone);
    list_init(&s->ended);
    list_init(&s->blob_batches);
    list_init(&s->spare);
    return s;
}

static void batch_close(struct batch **sp)
{
    struct batch *s = *sp;
    struct list *n;

    if (s == NULL) {
        return;
    }
    *sp = NULL;
    CHECK(s->n == 0 && list_empty(&s->blob_batches));
    while ((n = list_pop_front(&s->spare)) != NULL) {
        struct blob_batch *b = LIST_ITEM(n, struct blob_batch, node);
        blob_batch_close(&b);
    }
    stage_close(&s->stage);
    free(s->url);
    free(s);
}

/* --- as the loop sees them -------------------------------------------------------------------- */

static void feed_all(struct pull_loop *l)
{
    batch_feed(l->batch);
}

static void tick_all(struct pull_loop *l, uint64_t now_ms)
{
    batch_tick(l->batch, now_ms);
}

static void stop_batches(struct pull_loop *l)
{
    batch_stop(l->batch);
}

static bool reap_all(struct pull_loop *l)
{
    return batch_reap(l->batch);
}

static bool none_left(const struct pull_loop *l)
{
    return l->batch->n == 0;
}

static bool batch_loop_has_room(const struct pull_loop *l)
{
    return l->batch->n < SMALLS_MAX;
}

static void close_batches(struct pull_loop *l)
{
    batch_close(&l->batch);
}

static const struct pull_kind batches = {
    .feed = feed_all,
    .tick = tick_all,
    .stop = stop_batches,
    .reap = reap_all,
    .is_idle = none_left,
    .has_room = batch_loop_has_room,
    .close = close_batches,
};

bool batch_add(struct pull_loop *l, const struct pull_params *w,
               void (*on_done)(void *arg, const struct pull_result *r), void *arg)
{
    if (digest_is_zero(&w->digest) || w->size_bytes > BLOB_BATCH_BLOB_MAX) {
        return false;
    }
    if (l->batch == NULL) {
        l->batch = batch_open(l);
        l->kind[KIND_BATCH] = &batches;
    }
    if (l->batch->singly) {
        return false;
    }
    CHECK(l->batch->n < SMALLS_MAX);
    small_add(l->batch, w, on_done, arg);
    return true;
}
