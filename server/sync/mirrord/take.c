/* take.c - the bytes of one file, by their digest: whole, from where they broke, or in parts (patching.c). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

#include "common/base/endian.h"
#include "common/codec/sheaf.h"
#include "server/sync/mirrord/core.h"
#include "server/sync/mirrord/patch.h"

static void take_done(struct take *t, int rc);
static void take_whole(struct take *t);
static void take_part(struct take *t, uint64_t end);

/* --- sheaves ---
 *
 * Small files of the tree, many in a request (common/codec/sheaf.h): which go together, and what becomes of each.
 *
 * A sheaf goes when it is full, so many at once as requests may be; one that is not full goes when no other is under way, so that what
 * comes meanwhile goes along. The first of a visit is small: a core that knows no sheaves says so, and is asked file by file
 * from then on. What an answer that broke off has not brought goes into the next; a file whose record is wrong is asked for by
 * itself, and when the answers are, all are.
 */

enum {
    TAKES_MAX = 4 * SHEAF_COUNT_MAX, /* at once, what is being sealed included, */
    TAKES_BYTES = 32 << 20,          /* or as many as have about so many bytes */
    TAKES_FIRST = 16,                /* before anything is known of the core */
    MEAN_OF = 64,                    /* takes, about, that the usual size is told by */
    BARREN_MAX = 2,                  /* that broke off before a record had come */
    WRONG_MAX = 8,                   /* records */
    UNPACK_BYTES = 64 << 10,
    WINDOW_LOG = 21, /* no frame of an answer's size needs more */
};

struct sheaf {
    struct list node; /* in core.sheaves */
    struct core *g;
    struct fetch *fetch;
    struct event *turn; /* goes on when the take that paused has left */
    struct sheaf_reader reader;
    ZSTD_DStream *z;        /* it comes packed; NULL: as it is */
    bool unpacked;          /* the frame's end has come */
    uint64_t out_bytes;     /* of the frame */
    uint64_t came, charged; /* bytes of the wire, and those that takes were told of */
    struct buf in;          /* what came and has not been read: while it pauses; */
    size_t used;            /* that much of it has */
    bool paused;            /* for take[at] */
    struct err why;         /* ours: says more than what fetch makes of it */
    size_t count;
    size_t at;           /* of the record at hand; those before it have their answer */
    struct take *take[]; /* NULL: nobody waits for it any more */
};

static void say_singly(struct core *g, const char *why)
{
    if (!g->singly) {
        g->singly = true;
        g->site->log(g->site->log_arg, "small files are asked for one by one: %s", why);
    }
}

static void sheaf_soon(struct event *ev)
{
    struct timeval now = {0};

    evtimer_add(ev, &now);
}

/* --- takes that wait --- */

/* Counts and says what came wrong in one. */
static bool sheaves_fit(struct core *g, const struct take_want *w)
{
    if (g->singly || w->entry->size_bytes > SHEAF_BLOB_MAX) {
        return false;
    }
    if (w->again) {
        g->site->log(g->site->log_arg,
                     SLICE_FMT ": what came is not what its SHA-256 says; asked for by itself",
                     SLICE_ARG(w->entry->path));
        if (++g->wrong == WRONG_MAX) {
            say_singly(g, "too many came wrong");
        }
    }
    return !w->again;
}

static void wait_for_more(struct take *t, bool front)
{
    struct core *g = t->g;

    t->got = 0;
    if (front) {
        list_push_front(&g->small, &t->waits);
    } else {
        list_push_back(&g->small, &t->waits);
    }
    g->nsmall++;
    g->small_bytes += t->size;
    sheaf_soon(g->bind);
}

static void wait_no_more(struct take *t)
{
    list_remove(&t->waits);
    t->g->nsmall--;
    t->g->small_bytes -= t->size;
}

static void sheaves_add(struct take *t)
{
    struct core *g = t->g;

    g->usual_bytes = g->usual_bytes - g->usual_bytes / MEAN_OF + t->size / MEAN_OF;
    wait_for_more(t, false);
}

unsigned sheaves_smalls(const struct core *g, uint64_t *upto_bytes)
{
    *upto_bytes = SHEAF_BLOB_MAX;
    if (g->singly) {
        return 0;
    }
    return g->proven ? (unsigned)min_u64(TAKES_MAX, TAKES_BYTES / max_u64(g->usual_bytes, 1))
                     : TAKES_FIRST;
}

/* --- the end of one --- */

