#include "agent/pull/sheaves.h"

#include <stdlib.h>

#include "agent/pull/sheaf.h"
#include "agent/pull/small.h"
#include "common/base/log.h"
#include "common/os/clock.h"

enum {
    WRONG_MAX = 8, /* records */
    TRIES_UNKNOWN =
        2, /* of a mirror that has never answered one: something on the way may not carry them */
};

struct sheaves {
    struct puller *pl;
    char *url;
    struct smalls smalls;
    struct list sheaves, spare;
    unsigned nsheaves;
    bool no_more;   /* files will be added */
    bool singly;    /* no more sheaves */
    bool proven;    /* the mirror has answered one */
    unsigned wrong; /* records */
    unsigned tries; /* in a row that brought nothing */
    uint64_t not_before_ms;
};

/* --- files -------------------------------------------------------------------------------------------------------------- */

bool sheaves_fit(const struct sheaves *s, const struct pull_want *w)
{
    return !s->singly && !digest_is_zero(&w->digest) && w->size_bytes <= SHEAF_BLOB_MAX;
}

bool sheaves_have_room(const struct sheaves *s)
{
    return s->smalls.n < SMALLS_MAX;
}

void sheaves_add(struct sheaves *s, const struct pull_want *w,
                 void (*on_done)(void *arg, const struct pull_result *r), void *arg)
{
    CHECK(sheaves_have_room(s));
    smalls_add(&s->smalls, w, on_done, arg);
}

/* --- the end of a sheaf ------------------------------------------------------------------------------------------------- */

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

static void judge(struct sheaves *s, const struct sheaf *b)
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

static void came_wrong(struct sheaves *s, struct small *x)
{
    log_warn("pull.sheaf", "url=" SLICE_FMT " came wrong among others: asked for by itself",
             SLICE_ARG(small_want(x)->url));
    if (++s->wrong == WRONG_MAX) {
        give_up(s, "too many came wrong", false);
    }
    small_alone(x);
}

static void settle(struct sheaves *s, const struct sheaf *b, const struct sheaf_file *f)
{
    struct small *x = f->of;

    switch (f->outcome) {
    case SHEAF_MISSED:
        small_again(x);
        break;
    case SHEAF_STAGED:
        small_came(x);
        break;
    case SHEAF_WRONG:
        came_wrong(s, x);
        break;
    case SHEAF_ITSELF:
        small_alone(x);
        break;
    case SHEAF_FAILED:
        small_failed(x, &b->disk);
        break;
    }
}

static void on_end(struct sheaf *b, void *arg)
{
    struct sheaves *s = arg;

    judge(s, b);
    for (size_t i = b->count; i-- > 0;) { /* backwards: those that wait again go to the front */
        settle(s, b, &b->file[i]);
    }
    s->nsheaves--;
    list_remove(&b->node);
    list_push_back(&s->spare, &b->node);
}

/* --- the next one ------------------------------------------------------------------------------------------------------- */

static struct sheaf *take_spare(struct sheaves *s)
{
    struct list *n = list_pop_front(&s->spare);
    struct sheaf *b = n != NULL ? LIST_ITEM(n, struct sheaf, node) : sheaf_open(s->pl, on_end, s);

    sheaf_clear(b);
    return b;
}

static void fill(struct sheaves *s, struct sheaf *b)
{
    uint64_t bytes = 0;
    struct small *x;

    while (b->count < SHEAF_COUNT_MAX && bytes < SHEAF_BYTES &&
           (x = smalls_next(&s->smalls)) != NULL) {
        bytes += small_want(x)->size_bytes;
        sheaf_add(b, small_want(x), x);
    }
}

/* With a connection in hand. */
static void start(struct sheaves *s)
{
    struct sheaf *b = take_spare(s);

    fill(s, b);
    if (b->count > 1) {
        list_push_back(&s->sheaves, &b->node);
        s->nsheaves++;
        sheaf_send(b, slice_str(s->url));
        return;
    }
    if (b->count == 1) { /* as short by itself, and told as what it is */
        small_alone(b->file[0].of);
    }
    list_push_back(&s->spare, &b->node);
    puller_give_conn(s->pl);
}

static bool any_fetching(struct sheaves *s)
{
    LIST_EACH (&s->sheaves, it) {
        if (LIST_ITEM(it, struct sheaf, node)->x != NULL) {
            return true;
        }
    }
    return false;
}

static bool is_due(struct sheaves *s)
{
    const struct smalls *ss = &s->smalls;
    bool full = ss->nwaiting >= SHEAF_COUNT_MAX || ss->waiting_bytes >= SHEAF_BYTES;

    return ss->nwaiting > 0 && s->nsheaves < SHEAVES_MAX &&
           (full || s->no_more || !any_fetching(s)) && clock_now_ms() >= s->not_before_ms;
}

void sheaves_feed(struct sheaves *s)
{
    if (s->pl->stopping) {
        return;
    }
    if (s->singly) {
        smalls_all_alone(&s->smalls);
    }
    while (is_due(s) && puller_take_conn(s->pl)) {
        start(s);
    }
    smalls_feed(&s->smalls);
}

/* --- its life ----------------------------------------------------------------------------------------------------------- */

void sheaves_no_more(struct sheaves *s, bool yes)
{
    s->no_more = yes;
}

void sheaves_tick(struct sheaves *s, uint64_t now_ms)
{
    smalls_tick(&s->smalls, now_ms);
}

void sheaves_stop(struct sheaves *s)
{
    LIST_EACH (&s->sheaves, it) {
        struct sheaf *b = LIST_ITEM(it, struct sheaf, node);
        if (sheaf_cancel(b)) { /* those that workers read go their way */
            on_end(b, s);
        }
    }
    smalls_stop(&s->smalls);
}

bool sheaves_reap(struct sheaves *s)
{
    return smalls_reap(&s->smalls);
}

bool sheaves_idle(const struct sheaves *s)
{
    return s->smalls.n == 0;
}

struct sheaves *sheaves_open(struct puller *pl)
{
    struct sheaves *s = NEW(struct sheaves);
    struct slice mirror = pl->agent->mirror;

    s->pl = pl;
    s->url = mem_new(mirror.n + sizeof SHEAF_PATH);
    memcpy(s->url, mirror.p, mirror.n);
    memcpy(s->url + mirror.n, SHEAF_PATH, sizeof SHEAF_PATH);
    smalls_init(&s->smalls, pl);
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
    CHECK(list_empty(&s->sheaves));
    while ((n = list_pop_front(&s->spare)) != NULL) {
        struct sheaf *b = LIST_ITEM(n, struct sheaf, node);
        sheaf_close(&b);
    }
    smalls_fini(&s->smalls);
    free(s->url);
    free(s);
}
