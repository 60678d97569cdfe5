/* download.c - the bytes of one file, by their digest: whole, from where they broke, or in parts
 * (patching.c). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

#include "common/base/endian.h"
#include "common/codec/blob_batch.h"
#include "server/sync/mirrord/upstream.h"
#include "server/sync/mirrord/patch.h"

static void download_done(struct download *t, int rc);
static void take_whole(struct download *t);
static void request_download_part(struct download *t, uint64_t end);

/* --- batches ---
 *
 * Small files of the tree, many in a request (common/codec/blob_batch.h): which go together, and
 * what becomes of each.
 *
 * A batch goes when it is full, so many at once as requests may be; one that is not full goes when
 * no other is under way, so that what comes meanwhile goes along. The first of a visit is small: an
 * upstream that knows no batches says so, and is asked file by file from then on. What an answer
 * that broke off has not brought goes into the next; a file whose record is wrong is asked for by
 * itself, and when the answers are, all are.
 */

enum {
    DOWNLOADS_MAX = 4 * BLOB_BATCH_COUNT_MAX, /* at once, what is being sealed included, */
    DOWNLOADS_BYTES = 32 << 20,               /* or as many as have about so many bytes */
    DOWNLOADS_FIRST = 16,                     /* before anything is known of the upstream */
    /* downloads, roughly, over which the usual size is averaged */
    MEAN_OF = 64,
    BARREN_MAX = 2, /* that broke off before a record had come */
    WRONG_MAX = 8,  /* records */
    UNPACK_BYTES = 64 << 10,
    WINDOW_LOG = 21, /* no frame of an answer's size needs more */
};

struct blob_batch {
    struct list node; /* in core.sheaves */
    struct upstream *g;
    struct origin_request *request;
    struct event *turn; /* goes on when the take that paused has left */
    struct blob_batch_reader reader;
    ZSTD_DStream *z;        /* it comes packed; NULL: as it is */
    bool unpacked;          /* the frame's end has come */
    uint64_t out_bytes;     /* of the frame */
    uint64_t came, charged; /* bytes received, and those that were reported to downloads */
    struct buf in;          /* what came and has not been read: while it pauses; */
    size_t used;            /* that much of it has */
    bool paused;            /* for take[at] */
    struct err why;         /* ours: says more than what fetch makes of it */
    size_t count;
    size_t at;                   /* of the record at hand; those before it have their answer */
    struct download *download[]; /* NULL: nobody waits for it any more */
};

static void say_singly(struct upstream *g, const char *why)
{
    if (!g->singly) {
        g->singly = true;
        g->site->log(g->site->log_arg, "small files are requested one by one: %s", why);
    }
}

static void blob_batch_soon(struct event *ev)
{
    struct timeval now = {0};

    evtimer_add(ev, &now);
}

/* --- takes that wait --- */

/* Counts and says what came wrong in one. */
static bool blob_batches_fit(struct upstream *g, const struct download_params *w)
{
    if (g->singly || w->entry->size_bytes > BLOB_BATCH_BLOB_MAX) {
        return false;
    }
    if (w->again) {
        g->site->log(g->site->log_arg,
                     SLICE_FMT
                     ": the received bytes do not match its SHA-256; it is requested alone",
                     SLICE_ARG(w->entry->path));
        if (++g->wrong == WRONG_MAX) {
            say_singly(g, "too many files were wrong");
        }
    }
    return !w->again;
}

static void wait_for_more(struct download *t, bool front)
{
    struct upstream *g = t->g;

    t->got = 0;
    if (front) {
        list_push_front(&g->small, &t->waits);
    } else {
        list_push_back(&g->small, &t->waits);
    }
    g->nsmall++;
    g->small_bytes += t->size;
    blob_batch_soon(g->bind);
}

static void wait_no_more(struct download *t)
{
    list_remove(&t->waits);
    t->g->nsmall--;
    t->g->small_bytes -= t->size;
}

