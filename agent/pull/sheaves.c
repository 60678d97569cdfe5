#include "agent/pull/sheaves.h"

#include <inttypes.h>
#include <stdlib.h>

#include <uthash.h>

#include "agent/shelf/stage.h"
#include "common/base/log.h"
#include "common/codec/sheaf.h"
#include "common/os/clock.h"

enum {
    WRONG_MAX = 8, /* records */
    TRIES_UNKNOWN =
        2, /* of a mirror that has never answered one: something on the way may not carry them */
    LINES_MAX = 16 << 20,
};

enum outcome { OUT_NONE, OUT_STAGED, OUT_WRONG, OUT_ALONE, OUT_FAILED };

struct small {
    struct list node; /* waiting, busy, alone or ended */
    UT_hash_handle hh;
    struct sheaves *of;
    struct pull_want want; /* its strings are ours */
    struct small *twin;    /* the same bytes under another name: ends when we do */
    void (*on_done)(void *arg, const struct pull_result *r);
    void *arg;
    struct sealing sealing;
    enum outcome outcome; /* of its record */
    bool claimed;         /* until it is sealed, or all is over */
    uint64_t shown_bytes; /* of the puller's done_bytes */
    bool noted;           /* in the journal, by pull.c */
    struct pull_result result;
};

struct sheaf {
    struct list node; /* under way, or spare */
    struct sheaves *of;
    struct xfer *x; /* with a connection */
    struct buf asked, came;
    uint64_t retry_after_s;
    int rc;               /* of the transfer, then of what is in it */
    struct err why, disk; /* disk: of OUT_FAILED */
    struct job job;
    size_t count;
    size_t done; /* records that came whole */
    struct small *one[SHEAF_COUNT_MAX];
};

struct sheaves {
    struct puller *pl;
    struct stage *stage; /* NULL: not opened yet */
    char *url;
    struct small *all; /* uthash, by digest; without twins */
    struct list waiting, busy, alone, ended;
    size_t nsmalls, nwaiting;
    uint64_t waiting_bytes;
    struct list sheaves, spare;
    unsigned nsheaves, nfetching;
    bool no_more;   /* files will be added */
    bool singly;    /* no more sheaves */
    bool proven;    /* the mirror has answered one */
    unsigned wrong; /* records */
    unsigned tries; /* in a row that brought nothing */
    uint64_t not_before_ms;
    uint64_t busy_since_ms; /* 0: nobody is in our way; UINT64_MAX: and it was said */
};

/* --- files -------------------------------------------------------------------------------------------------------------- */

bool sheaves_fit(const struct sheaves *s, const struct pull_want *w)
{
    return !s->singly && !digest_is_zero(&w->digest) && w->size_bytes <= SHEAF_BLOB_MAX;
}

bool sheaves_have_room(const struct sheaves *s)
{
    return s->nsmalls < SMALLS_MAX;
}

static char *copy(struct slice *text)
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

static void wait_at(struct small *x, bool front)
{
    struct sheaves *s = x->of;

    unclaim(x);
    x->outcome = OUT_NONE;
    if (front) {
        list_push_front(&s->waiting, &x->node);
    } else {
        list_push_back(&s->waiting, &x->node);
    }
    s->nwaiting++;
    s->waiting_bytes += x->want.size_bytes;
}

static void wait_no_more(struct small *x)
{
    list_remove(&x->node);
    x->of->nwaiting--;
    x->of->waiting_bytes -= x->want.size_bytes;
}

void sheaves_add(struct sheaves *s, const struct pull_want *w,
                 void (*on_done)(void *arg, const struct pull_result *r), void *arg)
{
    struct small *x = NEW(struct small);
    struct small *first;

    CHECK(s->nsmalls < SMALLS_MAX);
    s->nsmalls++;
    x->of = s;
    x->want = *w;
    x->on_done = on_done;
    x->arg = arg;
    (void)copy(&x->want.url);
    (void)copy(&x->want.other_url);
    HASH_FIND(hh, s->all, &x->want.digest, sizeof x->want.digest, first);
    if (first != NULL) {
        x->twin = first->twin;
        first->twin = x;
    } else {
        HASH_ADD(hh, s->all, want.digest, sizeof x->want.digest, x);
        wait_at(x, false);
    }
}

