#include "agent/pull/small.h"

#include <stdlib.h>

#include <uthash.h>

#include "agent/shelf/stage.h"
#include "common/base/log.h"

enum { LINES_MAX = 16 << 20 };

struct small {
    struct list node; /* waiting, busy, alone or ended */
    UT_hash_handle hh;
    struct smalls *of;
    struct pull_want want; /* its strings are ours */
    struct small *twin;    /* the same bytes under another name: ends when we do */
    void (*on_done)(void *arg, const struct pull_result *r);
    void *arg;
    struct sealing sealing;
    bool claimed;         /* until it is sealed, or all is over */
    uint64_t shown_bytes; /* of the puller's done_bytes */
    bool noted;           /* in the journal, by pull.c */
    struct pull_result result;
};

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

/* --- waiting ------------------------------------------------------------------------------------------------------------ */

static void wait_at(struct small *x, bool front)
{
    struct smalls *ss = x->of;

    unclaim(x);
    if (front) {
        list_push_front(&ss->waiting, &x->node);
    } else {
        list_push_back(&ss->waiting, &x->node);
    }
    ss->nwaiting++;
    ss->waiting_bytes += x->want.size_bytes;
}

/* NULL: none waits. */
static struct small *wait_no_more(struct smalls *ss)
{
    struct list *n = list_pop_front(&ss->waiting);
    struct small *x = n != NULL ? LIST_ITEM(n, struct small, node) : NULL;

    if (x != NULL) {
        ss->nwaiting--;
        ss->waiting_bytes -= x->want.size_bytes;
    }
    return x;
}

void smalls_add(struct smalls *ss, const struct pull_want *w,
                void (*on_done)(void *arg, const struct pull_result *r), void *arg)
{
    struct small *x = NEW(struct small);
    struct small *first;

    ss->n++;
    x->of = ss;
    x->want = *w;
    x->on_done = on_done;
    x->arg = arg;
    (void)copy(&x->want.url);
    (void)copy(&x->want.other_url);
    HASH_FIND(hh, ss->all, &x->want.digest, sizeof x->want.digest, first);
    if (first != NULL) {
        x->twin = first->twin;
        first->twin = x;
    } else {
        HASH_ADD(hh, ss->all, want.digest, sizeof x->want.digest, x);
        wait_at(x, false);
    }
}

/* --- its end: it is in no list ------------------------------------------------------------------------------------------ */

static void show(struct small *x, uint64_t bytes)
{
    x->of->pl->done_bytes += bytes - x->shown_bytes;
    x->shown_bytes = bytes;
}

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