static void blob_batches_add(struct download *t)
{
    struct upstream *g = t->g;

    g->usual_bytes = g->usual_bytes - g->usual_bytes / MEAN_OF + t->size / MEAN_OF;
    wait_for_more(t, false);
}

unsigned blob_batches_smalls(const struct upstream *g, uint64_t *upto_bytes)
{
    *upto_bytes = BLOB_BATCH_BLOB_MAX;
    if (g->singly) {
        return 0;
    }
    return g->proven
               ? (unsigned)min_u64(DOWNLOADS_MAX, DOWNLOADS_BYTES / max_u64(g->usual_bytes, 1))
               : DOWNLOADS_FIRST;
}

/* --- the end of one --- */

static void blob_batch_free(struct blob_batch *s)
{
    origin_request_cancel(&s->request);
    event_free(s->turn);
    ZSTD_freeDStream(s->z);
    buf_free(&s->in);
    list_remove(&s->node);
    s->g->nsheaves--;
    free(s);
}

/* The record at hand is nobody's any more; returns whose it was. */
static struct download *release_batch_download(struct blob_batch *s)
{
    struct download *t = s->download[s->at];

    s->download[s->at] = NULL;
    if (t != NULL) {
        t->blob_batch = NULL;
    }
    return t;
}

/* What is the matter with the answers, if all else is to be asked for one by one; or NULL. */
static const char *why_batch_failed(struct blob_batch *s, int rc, const struct err *why)
{
    struct upstream *g = s->g;

    /* Digests are not sent again and again to one who answers a few of them each time. */
    g->most = s->at == s->count
                  ? BLOB_BATCH_COUNT_MAX
                  : (size_t)min_u64(BLOB_BATCH_COUNT_MAX, max_u64(2 * s->at, DOWNLOADS_FIRST));
    g->barren = s->at != 0 ? 0 : g->barren;
    if (rc == E_UNSUPPORTED || rc == E_PROTOCOL || rc == E_TOOBIG) {
        return why->text;
    }
    if (s->at == 0 && rc != 0 && rc != E_BUSY && ++g->barren == BARREN_MAX) {
        return "batch responses break off before the first file";
    }
    return NULL;
}

/* Takes s. A file without an answer goes into the next batch, or is reported, or requested by
 * itself. */
static void blob_batch_end(struct blob_batch *s, int rc, const struct err *e)
{
    struct upstream *g = s->g;
    struct err why = *e;
    const char *wrong = why_batch_failed(s, rc, &why);
    bool moved = s->at != 0;
    struct list rest;
    struct list *n;

    if (wrong != NULL) {
        say_singly(g, wrong);
    }
    list_init(&rest);
    for (; s->at < s->count; s->at++) {
        struct download *t = release_batch_download(s);
        if (t != NULL) {
            list_push_front(&rest, &t->waits);
        }
    }
    blob_batch_free(s);
    blob_batch_soon(g->bind);
    while ((n = list_pop_front(&rest)) != NULL) {
        struct download *t = LIST_ITEM(n, struct download, waits);
        if (moved || g->singly) {
            wait_for_more(t, true);
        } else {
            t->why = why;
            download_done(t, rc);
        }
    }
}

/* --- records --- */

static int begin_record(struct blob_batch *s)
{
    struct download *t = s->download[s->at];
    uint32_t n = s->reader.n;
    int rc;

    s->g->proven = true;
    if (n == BLOB_BATCH_ABSENT || n == BLOB_BATCH_ALONE) {
        (void)release_batch_download(s);
        s->at++;
        if (t != NULL && n == BLOB_BATCH_ALONE) {
            take_whole(t);
        } else if (t != NULL) {
            download_done(t, err_set(&t->why, E_NOTFOUND, "the core no longer has it"));
        }
        return 0;
    }
    if (t != NULL && n != t->size) {
        (void)release_batch_download(s);
        s->g->site->log(s->g->site->log_arg,
                        "%.12s...: %" PRIu32 " bytes were received instead of %" PRIu64
                        "; it is requested alone",
                        t->validator, n, t->size);
        take_whole(t);
        return ++s->g->wrong < WRONG_MAX
                   ? 0
                   : err_set(&s->why, E_PROTOCOL, "too many files were wrong");
    }
    rc = t != NULL ? t->ev.on_begin(t->arg, 0, slice_str(t->validator)) : 0;
    if (rc != 0) {
        download_done(release_batch_download(s),
                      err_set(&t->why, rc, "canceled: the download cannot resume at this offset"));
    }
    return 0;
}