static void sheaf_free(struct sheaf *s)
{
    fetch_cancel(&s->fetch);
    event_free(s->turn);
    ZSTD_freeDStream(s->z);
    buf_free(&s->in);
    list_remove(&s->node);
    s->g->nsheaves--;
    free(s);
}

/* The record at hand is nobody's any more; returns whose it was. */
static struct take *let_go(struct sheaf *s)
{
    struct take *t = s->take[s->at];

    s->take[s->at] = NULL;
    if (t != NULL) {
        t->sheaf = NULL;
    }
    return t;
}

/* What is the matter with the answers, if all else is to be asked for one by one; or NULL. */
static const char *judge(struct sheaf *s, int rc, const struct err *why)
{
    struct core *g = s->g;

    /* Digests are not sent again and again to one who answers a few of them each time. */
    g->most = s->at == s->count ? SHEAF_COUNT_MAX
                                : (size_t)min_u64(SHEAF_COUNT_MAX, max_u64(2 * s->at, TAKES_FIRST));
    g->barren = s->at != 0 ? 0 : g->barren;
    if (rc == E_UNSUPPORTED || rc == E_PROTOCOL || rc == E_TOOBIG) {
        return why->text;
    }
    if (s->at == 0 && rc != 0 && rc != E_BUSY && ++g->barren == BARREN_MAX) {
        return "answers to many at once break off before the first";
    }
    return NULL;
}

/* Takes s. What has no answer yet goes into the next, or is told, or asked for by itself. */
static void sheaf_end(struct sheaf *s, int rc, const struct err *e)
{
    struct core *g = s->g;
    struct err why = *e;
    const char *wrong = judge(s, rc, &why);
    bool moved = s->at != 0;
    struct list rest;
    struct list *n;

    if (wrong != NULL) {
        say_singly(g, wrong);
    }
    list_init(&rest);
    for (; s->at < s->count; s->at++) {
        struct take *t = let_go(s);
        if (t != NULL) {
            list_push_front(&rest, &t->waits);
        }
    }
    sheaf_free(s);
    sheaf_soon(g->bind);
    while ((n = list_pop_front(&rest)) != NULL) {
        struct take *t = LIST_ITEM(n, struct take, waits);
        if (moved || g->singly) {
            wait_for_more(t, true);
        } else {
            t->why = why;
            take_done(t, rc);
        }
    }
}

/* --- records --- */

static int begin_record(struct sheaf *s)
{
    struct take *t = s->take[s->at];
    uint32_t n = s->reader.n;
    int rc;

    s->g->proven = true;
    if (n == SHEAF_ABSENT || n == SHEAF_ALONE) {
        (void)let_go(s);
        s->at++;
        if (t != NULL && n == SHEAF_ALONE) {
            take_whole(t);
        } else if (t != NULL) {
            take_done(t, err_set(&t->why, E_NOTFOUND, "the core has let go of it"));
        }
        return 0;
    }
    if (t != NULL && n != t->size) {
        (void)let_go(s);
        s->g->site->log(s->g->site->log_arg,
                        "%.12s...: %" PRIu32 " bytes came instead of %" PRIu64
                        "; asked for by itself",
                        t->validator, n, t->size);
        take_whole(t);
        return ++s->g->wrong < WRONG_MAX ? 0 : err_set(&s->why, E_PROTOCOL, "too many came wrong");
    }
    rc = t != NULL ? t->ev.on_begin(t->arg, 0, slice_str(t->validator)) : 0;
    if (rc != 0) {
        take_done(let_go(s), err_set(&t->why, rc, "given up here"));
    }
    return 0;
}

static int give(struct sheaf *s, struct slice bytes)
{
    struct take *t = s->take[s->at];
    uint64_t wire_bytes = s->came - s->charged; /* with the heads of records before it */
    int rc = 0;

    if (t != NULL) {
        s->charged = s->came;
        rc = t->ev.on_packed(t->arg, bytes, wire_bytes);
    }
    if (rc < 0) {
        take_done(let_go(s), err_set(&t->why, rc, "given up here"));
        return 0;
    }
    return rc;
}

static void end_record(struct sheaf *s)
{
    struct take *t = let_go(s);

    s->at++;
    if (t != NULL) {
        take_done(t, 0);
    }
}

