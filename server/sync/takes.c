/* takes.c - the fetch stage: what the plan wants is asked of the engine, so many at once; what fails in passing is asked
 * again, from where it broke. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/os/clock.h"
#include "common/os/newfile.h"
#include "server/sync/taking.h"

enum {
    TRIES = 5, /* of one file, without progress */
    BACKOFF_MS = 100,
    PATH_ROOM = 4096,
    FEW_VANISH = 10,
};

static void start_more(struct takes *x);

void takes_fail(struct takes *x, int rc, const struct err *why)
{
    if (x->rc == 0) {
        x->rc = rc;
        x->why = *why;
        x->why.code = rc;
    }
    x->over = true;
}

void takes_look_over(struct takes *x)
{
    if (x->rc == 0 && !x->closing) {
        start_more(x);
    }
    x->over = x->rc != 0 || (x->count == 0 && x->next == x->run->plan.todo_count);
}

/* --- the end of a try --- */

static void give_up_entry(struct taking *t, int rc, const struct err *why)
{
    struct takes *x = t->all;
    struct run *r = x->run;
    bool there = t->was_there;

    run_say(r, "%s: " SLICE_FMT ": %s", there ? "kept as it was" : "left out",
            SLICE_ARG(t->entry.path), why->text[0] != '\0' ? why->text : err_plain(rc));
    r->plan.fate[t->index] = there ? FATE_KEEP : FATE_DROP;
    x->vanished++;
    lock_take(&r->lock);
    r->look.kept++;
    lock_drop(&r->lock);
    taking_forget(t);
    taking_free(t);
    takes_look_over(x);
}

static void give_up_run(struct taking *t, int rc, const struct err *why)
{
    struct takes *x = t->all;

    if (x->rc == 0) {
        run_say(x->run, "failed: " SLICE_FMT ": %s", SLICE_ARG(t->entry.path), why->text);
    }
    takes_fail(x, rc, why);
    taking_free(t);
    takes_look_over(x);
}

/* The next try, or the end of a pause. */
static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct taking *t = arg;

    (void)fd;
    (void)what;
    if (t->take == NULL) {
        takes_ask(t);
    } else {
        t->all->run->ops->resume(t->take);
    }
}

static void try_again(struct taking *t, int rc, const struct err *why)
{
    if (taking_at(t) > t->progress) {
        t->tries = 0;
    }
    t->progress = taking_at(t);
    if (++t->tries >= TRIES || t->all->run->broken) {
        give_up_run(t, rc, why);
    } else {
        taking_timer(t, (uint64_t)BACKOFF_MS << t->tries);
    }
}

/* A digest that is not the announced one is asked for once more, from the start: it may have been cut together of two. */
static void judge(struct taking *t)
{
    struct err why = {0};
    int rc = taking_finish(t, &why);
    bool right;

    if (rc != 0) {
        give_up_run(t, rc, &why);
        return;
    }
    right = (!t->entry.digest_known || digest_eq(&t->seen.digest, &t->entry.digest)) &&
            (!t->got.digest_known || digest_eq(&t->seen.digest, &t->got.digest));
    if (right) {
        taking_seal(t, &t->got);
    } else if (!t->again) {
        t->again = true;
        taking_begin_anew(t);
        taking_timer(t, 0);
    } else {
        taking_begin_anew(t);
        err_set(&why, E_CORRUPT, "its SHA-256 is not the announced one");
        give_up_run(t, E_CORRUPT, &why);
    }
}

void takes_came(struct taking *t)
{
    struct takes *x = t->all;

    if (x->rc != 0) {
        taking_free(t);
        takes_look_over(x);
    } else {
        judge(t);
    }
}

static void finish(struct taking *t, const struct take_got *got)
{
    struct err why = {0};
    int rc;

    t->got = *got;
    if (got->validator.n != 0 && got->validator.p != t->validator.p) { /* it stays that long */
        buf_clear(&t->validator);
        buf_adds(&t->validator, got->validator);
        t->got.validator = buf_slice(&t->validator);
    }
    rc = taking_came(t, &why);
    if (rc != 0) {
        give_up_run(t, rc, &why);
    }
}