static int give_batch_bytes(struct blob_batch *s, struct slice bytes)
{
    struct download *t = s->download[s->at];
    uint64_t wire_bytes = s->came - s->charged; /* with the heads of records before it */
    int rc = 0;

    if (t != NULL) {
        s->charged = s->came;
        rc = t->ev.on_packed(t->arg, bytes, wire_bytes);
    }
    if (rc < 0) {
        download_done(release_batch_download(s),
                      err_set(&t->why, rc, "canceled: the received bytes could not be stored"));
        return 0;
    }
    return rc;
}

static void end_record(struct blob_batch *s)
{
    struct download *t = release_batch_download(s);

    s->at++;
    if (t != NULL) {
        download_done(t, 0);
    }
}

/* 0: what has come is read; DOWNLOAD_PAUSE; or an E_*, in s->why too. */
static int advance_batch(struct blob_batch *s)
{
    struct slice rest = slice_from(buf_slice(&s->in), s->used), some;
    int rc = 0;

    while (rc == 0) {
        int step = blob_batch_next(&s->reader, &rest, &some, &s->why);
        s->used = s->in.n - rest.n;
        switch (step) {
        case BLOB_BATCH_NEED:
            buf_clear(&s->in);
            s->used = 0;
            return 0;
        case BLOB_BATCH_RECORD:
            rc = begin_record(s);
            break;
        case BLOB_BATCH_SOME:
            rc = give_batch_bytes(s, some);
            break;
        case BLOB_BATCH_WHOLE:
            end_record(s);
            break;
        default:
            return step;
        }
    }
    s->paused = rc == DOWNLOAD_PAUSE;
    return rc;
}

static void continue_batch_download(struct blob_batch *s)
{
    int rc;

    s->paused = false;
    rc = advance_batch(s);
    if (rc < 0) {
        blob_batch_end(s, rc, &s->why);
    } else if (rc == 0) {
        origin_request_resume(s->request);
    }
}

static void blob_batch_on_turn(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    continue_batch_download(arg);
}

static void blob_batches_resume(struct download *t)
{
    struct blob_batch *s = t->blob_batch;

    if (s != NULL && s->paused && s->download[s->at] == t) {
        continue_batch_download(s);
    }
}

/* it is cancelled */
static void blob_batches_leave(struct download *t)
{
    struct blob_batch *s = t->blob_batch;

    if (list_linked(&t->waits)) {
        wait_no_more(t);
    }
    if (s != NULL) {
        s->download[t->place] = NULL;
        if (s->paused && s->at == t->place) {
            blob_batch_soon(s->turn);
        }
    }
}

/* --- the request --- */

static int blob_batch_on_head(void *arg, const struct origin_head *h)
{
    struct blob_batch *s = arg;
    struct slice type = slice_trim(origin_head_field(h, "content-type"));

    if (h->status == 429) {
        return upstream_refused(h->status, &s->why);
    }
    if (h->status != 200) {
        return err_set(&s->why, E_UNSUPPORTED, "the core answers a batch request with %d",
                       h->status);
    }
    if (slice_eqs(type, BLOB_BATCH_BLOBS_ZSTD)) {
        s->z = ZSTD_createDStream();
        CHECK(s->z != NULL);
        CHECK(!ZSTD_isError(ZSTD_DCtx_setParameter(s->z, ZSTD_d_windowLogMax, WINDOW_LOG)));
    } else if (!slice_eqs(type, BLOB_BATCH_BLOBS)) {
        return err_set(&s->why, E_UNSUPPORTED,
                       "the core answers a batch request with another content type");
    }
    return 0;
}