/* 0: what has come is read; TAKE_PAUSE; or an E_*, in s->why too. */
static int advance(struct sheaf *s)
{
    struct slice rest = slice_from(buf_slice(&s->in), s->used), some;
    int rc = 0;

    while (rc == 0) {
        int step = sheaf_next(&s->reader, &rest, &some, &s->why);
        s->used = s->in.n - rest.n;
        switch (step) {
        case SHEAF_NEED:
            buf_clear(&s->in);
            s->used = 0;
            return 0;
        case SHEAF_RECORD:
            rc = begin_record(s);
            break;
        case SHEAF_SOME:
            rc = give(s, some);
            break;
        case SHEAF_WHOLE:
            end_record(s);
            break;
        default:
            return step;
        }
    }
    s->paused = rc == TAKE_PAUSE;
    return rc;
}

static void go_on(struct sheaf *s)
{
    int rc;

    s->paused = false;
    rc = advance(s);
    if (rc < 0) {
        sheaf_end(s, rc, &s->why);
    } else if (rc == 0) {
        fetch_resume(s->fetch);
    }
}

static void sheaf_on_turn(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    go_on(arg);
}

static void sheaves_resume(struct take *t)
{
    struct sheaf *s = t->sheaf;

    if (s != NULL && s->paused && s->take[s->at] == t) {
        go_on(s);
    }
}

/* it is cancelled */
static void sheaves_leave(struct take *t)
{
    struct sheaf *s = t->sheaf;

    if (list_linked(&t->waits)) {
        wait_no_more(t);
    }
    if (s != NULL) {
        s->take[t->place] = NULL;
        if (s->paused && s->at == t->place) {
            sheaf_soon(s->turn);
        }
    }
}

/* --- the request --- */

static int sheaf_on_head(void *arg, const struct fetch_head *h)
{
    struct sheaf *s = arg;
    struct slice type = slice_trim(fetch_field(h, "content-type"));

    if (h->status == 429) {
        return core_refused(h->status, &s->why);
    }
    if (h->status != 200) {
        return err_set(&s->why, E_UNSUPPORTED, "asked for many at once, the core answers %d",
                       h->status);
    }
    if (slice_eqs(type, SHEAF_BLOBS_ZSTD)) {
        s->z = ZSTD_createDStream();
        CHECK(s->z != NULL);
        CHECK(!ZSTD_isError(ZSTD_DCtx_setParameter(s->z, ZSTD_d_windowLogMax, WINDOW_LOG)));
    } else if (!slice_eqs(type, SHEAF_BLOBS)) {
        return err_set(&s->why, E_UNSUPPORTED,
                       "asked for many at once, the core sends other things");
    }
    return 0;
}

/* Onto s->in, no more than an answer can have, whatever the frame says. */
static int unpack(struct sheaf *s, struct slice bytes)
{
    ZSTD_inBuffer in = {bytes.p, bytes.n, 0};
    bool full = true;

    while (in.pos < in.size || full) {
        ZSTD_outBuffer out = {buf_room(&s->in, UNPACK_BYTES), UNPACK_BYTES, 0};
        size_t hint;
        if (s->unpacked) {
            return in.pos < in.size ? err_set(&s->why, E_PROTOCOL, "more than a frame") : 0;
        }
        CHECK(out.dst != NULL);
        hint = ZSTD_decompressStream(s->z, &out, &in);
        if (ZSTD_isError(hint)) {
            return err_set(&s->why, E_PROTOCOL, "an answer's frame is damaged");
        }
        buf_grew(&s->in, out.pos);
        s->unpacked = hint == 0;
        s->out_bytes += out.pos;
        if (s->out_bytes > SHEAF_ANSWER_MAX) {
            return err_set(&s->why, E_TOOBIG, "an answer unpacks to more than it can have");
        }
        full = out.pos == out.size;
    }
    return 0;
}

static int sheaf_on_body(void *arg, struct slice bytes)
{
    struct sheaf *s = arg;
    int rc = 0;

    s->came += bytes.n;
    if (s->z != NULL) {
        rc = unpack(s, bytes);
    } else {
        buf_adds(&s->in, bytes);
    }
    CHECK(s->in.rc == 0); /* nothing comes while it pauses */
    rc = rc != 0 ? rc : advance(s);
    return rc == TAKE_PAUSE ? FETCH_PAUSE : rc;
}