static void show(struct small *x, uint64_t bytes)
{
    x->of->pl->done_bytes += bytes - x->shown_bytes;
    x->shown_bytes = bytes;
}

/* It is in no list. */
static void end(struct small *x, int rc, const struct err *why)
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
    show(x, rc == 0 ? x->want.size_bytes : 0);
    unclaim(x);
    list_push_back(&x->of->ended, &x->node);
}

static void cancel(struct small *x)
{
    struct err why;

    err_set(&why, E_CANCELLED, "stopped");
    end(x, E_CANCELLED, &why);
}

static void by_itself(struct small *x)
{
    show(x, 0);
    unclaim(x); /* pull.c has a lock of its own */
    if (x->of->pl->stopping) {
        cancel(x);
    } else {
        list_push_back(&x->of->alone, &x->node);
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

/* --- onto the shelf --- */

static void on_sealed(struct sealing *y)
{
    struct small *x = CONTAINER_OF(y, struct small, sealing);

    if (y->one.rc == E_NOTFOUND) { /* gc has taken it: as if it had not come */
        by_itself(x);
    } else {
        end(x, y->one.rc, &y->one.why);
    }
}

static void seal(struct small *x)
{
    show(x, x->want.size_bytes);
    x->sealing = (struct sealing){
        .one = {.key = x->want.digest, .digest = x->want.digest, .fd = -1, .staged = true},
        .done = on_sealed};
    sealing_add(x->of->pl->sealer, &x->sealing);
}

/* True: it is to be fetched, and claimed. First what is staged, then the shelf: it goes from the one to the other. */
static bool look(struct small *x)
{
    struct sheaves *s = x->of;
    struct shelf *shelf = s->pl->agent->shelf;
    const struct digest *d = &x->want.digest;
    int rc = s->stage == NULL ? stage_open(shelf, &s->stage, NULL) : 0;
    uint64_t size;

    rc = rc == 0 ? stage_claim(s->stage, d, NULL) : rc;
    x->claimed = rc == 0;
    if (x->claimed && stage_find(shelf, d, x->want.size_bytes)) {
        seal(x);
    } else if (shelf_find(shelf, d, &size, NULL) == 0) {
        x->result.was_there = true;
        end(x, 0, NULL);
    } else if (x->claimed) {
        return true;
    } else if (rc == E_BUSY) {
        list_push_back(&s->busy, &x->node);
    } else { /* a shelf that cannot be written to: pull.c has the words for it */
        by_itself(x);
    }
    return false;
}

/* --- the end of a sheaf --- */

static void give_up(struct sheaves *s, const char *why, bool usual)
{
    if (!s->singly) {
        s->singly = true;
        if (usual) {
            log_debug("pull.singly", "small files are asked for one by one: %s", why);
        } else {
            log_warn("pull.singly", "small files are asked for one by one from here on: %s", why);
        }
    }
}

static void try_later(struct sheaves *s, const struct sheaf *b)
{
    uint64_t now_ms = clock_now_ms();
    unsigned most = s->proven || b->rc == E_AGAIN ? s->pl->agent->tries : TRIES_UNKNOWN;

    if (now_ms < s->not_before_ms) {
        return; /* one outage, and many connections that it hits */
    }
    if (s->tries >= most) {
        give_up(s, b->why.text, false);
        return;
    }
    s->not_before_ms = now_ms + puller_pause_ms(s->pl, s->tries, b->retry_after_s);
    s->tries++;
}

static void judge(struct sheaves *s, struct sheaf *b)
{
    if (b->done != 0) {
        s->tries = 0;
        s->proven = true;
    }
    switch (b->rc) {
    case 0:
        if (b->done == 0) {
            give_up(s, "an answer without a file", false);
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

static void settle(struct small *x, struct sheaf *b)
{
    struct sheaves *s = x->of;

    switch (x->outcome) {
    case OUT_NONE: /* has not come */
        if (s->pl->stopping) {
            cancel(x);
        } else {
            wait_at(x, true);
        }
        break;
    case OUT_STAGED:
        x->result.fetched_bytes = x->want.size_bytes;
        s->pl->fetched_bytes += x->want.size_bytes;
        seal(x);
        break;
    case OUT_WRONG:
        log_warn("pull.sheaf", "url=" SLICE_FMT " came wrong among others: asked for by itself",
                 SLICE_ARG(x->want.url));
        if (++s->wrong == WRONG_MAX) {
            give_up(s, "too many came wrong", false);
        }
        by_itself(x);
        break;
    case OUT_ALONE:
        by_itself(x);
        break;
    case OUT_FAILED:
        end(x, b->disk.code, &b->disk);
        break;
    }
}

static void sheaf_end(struct sheaf *b)
{
    struct sheaves *s = b->of;

    judge(s, b);
    for (size_t i = b->count; i-- > 0;) { /* backwards: those that wait again go to the front */
        settle(b->one[i], b);
    }
    s->nsheaves--;
    list_remove(&b->node);
    list_push_back(&s->spare, &b->node);
}

/* --- what came, on a worker --- */

static enum outcome take_record(struct sheaf *b, const struct small *x, struct slice bytes)
{
    struct digest got;

    digest_of(bytes, &got);
    if (bytes.n != x->want.size_bytes || !digest_eq(&got, &x->want.digest)) {
        return OUT_WRONG;
    }
    return stage_put(b->of->pl->agent->shelf, &got, bytes, &b->disk) == 0 ? OUT_STAGED : OUT_FAILED;
}

/* An answer that broke off is good as far as it goes. */
static void read_records(struct job *j)
{
    struct sheaf *b = CONTAINER_OF(j, struct sheaf, job);
    struct slice rest = buf_slice(&b->came), bytes = SLICE_NONE, some;
    struct sheaf_reader r;
    struct err why;
    int step;

    sheaf_reader_init(&r, b->count);
    while ((step = sheaf_next(&r, &rest, &some, &why)) > SHEAF_NEED) {
        if (step == SHEAF_SOME) {
            bytes = some;
        } else if (step == SHEAF_WHOLE) {
            b->one[b->done]->outcome = take_record(b, b->one[b->done], bytes);
            b->done++;
            bytes = SLICE_NONE;
        } else if (r.n == SHEAF_ABSENT || r.n == SHEAF_ALONE) {
            b->one[b->done++]->outcome = OUT_ALONE;
        }
    }
    if (step < 0) {
        b->rc = step;
        b->why = why;
    } else if (b->rc == 0 && !sheaf_between(&r)) {
        b->rc = err_set(&b->why, E_PROTOCOL, "an answer ends in the midst of a file");
    }
}

static void on_read(struct job *j)
{
    struct sheaf *b = CONTAINER_OF(j, struct sheaf, job);
    struct puller *pl = b->of->pl;

    sheaf_end(b);
    puller_feed(pl);
}

/* --- the request --- */

static int on_head(void *arg, const struct xfer_head *h)
{
    struct sheaf *b = arg;

    if (!slice_u64(xfer_head_field(h, "retry-after"), &b->retry_after_s)) {
        b->retry_after_s = 0;
    }
    if (h->status != 200) {
        b->rc = ask_judge(h->status, &b->why);
        if (b->rc == 0 || h->status == 405 || h->status == 501) {
            b->rc =
                err_set(&b->why, E_UNSUPPORTED, "asked for many, the mirror answers %d", h->status);
        }
    } else if (!slice_eqs(slice_trim(xfer_head_field(h, "content-type")), SHEAF_BLOBS)) {
        b->rc = err_set(&b->why, E_UNSUPPORTED, "asked for many, the mirror sends other things");
    }
    return b->rc;
}

static int on_body(void *arg, struct slice bytes)
{
    struct sheaf *b = arg;

    buf_adds(&b->came, bytes);
    if (b->came.rc != 0) {
        b->rc = err_set(&b->why, E_PROTOCOL, "an answer is longer than one can be");
    }
    return b->rc;
}

static void on_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct sheaf *b = arg;
    struct puller *pl = b->of->pl;

    (void)body_bytes;
    b->x = NULL;
    b->of->nfetching--;
    puller_give_conn(pl);
    if (b->rc == 0 && rc != 0) {
        b->rc = rc;
        b->why = *why;
    }
    if (b->came.n != 0 && b->came.rc == 0) {
        b->job = (struct job){.work = read_records, .done = on_read, .reply = pl->mail};
        pool_submit(pl->workers, &b->job);
    } else {
        sheaf_end(b);
    }
    puller_feed(pl);
}

static struct sheaf *sheaf_new(struct sheaves *s)
{
    struct list *n = list_pop_front(&s->spare);
    struct sheaf *b;

    if (n == NULL) {
        b = NEW(struct sheaf);
        b->asked = BUF_INIT(SHEAF_COUNT_MAX * DIGEST_BYTES);
        b->came = BUF_INIT(SHEAF_ANSWER_MAX);
    } else {
        b = LIST_ITEM(n, struct sheaf, node);
    }
    buf_clear(&b->asked);
    buf_clear(&b->came);
    b->of = s;
    b->count = b->done = 0;
    b->rc = 0;
    b->why = (struct err){0};
    b->retry_after_s = 0;
    return b;
}

static void send_it(struct sheaf *b)
{
    static const struct xfer_events events = {on_head, on_body, on_done};
    static const struct slice fields[] = {
        {"Accept: " SHEAF_BLOBS, 8 + sizeof SHEAF_BLOBS - 1},
        {"Content-Type: " SHEAF_DIGESTS, 14 + sizeof SHEAF_DIGESTS - 1}};
    struct sheaves *s = b->of;
    struct slice lines[ARRAY_LEN(fields) + 1];
    struct xfer_want w =
        ask_xfer_want(s->pl->agent, XFER_POST, slice_str(s->url), lines, fields, ARRAY_LEN(fields));

    w.body = buf_slice(&b->asked);
    b->x = xfer_start(s->pl->xfers, &w, &events, b);
}

static void fill(struct sheaf *b)
{
    struct sheaves *s = b->of;
    uint64_t bytes = 0;

    while (b->count < SHEAF_COUNT_MAX && bytes < SHEAF_BYTES && s->nwaiting > 0) {
        struct small *x = LIST_ITEM(s->waiting.next, struct small, node);
        wait_no_more(x);
        if (look(x)) {
            bytes += x->want.size_bytes;
            b->one[b->count++] = x;
            buf_add(&b->asked, x->want.digest.b, DIGEST_BYTES);
        }
    }
}

/* With a connection in hand. */
static void start(struct sheaves *s)
{
    struct sheaf *b = sheaf_new(s);

    fill(b);
    if (b->count > 1) {
        list_push_back(&s->sheaves, &b->node);
        s->nsheaves++;
        s->nfetching++;
        send_it(b);
        return;
    }
    if (b->count == 1) { /* as short by itself, and told as what it is */
        by_itself(b->one[0]);
    }
    list_push_back(&s->spare, &b->node);
    puller_give_conn(s->pl);
}

static bool is_due(const struct sheaves *s)
{
    bool full = s->nwaiting >= SHEAF_COUNT_MAX || s->waiting_bytes >= SHEAF_BYTES;

    return s->nwaiting > 0 && s->nsheaves < SHEAVES_MAX &&
           (full || s->no_more || s->nfetching == 0) && clock_now_ms() >= s->not_before_ms;
}

void sheaves_feed(struct sheaves *s)
{
    struct list *n;

    if (s->pl->stopping) {
        return;
    }
    while (s->singly && s->nwaiting > 0) {
        struct small *x = LIST_ITEM(s->waiting.next, struct small, node);
        wait_no_more(x);
        by_itself(x);
    }
    while (is_due(s) && puller_take_conn(s->pl)) {
        start(s);
    }
    while (s->pl->seats > 0 && (n = list_pop_front(&s->alone)) != NULL) {
        struct small *x = LIST_ITEM(n, struct small, node);
        pull_add(s->pl, &x->want, on_pulled, x);
    }
}

/* --- now and then -------------------------------------------------------------------------------------------------------- */

void sheaves_no_more(struct sheaves *s, bool yes)
{
    s->no_more = yes;
}

static void say_waiting(struct sheaves *s, uint64_t now_ms)
{
    const struct small *x = LIST_ITEM(s->busy.next, struct small, node);

    if (s->busy_since_ms == 0) {
        s->busy_since_ms = now_ms;
    } else if (s->busy_since_ms != UINT64_MAX &&
               now_ms - s->busy_since_ms > (uint64_t)s->pl->agent->idle_timeout_s * 1000) {
        s->busy_since_ms = UINT64_MAX;
        log_warn("pull.waits", "url=" SLICE_FMT " another process on this node fetches it",
                 SLICE_ARG(x->want.url));
    }
}

/* What another process fetched may be here by now, or free. */
void sheaves_tick(struct sheaves *s, uint64_t now_ms)
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

void sheaves_stop(struct sheaves *s)
{
    struct list *n;

    LIST_EACH (&s->sheaves, it) {
        struct sheaf *b = LIST_ITEM(it, struct sheaf, node);
        if (b->x != NULL) { /* those that workers read go their way */
            xfer_cancel(&b->x);
            s->nfetching--;
            puller_give_conn(s->pl);
            b->rc = E_CANCELLED;
            sheaf_end(b);
        }
    }
    while (s->nwaiting > 0) {
        struct small *x = LIST_ITEM(s->waiting.next, struct small, node);
        wait_no_more(x);
        cancel(x);
    }
    while ((n = list_pop_front(&s->busy)) != NULL || (n = list_pop_front(&s->alone)) != NULL) {
        cancel(LIST_ITEM(n, struct small, node));
    }
}

static void tell(struct small *x, const struct pull_result *r)
{
    x->on_done(x->arg, r);
    free((char *)(uintptr_t)x->want.url.p);
    free((char *)(uintptr_t)x->want.other_url.p);
    x->of->nsmalls--;
    free(x);
}

static void tell_all(struct small *x, struct buf *lines)
{
    struct pull_result r = x->result;
    struct small *twin = x->twin;

    HASH_DELETE(hh, x->of->all, x);
    if (r.rc == 0 && !x->noted) {
        shelf_note_line(lines, &r.digest, r.size_bytes, SLICE_NONE, SLICE_NONE);
    }
    tell(x, &r);
    r.fetched_bytes = 0;
    r.was_there = true;
    while (twin != NULL) {
        struct small *next = twin->twin;
        show(twin, r.rc == 0 ? r.size_bytes : 0);
        tell(twin, &r);
        twin = next;
    }
}

bool sheaves_reap(struct sheaves *s)
{
    struct buf lines = BUF_INIT(LINES_MAX);
    bool any = false;
    struct list *n;

    while ((n = list_pop_front(&s->ended)) != NULL) {
        tell_all(LIST_ITEM(n, struct small, node), &lines);
        any = true;
    }
    if (lines.n != 0) {
        shelf_note_lines(s->pl->agent->shelf, buf_slice(&lines));
    }
    buf_free(&lines);
    return any;
}

bool sheaves_idle(const struct sheaves *s)
{
    return s->nsmalls == 0;
}

struct sheaves *sheaves_open(struct puller *pl)
{
    struct sheaves *s = NEW(struct sheaves);
    struct slice mirror = pl->agent->mirror;

    s->pl = pl;
    s->url = mem_new(mirror.n + sizeof SHEAF_PATH);
    memcpy(s->url, mirror.p, mirror.n);
    memcpy(s->url + mirror.n, SHEAF_PATH, sizeof SHEAF_PATH);
    list_init(&s->waiting);
    list_init(&s->busy);
    list_init(&s->alone);
    list_init(&s->ended);
    list_init(&s->sheaves);
    list_init(&s->spare);
    return s;
}

void sheaves_close(struct sheaves **sp)
{
    struct sheaves *s = *sp;
    struct list *n;

    if (s == NULL) {
        return;
    }
    *sp = NULL;
    CHECK(s->nsmalls == 0 && list_empty(&s->sheaves));
    while ((n = list_pop_front(&s->spare)) != NULL) {
        struct sheaf *b = LIST_ITEM(n, struct sheaf, node);
        buf_free(&b->asked);
        buf_free(&b->came);
        free(b);
    }
    stage_close(&s->stage);
    free(s->url);
    free(s);
}