/* Onto s->in, no more than an answer can have, whatever the frame says. */
static int unpack_batch_bytes(struct blob_batch *s, struct slice bytes)
{
    ZSTD_inBuffer in = {bytes.p, bytes.n, 0};
    bool full = true;

    while (in.pos < in.size || full) {
        ZSTD_outBuffer out = {buf_room(&s->in, UNPACK_BYTES), UNPACK_BYTES, 0};
        size_t hint;
        if (s->unpacked) {
            return in.pos < in.size
                       ? err_set(&s->why, E_PROTOCOL, "the response continues after its zstd frame")
                       : 0;
        }
        CHECK(out.dst != NULL);
        hint = ZSTD_decompressStream(s->z, &out, &in);
        if (ZSTD_isError(hint)) {
            return err_set(&s->why, E_PROTOCOL, "the zstd frame of a response is damaged");
        }
        buf_grew(&s->in, out.pos);
        s->unpacked = hint == 0;
        s->out_bytes += out.pos;
        if (s->out_bytes > BLOB_BATCH_ANSWER_MAX) {
            return err_set(&s->why, E_TOOBIG, "a response decompresses to more than its limit");
        }
        full = out.pos == out.size;
    }
    return 0;
}

static int blob_batch_on_body(void *arg, struct slice bytes)
{
    struct blob_batch *s = arg;
    int rc = 0;

    s->came += bytes.n;
    if (s->z != NULL) {
        rc = unpack_batch_bytes(s, bytes);
    } else {
        buf_adds(&s->in, bytes);
    }
    CHECK(s->in.rc == 0); /* nothing comes while it pauses */
    rc = rc != 0 ? rc : advance_batch(s);
    return rc == DOWNLOAD_PAUSE ? ORIGIN_REQUEST_PAUSE : rc;
}

static void blob_batch_on_done(void *arg, int rc, const struct err *why)
{
    struct blob_batch *s = arg;

    s->request = NULL;
    if (s->why.code != 0) {
        rc = s->why.code;
    } else if (rc != 0 && why != NULL) {
        s->why = *why;
    } else if (rc == 0 && (!blob_batch_between(&s->reader) || (s->z != NULL && !s->unpacked))) {
        rc = err_set(&s->why, E_PROTOCOL, "a response ends in the middle of a file");
    } else if (rc == 0 && s->at == 0) {
        rc = err_set(&s->why, E_PROTOCOL, "a response has no file");
    }
    blob_batch_end(s, rc, &s->why);
}

static void put_in(struct blob_batch *s, struct download *t, struct buf *asked)
{
    wait_no_more(t);
    t->blob_batch = s;
    t->place = s->count;
    s->download[s->count++] = t;
    buf_add(asked, t->digest.b, DIGEST_BYTES);
}

static void start_batch_download(struct upstream *g)
{
    static const struct origin_request_events events = {blob_batch_on_head, blob_batch_on_body,
                                                        blob_batch_on_done};
    size_t most = (size_t)min_u64(g->nsmall, g->most);
    struct blob_batch *s = mem_new(sizeof *s + most * sizeof s->download[0]);
    char *url = mem_new(strlen(g->upstream) + sizeof BLOB_BATCH_PATH);
    struct origin_request_params f = {.origin = g->site->origin, .end = LENGTH_UNKNOWN};
    struct buf asked = BUF_INIT(BLOB_BATCH_COUNT_MAX * DIGEST_BYTES);
    uint64_t bytes = 0;

    s->g = g;
    s->in = BUF_INIT(BLOB_BATCH_ANSWER_MAX + 2 * UNPACK_BYTES);
    s->turn = evtimer_new(g->site->base, blob_batch_on_turn, s);
    CHECK(s->turn != NULL);
    list_push_back(&g->blob_batches, &s->node);
    g->nsheaves++;
    while (s->count < most && bytes < BLOB_BATCH_BYTES) {
        struct download *t = LIST_ITEM(g->small.next, struct download, waits);
        bytes += t->size;
        put_in(s, t, &asked);
    }
    blob_batch_reader_init(&s->reader, s->count);
    stpcpy(stpcpy(url, g->upstream), BLOB_BATCH_PATH);
    f.url = slice_str(url);
    f.accept = SLICE(BLOB_BATCH_BLOBS_ZSTD);
    f.body = buf_slice(&asked);
    f.body_type = SLICE(BLOB_BATCH_DIGESTS);
    s->request = origin_request_start(g->site->origin_client, &f, &events, s);
    buf_free(&asked);
    free(url);
}

