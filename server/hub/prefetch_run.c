/* prefetch_run.c - one attempt at a prefetch: the revision's listing, then its files, several at a
 * time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/codec/glob.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "server/hub/kept.h"
#include "server/hub/pinning.h"
#include "server/hub/prefetch_priv.h"
#include "server/hub/inventory.h"
#include "server/repo/hf/key.h"

enum {
    HANDS = 4, /* files at once; a large one takes several connections */
    LOOK_MS = 200,
    SETTLE_MS = 20,
    SETTLE_LOOKS = 1500,
    WORDS_LOOKS = 500, /* a Hub's words that do not stay are asked for again when they are needed */
};

/* --- which files ------------------------------------------------------------------------------ */

static bool path_fits_patterns(const struct slice *pattern, size_t count, struct slice path)
{
    for (size_t i = 0; i < count; i++) {
        char glob[PREFETCH_PATTERN_BYTES + 1];
        size_t n = min_u64(pattern[i].n, PREFETCH_PATTERN_BYTES);
        memcpy(glob, pattern[i].p, n);
        if (n != 0 && glob[n - 1] == '/') { /* a folder: all below it */
            glob[n++] = '*';
        }
        if (glob_match_how(slice_of(glob, n), path, GLOB_FLAT, NULL)) {
            return true;
        }
    }
    return false;
}

bool prefetch_chooses(const struct prefetch_params *w, struct slice path)
{
    return (w->includes == 0 || path_fits_patterns(w->include, w->includes, path)) &&
           !path_fits_patterns(w->exclude, w->excludes, path);
}

static bool chosen(const void *arg, struct slice path)
{
    return prefetch_chooses(arg, path);
}

/* --- one attempt ------------------------------------------------------------------------------ */

struct attempt;

/* Fetches one file as a client's GET would: other requests for it meanwhile join the same fetch. */
struct hand {
    struct attempt *of;
    struct loop *loop; /* that it is followed on; NULL: nothing is under way */
    struct arena arena;
    char *path;
    uint64_t size_bytes;
    struct lookup lookup;
    struct message begins;
    _Atomic uint64_t done_bytes; /* in order, from the first on */
    bool over;                   /* it came whole, or never will; under of->lock */
    /* The loop's, until it is over: */
    struct cache_ask *ask;
    bool answered; /* inside cache_lookup() */
    struct answer *answer;
    struct body *body;
    int rc;
    struct err why;
};

struct attempt {
    struct prefetch *p;
    struct plan_runner plan_runner;
    struct plan_runner_commit commit;
    struct slice prefix; /* of resolve paths */
    uint32_t *pick;      /* of the manifest's entries */
    size_t picks, next;
    struct hand hand[HANDS];
    unsigned busy;
    struct lock lock;
    struct cond news;            /* a hand is over */
    uint64_t files, bytes, here; /* done */
    uint64_t failed;             /* files that no new try would bring */
    int rc; /* the first trouble; stops what is not begun, but for failed files */
    struct err why;
    struct err failed_why;
};

/* --- a file, on its loop ---------------------------------------------------------------------- */

static void over(struct hand *h, int rc)
{
    h->rc = rc;
    lock_take(&h->of->lock);
    h->over = true;
    cond_signal(&h->of->news);
    lock_drop(&h->of->lock);
}

/* As far as it has come; the last 64 KiB show when all of it was found right. */
static void on_prefetch_progress(void *arg)
{
    struct hand *h = arg;
    struct body *b = h->body;
    int rc = body_follow(b);

    atomic_store_explicit(&h->done_bytes, rc > 0 ? b->end : b->off, memory_order_relaxed);
    if (rc == 0) {
        return;
    }
    b->wake = NULL;
    over(h, rc > 0 ? 0 : err_set(&h->why, rc, "the body ended early or does not match its digest"));
}

static void on_prefetch_run_answer(void *arg, struct answer *a)
{
    struct hand *h = arg;

    h->ask = NULL;
    h->answered = true;
    h->answer = a;
    if (a->status != 200) {
        int rc = answer_rc(a);
        if (a->why.code != 0) {
            h->why = a->why;
        } else {
            err_set(&h->why, rc, "the origin answered %d", a->status);
        }
        over(h, rc);
        return;
    }
    h->body = answer_body(h->of->plan_runner.hub->cache, a, h->loop, 0, a->total_bytes);
    h->body->wake = on_prefetch_progress;
    h->body->wake_arg = h;
    on_prefetch_progress(h);
}

