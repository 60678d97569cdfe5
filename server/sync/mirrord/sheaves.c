/* sheaves.c - small files of the tree, many in a request (common/codec/sheaf.h): which go together, and what becomes of each.
 *
 * A sheaf goes when it is full, so many at once as requests may be; one that is not full goes when no other is under way, so that what
 * comes meanwhile goes along. The first of a visit is small: a core that knows no sheaves says so, and is asked file by file
 * from then on. What an answer that broke off has not brought goes into the next; a file whose record is wrong is asked for by
 * itself, and when the answers are, all are. */
#include <inttypes.h>
#include <stdlib.h>

#include <zstd.h>

#include "common/codec/sheaf.h"
#include "server/sync/mirrord/core.h"

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

static void soon(struct event *ev)
{
    struct timeval now = {0};

    evtimer_add(ev, &now);
}

/* --- takes that wait --- */

bool sheaves_fit(struct core *g, const struct take_want *w)
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
    soon(g->bind);
}

static void wait_no_more(struct take *t)
{
    list_remove(&t->waits);
    t->g->nsmall--;
    t->g->small_bytes -= t->size;
}

void sheaves_add(struct take *t)
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
    soon(g->bind);
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

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    go_on(arg);
}

void sheaves_resume(struct take *t)
{
    struct sheaf *s = t->sheaf;

    if (s != NULL && s->paused && s->take[s->at] == t) {
        go_on(s);
    }
}

void sheaves_leave(struct take *t)
{
    struct sheaf *s = t->sheaf;

    if (list_linked(&t->waits)) {
        wait_no_more(t);
    }
    if (s != NULL) {
        s->take[t->place] = NULL;
        if (s->paused && s->at == t->place) {
            soon(s->turn);
        }
    }
}

/* --- the request --- */

static int on_head(void *arg, const struct fetch_head *h)
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

static int on_body(void *arg, struct slice bytes)
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
    rc = rc == 0 ? advance(s) : rc;
    return rc == TAKE_PAUSE ? FETCH_PAUSE : rc;
}

static void on_done(void *arg, int rc, const struct err *why)
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
    static const struct fetch_events events = {on_head, on_body, on_done};
    size_t most = (size_t)min_u64(g->nsmall, g->most);
    struct sheaf *s = mem_new(sizeof *s + most * sizeof s->take[0]);
    char *url = mem_new(strlen(g->core) + sizeof SHEAF_PATH);
    struct fetch_want f = {.origin = g->site->origin, .end = LENGTH_UNKNOWN};
    struct buf asked = BUF_INIT(SHEAF_COUNT_MAX * DIGEST_BYTES);
    uint64_t bytes = 0;

    s->g = g;
    s->in = BUF_INIT(SHEAF_ANSWER_MAX + 2 * UNPACK_BYTES);
    s->turn = evtimer_new(g->site->base, on_turn, s);
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

void sheaves_init(struct core *g)
{
    list_init(&g->small);
    list_init(&g->sheaves);
    g->most = TAKES_FIRST;
    g->bind = evtimer_new(g->site->base, on_bind, g);
    CHECK(g->bind != NULL);
}

void sheaves_fini(struct core *g)
{
    LIST_EACH (&g->sheaves, it) {
        sheaf_free(LIST_ITEM(it, struct sheaf, node));
    }
    event_free(g->bind);
}