static bool is_due(const struct upstream *g)
{
    return g->nsheaves == 0 || (g->proven && g->nsheaves < g->site->parallel &&
                                (g->nsmall >= g->most || g->small_bytes >= BLOB_BATCH_BYTES));
}

static void on_bind(evutil_socket_t fd, short what, void *arg)
{
    struct upstream *g = arg;

    (void)fd;
    (void)what;
    while (!list_empty(&g->small) && (g->singly || is_due(g))) {
        if (g->singly || g->nsmall == 1) {
            struct download *t = LIST_ITEM(g->small.next, struct download, waits);
            wait_no_more(t);
            take_whole(t);
        } else {
            start_batch_download(g);
        }
    }
}

/* --- all of them --- */

static void blob_batches_init(struct upstream *g)
{
    list_init(&g->small);
    list_init(&g->blob_batches);
    g->most = DOWNLOADS_FIRST;
    g->bind = evtimer_new(g->site->base, on_bind, g);
    CHECK(g->bind != NULL);
}

static void blob_batches_fini(struct upstream *g)
{
    LIST_EACH (&g->blob_batches, it) {
        blob_batch_free(LIST_ITEM(it, struct blob_batch, node));
    }
    event_free(g->bind);
}

/* --- patching --- */

enum {
    LEAST_BYTES = 64 << 20, /* below it a list and some requests gain too little */
    COPY_BYTES = 256 << 10,
    TURN_BYTES = 16 << 20, /* copied, before the loop has its say */
};

struct cutting { /* a job: the former version's list; outlives the patching that it is for */
    struct job job;
    struct patching *p; /* NULL: nobody waits any more */
    struct upstream *g;
    struct digest digest;
    struct buf list;
    _Atomic bool stop;
    int rc;
    struct err why;
};

struct patching {
    struct download *t;
    struct blob *basis;
    struct query *ask;
    struct cutting *cutting;
    struct pieces want;
    uint64_t list_bytes;
    struct patch patch;
    size_t at; /* stretch */
    uint64_t copied;
    char *room;
    struct event *turn;
    unsigned class;
    char *path;
};

static uint64_t blob_set_key(const struct digest *d)
{
    return be_get(d->b, 8) | 1;
}

/* The list of the new version's pieces is asked for, that of the former one made here; what lies in
 * both is copied. Whatever fails before the first byte ends in take_whole(). */
static bool patching_fits(const struct upstream *g, const struct download_params *w)
{
    return w->basis != NULL && w->entry->size_bytes >= LEAST_BYTES &&
           blob_size_bytes(w->basis) >= LEAST_BYTES &&
           !set64_has(&g->patched, blob_set_key(&w->entry->digest)) &&
           delta_pays(&g->delta, w->entry->path, w->entry->size_bytes, blob_size_bytes(w->basis));
}

/* Not again by pieces: the whole was not right, or ranges are not given. */
static void patching_give_up(struct upstream *g, const struct digest *d)
{
    (void)set64_add(&g->patched, blob_set_key(d));
}

/* NULL is fine */
static void patching_free(struct patching **pp)
{
    struct patching *p = *pp;

    *pp = NULL;
    if (p == NULL) {
        return;
    }
    query_free(&p->ask);
    if (p->cutting != NULL) {
        p->cutting->p = NULL;
        p->cutting->stop = true;
    }
    pieces_free(&p->want);
    patch_free(&p->patch);
    blob_release(&p->basis);
    event_free(p->turn);
    free(p->room);
    free(p->path);
    free(p);
}