static void sheaf_on_done(void *arg, int rc, const struct err *why)
{
    struct sheaf *s = arg;

    s->fetch = NULL;
    if (s->why.code != 0) {
        rc = s->why.code;
    } else if (rc != 0 && why != NULL) {
        s->why = *why;
    } else if (rc == 0 && (!sheaf_between(&s->reader) || (s->z != NULL && !s->unpacked))) {
        rc = err_set(&s->why, E_PROTOCOL, "an answer ends in the midst of a file");
    } else if (rc == 0 && s->at == 0) {
        rc = err_set(&s->why, E_PROTOCOL, "an answer without a file");
    }
    sheaf_end(s, rc, &s->why);
}

static void put_in(struct sheaf *s, struct take *t, struct buf *asked)
{
    wait_no_more(t);
    t->sheaf = s;
    t->place = s->count;
    s->take[s->count++] = t;
    buf_add(asked, t->digest.b, DIGEST_BYTES);
}

static void start(struct core *g)
{
    static const struct fetch_events events = {sheaf_on_head, sheaf_on_body, sheaf_on_done};
    size_t most = (size_t)min_u64(g->nsmall, g->most);
    struct sheaf *s = mem_new(sizeof *s + most * sizeof s->take[0]);
    char *url = mem_new(strlen(g->core) + sizeof SHEAF_PATH);
    struct fetch_want f = {.origin = g->site->origin, .end = LENGTH_UNKNOWN};
    struct buf asked = BUF_INIT(SHEAF_COUNT_MAX * DIGEST_BYTES);
    uint64_t bytes = 0;

    s->g = g;
    s->in = BUF_INIT(SHEAF_ANSWER_MAX + 2 * UNPACK_BYTES);
    s->turn = evtimer_new(g->site->base, sheaf_on_turn, s);
    CHECK(s->turn != NULL);
    list_push_back(&g->sheaves, &s->node);
    g->nsheaves++;
    while (s->count < most && bytes < SHEAF_BYTES) {
        struct take *t = LIST_ITEM(g->small.next, struct take, waits);
        bytes += t->size;
        put_in(s, t, &asked);
    }
    sheaf_reader_init(&s->reader, s->count);
    stpcpy(stpcpy(url, g->core), SHEAF_PATH);
    f.url = slice_str(url);
    f.accept = SLICE(SHEAF_BLOBS_ZSTD);
    f.body = buf_slice(&asked);
    f.body_type = SLICE(SHEAF_DIGESTS);
    s->fetch = fetch_start(g->site->fetcher, &f, &events, s);
    buf_free(&asked);
    free(url);
}

static bool is_due(const struct core *g)
{
    return g->nsheaves == 0 || (g->proven && g->nsheaves < g->site->parallel &&
                                (g->nsmall >= g->most || g->small_bytes >= SHEAF_BYTES));
}

static void on_bind(evutil_socket_t fd, short what, void *arg)
{
    struct core *g = arg;

    (void)fd;
    (void)what;
    while (!list_empty(&g->small) && (g->singly || is_due(g))) {
        if (g->singly || g->nsmall == 1) {
            struct take *t = LIST_ITEM(g->small.next, struct take, waits);
            wait_no_more(t);
            take_whole(t);
        } else {
            start(g);
        }
    }
}

/* --- all of them --- */

static void sheaves_init(struct core *g)
{
    list_init(&g->small);
    list_init(&g->sheaves);
    g->most = TAKES_FIRST;
    g->bind = evtimer_new(g->site->base, on_bind, g);
    CHECK(g->bind != NULL);
}