static void on_done(void *arg, int rc, const struct err *why, const struct take_got *got)
{
    struct taking *t = arg;
    struct takes *x = t->all;

    t->take = NULL;
    evtimer_del(t->timer); /* of a pause */
    if (x->rc != 0) {
        taking_free(t);
        takes_look_over(x);
        return;
    }
    switch (sync_class_of(rc, true)) {
    case SYNC_OK:
        lock_take(&x->run->lock);
        x->run->look.wire_bytes += got->beside_bytes;
        lock_drop(&x->run->lock);
        if (got->absent) {
            x->run->plan.fate[t->index] = FATE_DROP;
            x->done++;
            taking_free(t);
            takes_look_over(x);
        } else if (got->unchanged) {
            CHECK(t->was_seen);
            t->unchanged = true;
            t->seen = t->old_seen;
            taking_seal(t, got);
        } else {
            finish(t, got);
        }
        return;
    case SYNC_ENTRY:
        if (rc == E_CHANGED && !t->again) { /* became another while it came */
            t->again = true;
            taking_begin_anew(t);
            taking_timer(t, 0);
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

static const struct take_events events = {.on_begin = taking_on_begin,
                                          .on_body = taking_on_body,
                                          .on_packed = taking_on_packed,
                                          .on_copy = taking_on_copy,
                                          .on_done = on_done};

void takes_ask(struct taking *t)
{
    struct run *r = t->all->run;
    struct take_want w = {.entry = &t->entry,
                          .basis = t->basis,
                          .basis_begins = t->basis_begins,
                          .have_bytes = taking_at(t),
                          .validator = buf_slice(&t->validator),
                          .again = t->again};

    if (taking_at(t) == 0 && t->was_seen && t->old_seen.validator.n != 0) {
        w.validator = t->old_seen.validator;
        w.unchanged_is_fine = true;
    }
    t->take = r->ops->take(r->engine, &w, &events, t);
}

/* The path's published bytes: a basis, something to keep, maybe unchanged. */
static void look_back(struct taking *t)
{
    struct run *r = t->all->run;
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

static struct slice keep(struct buf *b, struct slice s)
{
    buf_adds(b, s);
    return buf_slice(b);
}

/* One whose bytes have come under another name meanwhile: only its row is new. */
static bool take_twin(struct taking *t)
{
    struct take_got got = {.unchanged = true, .mtime_ns = SYNC_TIME_UNKNOWN};
    struct blob *b = NULL;

    if (blob_open(t->all->run->world.store, &t->entry.digest, &b, NULL) != 0) {
        return false;
    }
    t->unchanged = true;
    t->seen.digest = t->entry.digest;
    t->seen.size_bytes = blob_size_bytes(b);
    taking_seal(t, &got);
    blob_release(&b);
    return true;
}

static void start_one(struct takes *x, uint32_t index, bool twin, bool small_one)
{
    struct run *r = x->run;
    struct taking *t = NEW(struct taking);

    t->all = x;
    t->index = index;
    t->small_one = small_one;
    t->path = BUF_INIT(PATH_ROOM);
    t->validator = BUF_INIT(TAKING_VALIDATOR_MAX);
    t->listed_validator = BUF_INIT(TAKING_VALIDATOR_MAX);
    t->old_row = BUF_INIT(2 * TAKING_VALIDATOR_MAX);
    t->timer = evtimer_new(r->base, on_timer, t);
    CHECK(t->timer != NULL);
    roster_get(r->roster, index, &t->entry);
    t->entry.path = keep(&t->path, t->entry.path);
    t->entry.validator = keep(&t->listed_validator, t->entry.validator);
    t->entry.target = t->entry.leader = SLICE_NONE;
    list_push_back(&x->active, &t->node);
    x->count++;
    x->smalls += small_one;
    if (twin && take_twin(t)) {
        return;
    }
    look_back(t);
    if (!taking_resume(t)) {
        takes_ask(t);
    }
}

/* How far the list may be gone through now: a rank begins when nothing of the one before is under way. */
static size_t open_end(const struct takes *x)
{
    const struct plan_of_run *p = &x->run->plan;
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
static bool has_room(const struct takes *x, uint32_t index, bool *small_one)
{
    const struct engine_ops *ops = x->run->ops;
    uint64_t upto_bytes = 0;
    unsigned smalls = ops->smalls != NULL ? ops->smalls(x->run->engine, &upto_bytes) : 0;
    struct sync_entry en;

    *small_one = false;
    if (smalls != 0) {
        roster_get(x->run->roster, index, &en);
        *small_one = en.size_bytes <= upto_bytes;
    }
    return *small_one ? x->smalls < smalls : x->count - x->smalls < ops->window(x->run->engine);
}

static void start_more(struct takes *x)
{
    const struct plan_of_run *p = &x->run->plan;
    size_t twins = p->todo_count - p->twins;
    bool small_one;

    while (x->rc == 0 && x->next < open_end(x) && has_room(x, p->todo[x->next], &small_one)) {
        size_t i = x->next++;
        start_one(x, p->todo[i], i >= twins, small_one);
    }
}

/* What is under way goes; what is being sealed is waited for, its rows are good. */
static void stop_all(struct takes *x)
{
    x->closing = true;
    LIST_EACH (&x->active, it) {
        taking_free(LIST_ITEM(it, struct taking, node));
    }
    while (x->count > 0 || x->jobs > 0) {
        (void)!event_base_loop(x->run->base, EVLOOP_ONCE);
    }
}

/* An upstream that lost most of what it lists is not mirrored. */
static int judge_vanished(const struct takes *x, struct err *e)
{
    size_t all = x->run->plan.todo_count;

    if (x->vanished >= FEW_VANISH && x->vanished > all / 2) {
        return err_set(e, E_AGAIN, "%" PRIu64 " of %zu listed files could not be had", x->vanished,
                       all);
    }
    return 0;
}

void run_takes_broken(struct run *r, int rc, const struct err *why)
{
    if (r->takes != NULL) {
        takes_fail(r->takes, rc, why);
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

int run_take_all(struct run *r, struct err *e)
{
    struct takes x = {.run = r};
    int rc;

    list_init(&x.active);
    list_init(&x.whole);
    r->takes = &x;
    start_more(&x);
    x.over = x.count == 0;
    rc = run_turn(r, &x.over, e);
    stop_all(&x);
    r->takes = NULL;
    if (rc == 0 && x.rc == 0) { /* before that, another attempt may want what was left */
        run_drop_left(r->world.store, slice_str(r->job->repo));
    }
    if (rc == 0 && x.rc != 0) {
        rc = x.rc;
        *e = x.why;
    }
    return rc == 0 ? judge_vanished(&x, e) : rc;
}