static void log_patching(const struct patching *p, const char *what)
{
    const struct engine_site *site = p->t->g->site;

    site->log(site->log_arg, "%s: %s; the whole file is downloaded", p->path, what);
}

/* --- putting it together --- */

static void patching_on_turn(evutil_socket_t fd, short what, void *arg);

static void patching_soon(struct patching *p)
{
    struct timeval now = {0};
    evtimer_add(p->turn, &now);
}

static void finish_patching(struct patching *p)
{
    struct download *t = p->t;
    const struct engine_site *site = t->g->site;

    /* When the digest of the whole does not hold, the next try is another. */
    patching_give_up(t->g, &t->digest);
    delta_learn(&t->g->delta, p->class, p->patch.here_bytes, t->size);
    site->log(site->log_arg,
              "%s: %" PRIu64 " of %" PRIu64
              " bytes came from the previous version, the chunk list cost %" PRIu64,
              p->path, p->copied, t->size, p->list_bytes);
    download_done(t, 0);
}

/* 0, DOWNLOAD_PAUSE, or what ends the take. */
static int copy_some(struct patching *p, const struct stretch *s)
{
    struct download *t = p->t;
    size_t n = (size_t)min_u64(COPY_BYTES, s->end - t->got);
    int rc = blob_read(p->basis, s->from + (t->got - s->off), p->room, n, &t->why);

    if (rc != 0) {
        patching_give_up(t->g, &t->digest);
        return err_set(&t->why, E_AGAIN, "the previous version cannot be read from the store");
    }
    rc = t->ev.on_copy(t->arg, slice_of(p->room, n));
    if (rc < 0) {
        return err_set(&t->why, rc, "canceled: the received bytes could not be stored");
    }
    t->got += n;
    p->copied += n;
    return rc;
}

static void step_patching(struct patching *p)
{
    struct download *t = p->t;
    uint64_t before = p->copied;

    while (p->at < p->patch.count) {
        const struct stretch *s = &p->patch.stretch[p->at];
        int rc = 0;
        if (t->got >= s->end) {
            p->at++;
            continue;
        }
        if (!s->here) {
            request_download_part(t, s->end);
            return;
        }
        if (p->copied - before >= TURN_BYTES) {
            patching_soon(p);
            return;
        }
        rc = copy_some(p, s);
        if (rc < 0) {
            download_done(t, rc);
            return;
        }
        if (rc == DOWNLOAD_PAUSE) {
            return; /* until patching_resume() */
        }
    }
    finish_patching(p);
}

static void patching_on_turn(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    step_patching(arg);
}

static void patching_went_on(struct download *t)
{
    step_patching(t->patching);
}

static void patching_resume(struct download *t)
{
    if (t->patching->at < t->patching->patch.count) {
        patching_soon(t->patching);
    }
}

/* --- both lists --- */

static void patching_begin(struct patching *p, struct slice former)
{
    struct download *t = p->t;
    struct pieces have;
    int rc = pieces_decode(former, &have, NULL);

    if (rc != 0) {
        log_patching(p, "the chunk list of the previous version cannot be parsed");
        take_whole(t);
        return;
    }
    patch_make(&p->want, &have, &p->patch);
    pieces_free(&have);
    pieces_free(&p->want);
    if (!patch_pays(&p->patch, p->list_bytes)) {
        delta_learn(&t->g->delta, p->class, p->patch.here_bytes, t->size);
        log_patching(p, "too little of it is in the previous version");
        take_whole(t);
        return;
    }
    rc = t->ev.on_begin(t->arg, t->got, slice_str(t->validator));
    if (rc != 0) {
        download_done(t,
                      err_set(&t->why, rc, "canceled: the download cannot resume at this offset"));
        return;
    }
    p->room = mem_new(COPY_BYTES);
    step_patching(p);
}

static void cut_work(struct job *j)
{
    struct cutting *c = CONTAINER_OF(j, struct cutting, job);
    struct store *s = c->g->site->store;

    c->rc = pieces_get(s, &c->digest, &c->list, &c->why);
    if (c->rc == E_NOTFOUND) {
        c->rc = pieces_make(s, &c->digest, &c->stop, &c->list, &c->why);
    }
}