static void on_hand_begin(struct message *l)
{
    struct hand *h = CONTAINER_OF(l, struct hand, begins);
    struct cache_ask *ask =
        cache_lookup(h->of->plan_runner.hub->cache, h->loop, &h->lookup, on_prefetch_run_answer, h);

    if (!h->answered) {
        h->ask = ask;
    }
}

static void release_prefetch(struct loop *l, void *arg)
{
    struct hand *h = arg;

    (void)l;
    cache_cancel(&h->ask);
    body_close(&h->body);
    answer_release(&h->answer);
}

/* --- file by file ----------------------------------------------------------------------------- */

static void hand_start(struct attempt *x, struct hand *h)
{
    h->of = x;
    h->loop = loops_at(x->plan_runner.hub->loops,
                       (unsigned)(x->next % loops_count(x->plan_runner.hub->loops)));
    h->done_bytes = 0;
    h->over = h->answered = false;
    h->why = (struct err){0};
    h->lookup.hint_first = 0;
    h->lookup.hint_end = LENGTH_UNKNOWN;
    h->lookup.hint_suffix = 0;
    h->begins.deliver = on_hand_begin;
    message_queue_post(h->loop->mail, &h->begins);
    x->busy++;
}

/* Also before it is over: it is given up. */
static void hand_end(struct attempt *x, struct hand *h)
{
    loop_call(h->loop, release_prefetch, h); /* messages keep their order: it has begun by then */
    h->loop = NULL;
    arena_reset(&h->arena);
    x->busy--;
}

static bool hand_is_over(struct hand *h)
{
    bool yes;

    lock_take(&h->of->lock);
    yes = h->over;
    lock_drop(&h->of->lock);
    return yes;
}

/* Until one more is over, or a while. */
static void wait_for_hands(struct attempt *x)
{
    bool any = false;

    lock_take(&x->lock);
    for (size_t k = 0; k < HANDS; k++) {
        any = any || (x->hand[k].loop != NULL && x->hand[k].over);
    }
    if (!any) {
        (void)cond_wait_ms(&x->news, &x->lock, LOOK_MS);
    }
    lock_drop(&x->lock);
}

static void report_prefetch_state(struct attempt *x, enum prefetch_state state)
{
    struct prefetch *p = x->p;
    uint64_t bytes = x->bytes;

    for (size_t i = 0; i < HANDS; i++) {
        if (x->hand[i].loop != NULL) {
            bytes += atomic_load_explicit(&x->hand[i].done_bytes, memory_order_relaxed);
        }
    }
    lock_take(&p->all->lock);
    if (x->files + bytes > p->best_done) {
        p->best_done = x->files + bytes;
        p->moved = true;
        p->moved_unix_s = clock_unix_s();
    }
    p->view.state = state;
    p->view.files_done = x->files;
    p->view.files_failed = x->failed;
    p->view.bytes_done = bytes;
    p->view.here_bytes = x->here;
    lock_drop(&p->all->lock);
}

/* What no repetition mends is this file's trouble alone. */
static bool is_final(int rc)
{
    return rc == E_NOTFOUND || rc == E_DENIED || rc == E_CORRUPT || rc == E_TOOBIG ||
           rc == E_REFUSED || rc == E_INVALID;
}

static void file_failed(struct attempt *x, const char *path, int rc, struct err *why)
{
    err_prefix(why, "%.80s", path);
    if (is_final(rc)) {
        if (x->failed++ == 0) {
            x->failed_why = *why;
        }
    } else if (x->rc == 0) {
        x->rc = rc;
        x->why = *why;
    }
}

static void start_prefetch_file(struct attempt *x, struct hand *h)
{
    struct manifest_entry f;
    struct err why = {0};
    int rc;

    manifest_at(&x->commit.files, x->pick[x->next++], &f);
    h->size_bytes = f.size_bytes;
    if (f.size_bytes == 0) { /* its listing says all of it (repo/hf/hf.c) */
        x->files++;
        return;
    }
    h->path = arena_cstr(&h->arena, f.path);
    rc = plan_runner_lookup(&x->plan_runner, x->prefix, x->p->lookup.id, x->commit.commit, f.path,
                            &h->arena, &h->lookup, &why);
    if (rc == 0) {
        hand_start(x, h);
        return;
    }
    if (rc == E_DENIED) { /* a right to one is a right to all */
        x->rc = rc;
        x->why = why;
    } else {
        file_failed(x, h->path, rc, &why);
    }
    arena_reset(&h->arena);
}