static void sheaves_fini(struct core *g)
{
    LIST_EACH (&g->sheaves, it) {
        sheaf_free(LIST_ITEM(it, struct sheaf, node));
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
    struct core *g;
    struct digest digest;
    struct buf list;
    _Atomic bool stop;
    int rc;
    struct err why;
};

struct patching {
    struct take *t;
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

static uint64_t key(const struct digest *d)
{
    return be_get(d->b, 8) | 1;
}

/* The list of the new version's pieces is asked for, that of the former one made here; what lies in both is
 * copied. Whatever fails before the first byte ends in take_whole(). */
static bool patching_fits(const struct core *g, const struct take_want *w)
{
    return w->basis != NULL && w->entry->size_bytes >= LEAST_BYTES &&
           blob_size_bytes(w->basis) >= LEAST_BYTES &&
           !set64_has(&g->patched, key(&w->entry->digest)) &&
           delta_pays(&g->delta, w->entry->path, w->entry->size_bytes, blob_size_bytes(w->basis));
}

/* Not again by pieces: the whole was not right, or ranges are not given. */
static void patching_give_up(struct core *g, const struct digest *d)
{
    (void)set64_add(&g->patched, key(d));
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

static void say(const struct patching *p, const char *what)
{
    const struct engine_site *site = p->t->g->site;

    site->log(site->log_arg, "%s: %s; it comes whole", p->path, what);
}

/* --- putting it together --- */

static void patching_on_turn(evutil_socket_t fd, short what, void *arg);

static void patching_soon(struct patching *p)
{
    struct timeval now = {0};
    evtimer_add(p->turn, &now);
}

static void finish(struct patching *p)
{
    struct take *t = p->t;
    const struct engine_site *site = t->g->site;

    /* When the digest of the whole does not hold, the next try is another. */
    patching_give_up(t->g, &t->digest);
    delta_learn(&t->g->delta, p->class, p->patch.here_bytes, t->size);
    site->log(site->log_arg,
              "%s: %" PRIu64 " of %" PRIu64
              " bytes were here in the former version, the list cost %" PRIu64,
              p->path, p->copied, t->size, p->list_bytes);
    take_done(t, 0);
}

/* 0, TAKE_PAUSE, or what ends the take. */
static int copy_some(struct patching *p, const struct stretch *s)
{
    struct take *t = p->t;
    size_t n = (size_t)min_u64(COPY_BYTES, s->end - t->got);
    int rc = blob_read(p->basis, s->from + (t->got - s->off), p->room, n, &t->why);

    if (rc != 0) {
        patching_give_up(t->g, &t->digest);
        return err_set(&t->why, E_AGAIN, "the former version cannot be read here");
    }
    rc = t->ev.on_copy(t->arg, slice_of(p->room, n));
    if (rc < 0) {
        return err_set(&t->why, rc, "given up here");
    }
    t->got += n;
    p->copied += n;
    return rc;
}

static void step(struct patching *p)
{
    struct take *t = p->t;
    uint64_t before = p->copied;

    while (p->at < p->patch.count) {
        const struct stretch *s = &p->patch.stretch[p->at];
        int rc = 0;
        if (t->got >= s->end) {
            p->at++;
            continue;
        }
        if (!s->here) {
            take_part(t, s->end);
            return;
        }
        if (p->copied - before >= TURN_BYTES) {
            patching_soon(p);
            return;
        }
        rc = copy_some(p, s);
        if (rc < 0) {
            take_done(t, rc);
            return;
        }
        if (rc == TAKE_PAUSE) {
            return; /* until patching_resume() */
        }
    }
    finish(p);
}

static void patching_on_turn(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    step(arg);
}

static void patching_went_on(struct take *t)
{
    step(t->patching);
}

static void patching_resume(struct take *t)
{
    if (t->patching->at < t->patching->patch.count) {
        patching_soon(t->patching);
    }
}

/* --- both lists --- */

static void patching_begin(struct patching *p, struct slice former)
{
    struct take *t = p->t;
    struct pieces have;
    int rc = pieces_decode(former, &have, NULL);

    if (rc != 0) {
        say(p, "the former version's list does not read");
        take_whole(t);
        return;
    }
    patch_make(&p->want, &have, &p->patch);
    pieces_free(&have);
    pieces_free(&p->want);
    if (!patch_pays(&p->patch, p->list_bytes)) {
        delta_learn(&t->g->delta, p->class, p->patch.here_bytes, t->size);
        say(p, "too little of it was in the former version");
        take_whole(t);
        return;
    }
    rc = t->ev.on_begin(t->arg, t->got, slice_str(t->validator));
    if (rc != 0) {
        take_done(t, err_set(&t->why, rc, "given up here"));
        return;
    }
    p->room = mem_new(COPY_BYTES);
    step(p);
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
            say(p, c->why.text);
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
    struct take *t = p->t;
    struct err why = a->why;

    p->list_bytes = a->body.n;
    t->beside += a->body.n;
    rc = rc != 0 ? rc : pieces_decode(buf_slice(&a->body), &p->want, &why);
    if (rc == 0 && (p->want.size_bytes != t->size || !digest_eq(&p->want.whole, &t->digest))) {
        rc = err_set(&why, E_PROTOCOL, "the core gave another file's list");
    }
    query_free(&p->ask);
    if (rc == 0) {
        cut_former(p);
    } else {
        say(p, why.text);
        take_whole(t);
    }
}

static void patching_start(struct take *t, const struct take_want *w)
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

static void take_free(struct take *t)
{
    fetch_cancel(&t->fetch);
    sheaves_leave(t);
    patching_free(&t->patching);
    list_remove(&t->node);
    free(t->url);
    free(t);
}

/* The last of it: the take is gone when this returns. */
static void take_done(struct take *t, int rc)
{
    struct take_got got = {.mtime_ns = SYNC_TIME_UNKNOWN, .beside_bytes = t->beside};

    t->why.code = rc;
    t->ev.on_done(t->arg, rc, &t->why, rc == 0 ? &got : NULL);
    take_free(t);
}

static int on_head(void *arg, const struct fetch_head *h)
{
    struct take *t = arg;
    uint64_t total = h->status == 206 ? h->total : h->content_length;
    int rc = 0;

    if (h->status == 404 || h->status == 410) {
        return err_set(&t->why, E_NOTFOUND, "the core has let go of it");
    }
    if (h->status != 200 && h->status != 206) {
        return core_refused(h->status, &t->why);
    }
    if (total != LENGTH_UNKNOWN && total != t->size) {
        return err_set(&t->why, E_CORRUPT, "the core has it with another size than its tree says");
    }
    if (t->patching != NULL && h->status != 206) {
        patching_give_up(t->g, &t->digest);
        return err_set(&t->why, E_AGAIN, "the core gives no ranges");
    }
    if (t->patching == NULL) {
        t->got = h->status == 206 ? t->got : 0;
        rc = t->ev.on_begin(t->arg, t->got, slice_str(t->validator));
    }
    return rc != 0 ? err_set(&t->why, rc, "given up here") : 0;
}

static int on_body(void *arg, struct slice bytes)
{
    struct take *t = arg;
    int rc;

    if (bytes.n > t->end - t->got) {
        return err_set(&t->why, E_CORRUPT, "the core sends more of it than its tree says");
    }
    t->got += bytes.n;
    rc = t->ev.on_body(t->arg, bytes);
    if (rc == TAKE_PAUSE) {
        return FETCH_PAUSE;
    }
    return rc != 0 ? err_set(&t->why, rc, "given up here") : 0;
}

static void on_done(void *arg, int rc, const struct err *why)
{
    struct take *t = arg;

    t->fetch = NULL;
    if (t->why.code != 0) {
        rc = t->why.code;
    } else if (rc != 0 && why != NULL) {
        t->why = *why;
    } else if (rc == 0 && t->got != t->end) {
        rc = err_set(&t->why, E_NETWORK, "the answer was cut after %llu bytes",
                     (unsigned long long)t->got);
    }
    if (rc == 0 && t->patching != NULL) {
        patching_went_on(t);
    } else {
        take_done(t, rc);
    }
}

/* [got, end) of it; then patching_went_on(). */
static void take_part(struct take *t, uint64_t end)
{
    static const struct fetch_events events = {on_head, on_body, on_done};
    struct fetch_want f = {
        .origin = t->g->site->origin, .url = slice_str(t->url), .end = LENGTH_UNKNOWN};

    t->end = end;
    if (t->got != 0 || end != t->size) { /* a digest vouches for all parts */
        f.first = t->got;
        f.end = end;
    }
    t->fetch = fetch_start(t->g->site->fetcher, &f, &events, t);
}

/* From `got` to its end. */
static void take_whole(struct take *t)
{
    patching_free(&t->patching);
    take_part(t, t->size);
}

struct take *core_take(struct engine *eg, const struct take_want *w, const struct take_events *ev,
                       void *arg)
{
    struct core *g = (struct core *)eg;
    struct take *t = NEW(struct take);
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
    list_push_back(&g->takes, &t->node);
    if (patching_fits(g, w)) {
        patching_start(t, w);
    } else if (sheaves_fit(g, w)) {
        sheaves_add(t);
    } else {
        take_whole(t);
    }
    return t;
}

void core_take_resume(struct take *t)
{
    if (t->fetch != NULL) {
        fetch_resume(t->fetch);
    } else if (t->patching != NULL) {
        patching_resume(t);
    } else {
        sheaves_resume(t);
    }
}

void core_take_cancel(struct take **tp)
{
    struct take *t = *tp;

    *tp = NULL;
    if (t != NULL) {
        take_free(t);
    }
}

void core_takes_init(struct core *g)
{
    list_init(&g->takes);
    sheaves_init(g);
}

void core_takes_fini(struct core *g)
{
    LIST_EACH (&g->takes, it) {
        take_free(LIST_ITEM(it, struct take, node));
    }
    sheaves_fini(g);
}