static void cut_done(struct job *j)
{
    struct cutting *c = CONTAINER_OF(j, struct cutting, job);
    struct patching *p = c->p;

    c->g->jobs--;
    if (p != NULL) {
        p->cutting = NULL;
        if (c->rc == 0) {
            patching_begin(p, buf_slice(&c->list));
        } else {
            log_patching(p, c->why.text);
            take_whole(p->t);
        }
    }
    buf_free(&c->list);
    free(c);
}

static void cut_former(struct patching *p)
{
    struct cutting *c = NEW(struct cutting);

    c->p = p;
    c->g = p->t->g;
    c->digest = *blob_digest(p->basis);
    c->list = BUF_INIT(PIECES_BYTES_MAX);
    c->job = (struct job){.work = cut_work, .done = cut_done, .reply = c->g->site->box};
    p->cutting = c;
    c->g->jobs++;
    pool_submit(c->g->site->disk, &c->job, c->g->site->client);
}

static void on_list(struct query *a, int rc)
{
    struct patching *p = a->arg;
    struct download *t = p->t;
    struct err why = a->why;

    p->list_bytes = a->body.n;
    t->beside += a->body.n;
    rc = rc != 0 ? rc : pieces_decode(buf_slice(&a->body), &p->want, &why);
    if (rc == 0 && (p->want.size_bytes != t->size || !digest_eq(&p->want.whole, &t->digest))) {
        rc = err_set(&why, E_PROTOCOL, "the core sent the chunk list of another file");
    }
    query_free(&p->ask);
    if (rc == 0) {
        cut_former(p);
    } else {
        log_patching(p, why.text);
        take_whole(t);
    }
}

static void patching_start(struct download *t, const struct download_params *w)
{
    struct patching *p = NEW(struct patching);
    size_t room = strlen(t->g->lists) + DIGEST_HEX + 1;
    char *url = mem_new(room);

    t->patching = p;
    p->t = t;
    p->basis = blob_hold(w->basis);
    p->class = delta_class(w->entry->path);
    p->path = mem_new(w->entry->path.n + 1);
    memcpy(p->path, w->entry->path.p, w->entry->path.n);
    p->turn = evtimer_new(t->g->site->base, patching_on_turn, p);
    CHECK(p->turn != NULL);
    snprintf(url, room, "%s%s", t->g->lists, t->validator);
    p->ask = query_start(t->g, url, "application/vnd.mirrord.pieces", NULL, PIECES_BYTES_MAX,
                         on_list, p);
}

static void free_mirrord_download(struct download *t)
{
    origin_request_cancel(&t->request);
    blob_batches_leave(t);
    patching_free(&t->patching);
    list_remove(&t->node);
    free(t->url);
    free(t);
}

/* The last of it: the take is gone when this returns. */
static void download_done(struct download *t, int rc)
{
    struct download_result got = {.mtime_ns = SYNC_TIME_UNKNOWN, .beside_bytes = t->beside};

    t->why.code = rc;
    t->ev.on_done(t->arg, rc, &t->why, rc == 0 ? &got : NULL);
    free_mirrord_download(t);
}

static int on_mirrord_download_head(void *arg, const struct origin_head *h)
{
    struct download *t = arg;
    uint64_t total = h->status == 206 ? h->total : h->content_length;
    int rc = 0;

    if (h->status == 404 || h->status == 410) {
        return err_set(&t->why, E_NOTFOUND, "the core no longer has it");
    }
    if (h->status != 200 && h->status != 206) {
        return upstream_refused(h->status, &t->why);
    }
    if (total != LENGTH_UNKNOWN && total != t->size) {
        return err_set(&t->why, E_CORRUPT, "the core has a size for it that differs from its tree");
    }
    if (t->patching != NULL && h->status != 206) {
        patching_give_up(t->g, &t->digest);
        return err_set(&t->why, E_AGAIN, "the core does not support range requests");
    }
    if (t->patching == NULL) {
        t->got = h->status == 206 ? t->got : 0;
        rc = t->ev.on_begin(t->arg, t->got, slice_str(t->validator));
    }
    return rc != 0 ? err_set(&t->why, rc, "canceled: the download cannot resume at this offset")
                   : 0;
}