static void finish_prefetch_file(struct attempt *x, struct hand *h)
{
    if (h->rc == 0) {
        x->files++;
        x->bytes += h->size_bytes;
        x->here += h->answer->state == CACHE_HIT ? h->size_bytes : 0;
    } else {
        file_failed(x, h->path, h->rc, &h->why);
    }
    hand_end(x, h);
}

static bool may_start(const struct attempt *x)
{
    return x->rc == 0 && x->next < x->picks && !x->p->stop;
}

static void fetch_all(struct attempt *x)
{
    while (may_start(x) || x->busy != 0) {
        for (size_t k = 0; k < HANDS; k++) {
            struct hand *h = &x->hand[k];
            while (h->loop == NULL && may_start(x)) {
                start_prefetch_file(x, h);
            }
            if (h->loop != NULL && hand_is_over(h)) {
                finish_prefetch_file(x, h);
            } else if (h->loop != NULL && x->p->stop) {
                hand_end(x, h);
            }
        }
        report_prefetch_state(x, PREFETCH_FETCHING);
        if (x->busy != 0) {
            wait_for_hands(x);
        }
    }
    for (size_t k = 0; k < HANDS; k++) {
        arena_fini(&x->hand[k].arena);
    }
}

/* --- before and after ------------------------------------------------------------------------- */

/* How many files it has in all. */
static size_t choose_prefetch_files(struct attempt *x)
{
    struct prefetch *p = x->p;
    uint64_t bytes = 0;
    size_t files = 0;

    x->pick = mem_array(x->commit.files.count + 1, sizeof x->pick[0]);
    for (size_t i = 0; i < x->commit.files.count; i++) {
        struct manifest_entry f;
        manifest_at(&x->commit.files, i, &f);
        files += !f.folder;
        if (!f.folder && prefetch_chooses(&p->lookup, f.path)) {
            x->pick[x->picks++] = (uint32_t)i;
            bytes += f.size_bytes;
        }
    }
    lock_take(&p->all->lock);
    p->view.files = x->picks;
    p->view.bytes = bytes;
    snprintf(p->view.commit, sizeof p->view.commit, SLICE_FMT, SLICE_ARG(x->commit.commit));
    lock_drop(&p->all->lock);
    return files;
}

/* Beyond the high mark its own files would be evicted for each other. */
static int check_room(struct attempt *x, struct err *e)
{
    char wanted[UNITS_TEXT], most[UNITS_TEXT];
    struct store_space sp;

    store_space(x->plan_runner.hub->store, &sp);
    if (x->p->view.bytes <= sp.high_bytes) {
        return 0;
    }
    size_format(x->p->view.bytes, wanted);
    size_format(sp.high_bytes, most);
    return err_set(e, E_NOSPACE,
                   "the files have %s, and the mirror may keep %s; raise storage { quota }, or "
                   "choose files with --include",
                   wanted, most);
}

/* A file that came is sealed and its row committed a moment after its last byte. */
static bool is_kept(struct attempt *x, const struct manifest_entry *f)
{
    struct arena a = {0};
    bool kept = kept_is_here(x->plan_runner.hub->store, slice_str(x->plan_runner.r->name),
                             key_file(x->p->lookup.type, x->commit.id, f, &a));

    arena_fini(&a);
    return kept;
}

/* So are its listing and what the Hub said of the revision, which small files may overtake: who
 * exports it next reads them. */
static bool words_are_kept(const struct attempt *x)
{
    const struct inventory_view v = {x->plan_runner.hub, x->plan_runner.r, true};
    struct inventory_revision about;
    struct arena a = {0};
    int rc = inventory_files(&v, x->p->lookup.type, x->p->lookup.id, x->p->lookup.rev, &a, &about,
                             NULL, NULL, NULL);

    arena_fini(&a);
    return rc == 0;
}

static int wait_for_prefetched_files(struct attempt *x, struct err *e)
{
    unsigned looks = 0;
    size_t gone = 0;

    for (unsigned i = 0; i < WORDS_LOOKS && !x->p->stop && !words_are_kept(x); i++) {
        usleep(SETTLE_MS * 1000);
    }
    for (size_t i = 0; i < x->picks && !x->p->stop; i++) {
        struct manifest_entry f;
        manifest_at(&x->commit.files, x->pick[i], &f);
        while (f.size_bytes != 0 && !is_kept(x, &f)) {
            if (x->p->stop || looks++ >= SETTLE_LOOKS) {
                gone++;
                break;
            }
            usleep(SETTLE_MS * 1000);
        }
    }
    return gone == 0 ? 0
                     : err_set(e, E_NOSPACE,
                               "%zu %s were evicted again, because the store is too small for all "
                               "requests; raise storage { quota }, or use --pin",
                               gone, plural(gone, "file", "files"));
}