static void on_sealed(struct sealing *y)
{
    struct small *x = CONTAINER_OF(y, struct small, sealing);

    if (y->one.rc == E_NOTFOUND) { /* gc has taken it: as if it had not come */
        small_alone(x);
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

/* --- to be fetched ------------------------------------------------------------------------------------------------------ */

/* True: it is to be fetched, and claimed. First what is staged, then the shelf: it goes from the one to the other. */
static bool look(struct small *x)
{
    struct smalls *ss = x->of;
    struct shelf *shelf = ss->pl->agent->shelf;
    const struct digest *d = &x->want.digest;
    int rc = ss->stage == NULL ? stage_open(shelf, &ss->stage, NULL) : 0;
    uint64_t size;

    rc = rc == 0 ? stage_claim(ss->stage, d, NULL) : rc;
    x->claimed = rc == 0;
    if (x->claimed && stage_find(shelf, d, x->want.size_bytes)) {
        seal(x);
    } else if (shelf_find(shelf, d, &size, NULL) == 0) {
        x->result.was_there = true;
        end(x, 0, NULL);
    } else if (x->claimed) {
        return true;
    } else if (rc == E_BUSY) {
        list_push_back(&ss->busy, &x->node);
    } else { /* a shelf that cannot be written to: pull.c has the words for it */
        small_alone(x);
    }
    return false;
}

struct small *smalls_next(struct smalls *ss)
{
    struct small *x;

    do {
        x = wait_no_more(ss);
    } while (x != NULL && !look(x));
    return x;
}

const struct pull_want *small_want(const struct small *x)
{
    return &x->want;
}

void small_came(struct small *x)
{
    x->result.fetched_bytes = x->want.size_bytes;
    x->of->pl->fetched_bytes += x->want.size_bytes;
    seal(x);
}

void small_again(struct small *x)
{
    if (x->of->pl->stopping) {
        cancel(x);
    } else {
        wait_at(x, true);
    }
}

void small_failed(struct small *x, const struct err *why)
{
    end(x, why->code, why);
}

/* --- by itself ---------------------------------------------------------------------------------------------------------- */

void small_alone(struct small *x)
{
    show(x, 0);
    unclaim(x); /* pull.c has a lock of its own */
    if (x->of->pl->stopping) {
        cancel(x);
    } else {
        list_push_back(&x->of->alone, &x->node);
    }
}

void smalls_all_alone(struct smalls *ss)
{
    struct small *x;

    while ((x = wait_no_more(ss)) != NULL) {
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

void smalls_feed(struct smalls *ss)
{
    struct list *n;

    while (ss->pl->seats > 0 && (n = list_pop_front(&ss->alone)) != NULL) {
        struct small *x = LIST_ITEM(n, struct small, node);
        pull_add(ss->pl, &x->want, on_pulled, x);
    }
}

/* --- now and then ------------------------------------------------------------------------------------------------------- */

static void say_waiting(struct smalls *ss, uint64_t now_ms)
{
    const struct small *x = LIST_ITEM(ss->busy.next, struct small, node);

    if (ss->busy_since_ms == 0) {
        ss->busy_since_ms = now_ms;
    } else if (ss->busy_since_ms != UINT64_MAX &&
               now_ms - ss->busy_since_ms > (uint64_t)ss->pl->agent->idle_timeout_s * 1000) {
        ss->busy_since_ms = UINT64_MAX;
        log_warn("pull.waits", "url=" SLICE_FMT " another process on this node fetches it",
                 SLICE_ARG(x->want.url));
    }
}

/* What another process fetched may be here by now, or free. */
void smalls_tick(struct smalls *ss, uint64_t now_ms)
{
    struct list *n;

    if (list_empty(&ss->busy)) {
        ss->busy_since_ms = 0;
        return;
    }
    say_waiting(ss, now_ms);
    while ((n = list_pop_front(&ss->busy)) != NULL) {
        wait_at(LIST_ITEM(n, struct small, node), false);
    }
}

void smalls_stop(struct smalls *ss)
{
    struct small *x;
    struct list *n;

    while ((x = wait_no_more(ss)) != NULL) {
        cancel(x);
    }
    while ((n = list_pop_front(&ss->busy)) != NULL || (n = list_pop_front(&ss->alone)) != NULL) {
        cancel(LIST_ITEM(n, struct small, node));
    }
}

static void tell(struct small *x, const struct pull_result *r)
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

bool smalls_reap(struct smalls *ss)
{
    struct buf lines = BUF_INIT(LINES_MAX);
    bool any = false;
    struct list *n;

    while ((n = list_pop_front(&ss->ended)) != NULL) {
        tell_all(LIST_ITEM(n, struct small, node), &lines);
        any = true;
    }
    if (lines.n != 0) {
        shelf_note_lines(ss->pl->agent->shelf, buf_slice(&lines));
    }
    buf_free(&lines);
    return any;
}

void smalls_init(struct smalls *ss, struct puller *pl)
{
    *ss = (struct smalls){.pl = pl};
    list_init(&ss->waiting);
    list_init(&ss->busy);
    list_init(&ss->alone);
    list_init(&ss->ended);
}

void smalls_fini(struct smalls *ss)
{
    CHECK(ss->n == 0);
    stage_close(&ss->stage);
}