static int on_mirrord_download_body(void *arg, struct slice bytes)
{
    struct download *t = arg;
    int rc;

    if (bytes.n > t->end - t->got) {
        return err_set(&t->why, E_CORRUPT, "the core sent more bytes than it has in the tree");
    }
    t->got += bytes.n;
    rc = t->ev.on_body(t->arg, bytes);
    if (rc == DOWNLOAD_PAUSE) {
        return ORIGIN_REQUEST_PAUSE;
    }
    return rc != 0 ? err_set(&t->why, rc, "canceled: the received bytes could not be stored") : 0;
}

static void on_mirrord_download_done(void *arg, int rc, const struct err *why)
{
    struct download *t = arg;

    t->request = NULL;
    if (t->why.code != 0) {
        rc = t->why.code;
    } else if (rc != 0 && why != NULL) {
        t->why = *why;
    } else if (rc == 0 && t->got != t->end) {
        rc = err_set(&t->why, E_NETWORK, "the response broke off after %llu bytes",
                     (unsigned long long)t->got);
    }
    if (rc == 0 && t->patching != NULL) {
        patching_went_on(t);
    } else {
        download_done(t, rc);
    }
}

/* [got, end) of it; then patching_went_on(). */
static void request_download_part(struct download *t, uint64_t end)
{
    static const struct origin_request_events events = {
        on_mirrord_download_head, on_mirrord_download_body, on_mirrord_download_done};
    struct origin_request_params f = {
        .origin = t->g->site->origin, .url = slice_str(t->url), .end = LENGTH_UNKNOWN};

    t->end = end;
    if (t->got != 0 || end != t->size) { /* a digest vouches for all parts */
        f.first = t->got;
        f.end = end;
    }
    t->request = origin_request_start(t->g->site->origin_client, &f, &events, t);
}

/* From `got` to its end. */
static void take_whole(struct download *t)
{
    patching_free(&t->patching);
    request_download_part(t, t->size);
}

struct download *upstream_download(struct engine *eg, const struct download_params *w,
                                   const struct download_events *ev, void *arg)
{
    struct upstream *g = (struct upstream *)eg;
    struct download *t = NEW(struct download);
    size_t room = strlen(g->blobs) + DIGEST_HEX + 1;

    t->g = g;
    t->ev = *ev;
    t->arg = arg;
    t->size = w->entry->size_bytes;
    t->digest = w->entry->digest;
    digest_format(&t->digest, t->validator);
    if (w->have_bytes < t->size && slice_eqs(w->validator, t->validator)) {
        t->got = w->have_bytes;
    }
    t->url = mem_new(room);
    snprintf(t->url, room, "%s%s", g->blobs, t->validator);
    list_push_back(&g->downloads, &t->node);
    if (patching_fits(g, w)) {
        patching_start(t, w);
    } else if (blob_batches_fit(g, w)) {
        blob_batches_add(t);
    } else {
        take_whole(t);
    }
    return t;
}

void upstream_download_resume(struct download *t)
{
    if (t->request != NULL) {
        origin_request_resume(t->request);
    } else if (t->patching != NULL) {
        patching_resume(t);
    } else {
        blob_batches_resume(t);
    }
}

void upstream_download_cancel(struct download **tp)
{
    struct download *t = *tp;

    *tp = NULL;
    if (t != NULL) {
        free_mirrord_download(t);
    }
}

void upstream_downloads_init(struct upstream *g)
{
    list_init(&g->downloads);
    blob_batches_init(g);
}

void upstream_downloads_fini(struct upstream *g)
{
    LIST_EACH (&g->downloads, it) {
        free_mirrord_download(LIST_ITEM(it, struct download, node));
    }
    blob_batches_fini(g);
}