/* Is there a right to its files? Listings of gated repositories are public. */
static int try_right(struct attempt *x, struct err *e)
{
    struct manifest_entry f;
    struct arena a = {0};
    struct lookup w;
    int rc = 0;

    if (x->picks != 0) {
        manifest_at(&x->commit.files, x->pick[0], &f);
        rc = plan_runner_lookup(&x->plan_runner, x->prefix, x->p->lookup.id, x->commit.commit,
                                f.path, &a, &w, e);
    }
    arena_fini(&a);
    return rc;
}

static int list_prefetch_files(struct attempt *x, struct err *e)
{
    struct prefetch *p = x->p;
    struct slice rev = p->view.commit[0] != '\0' ? slice_str(p->view.commit) : p->lookup.rev;
    uint64_t pinned;
    size_t files;
    int rc;

    report_prefetch_state(x, PREFETCH_ASKING);
    rc = plan_runner_list(&x->plan_runner, p->lookup.type, p->lookup.id, rev, &x->commit, e);
    if (rc != 0) {
        return rc;
    }
    files = choose_prefetch_files(x);
    if (x->picks == 0 && files != 0) {
        return err_set(e, E_NOTFOUND, "none of the %zu %s matches --include and --exclude", files,
                       plural(files, "file", "files"));
    }
    rc = check_room(x, e);
    rc = rc != 0 ? rc : try_right(x, e);
    if (rc == 0 && p->lookup.pin) {
        rc = pinning_set(&x->plan_runner, p->lookup.type, p->lookup.id, p->lookup.rev, &x->commit,
                         chosen, &p->lookup, &pinned, e);
    }
    return rc != 0 ? rc : prefetch_save(p, e); /* its commit is known */
}

static int prefetch_verdict(struct attempt *x, struct err *e)
{
    if (x->p->stop) {
        return err_set(e, E_CANCELLED, "the prefetch was canceled");
    }
    if (x->rc != 0) {
        *e = x->why;
        return x->rc;
    }
    if (x->failed != 0) {
        return err_set(e, x->failed_why.code, "%" PRIu64 " of %zu %s could not be fetched: %.160s",
                       x->failed, x->picks, plural(x->picks, "file", "files"), x->failed_why.text);
    }
    return wait_for_prefetched_files(x, e);
}

static int run_in(struct prefetch *p, struct repo *r, struct err *e)
{
    struct attempt x = {.p = p};
    int rc;

    lock_init(&x.lock, LOCK_LEAF);
    cond_init(&x.news);
    plan_runner_init(&x.plan_runner, p->all->hub, r, p->lookup.authorization, &p->stop);
    x.prefix = slice_eqs(p->lookup.type, "models")
                   ? SLICE("")
                   : arena_fmt(&x.plan_runner.arena, SLICE_FMT "/", SLICE_ARG(p->lookup.type));
    rc = list_prefetch_files(&x, e);
    if (rc == 0) {
        report_prefetch_state(&x, PREFETCH_FETCHING);
        fetch_all(&x);
        rc = prefetch_verdict(&x, e);
        report_prefetch_state(&x, PREFETCH_FETCHING);
    }
    free(x.pick);
    plan_runner_fini(&x.plan_runner);
    cond_fini(&x.news);
    lock_fini(&x.lock);
    return rc;
}

int prefetch_run(struct prefetch *p, struct err *e)
{
    struct repo_set *rs = repo_set_hold(p->all->hub->repos);
    struct repo *r = repo_set_find(rs, p->lookup.repo);
    enum inventory_kind k;
    int rc;

    if (r == NULL || !inventory_kind_of(r, &k) || k != INVENTORY_PULLED) {
        rc = err_set(e, E_NOTFOUND, "repo " SLICE_FMT " is gone, or no longer a cache of a Hub",
                     SLICE_ARG(p->lookup.repo));
    } else {
        rc = run_in(p, r, e);
    }
    repo_set_release(&rs);
    return rc;
}
