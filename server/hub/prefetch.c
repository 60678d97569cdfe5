#include "server/hub/prefetch.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/endian.h"
#include "common/base/log.h"
#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "common/os/clock.h"
#include "server/hub/prefetch_priv.h"
#include "server/store/store.h"

enum {
    WORKERS = 3,
    KEPT = 50, /* jobs that are over */
    RETRY_LEAST_MS = 2000,
    RETRY_MOST_MS = 300000,
    PATIENCE_S = 86400, /* without any progress */
    CORRUPT_TRIES = 3,
    IDLE_MS = 60000,
};
enum { ROW_BYTES = 256 << 10, KEY_BYTES = 8 };

static const char *const states[] = {"waiting", "asking", "fetching", "done", "failed", "stopped"};

const char *prefetch_state_name(enum prefetch_state s)
{
    return states[s];
}

static void copy_lookup(struct prefetch *p, const struct prefetch_params *w)
{
    struct prefetch_params *to = &p->lookup;
    struct arena *a = &p->arena;

    CHECK(w->includes <= PREFETCH_PATTERNS && w->excludes <= PREFETCH_PATTERNS);
    *to = *w;
    to->repo = arena_copy(a, w->repo);
    to->type = arena_copy(a, w->type);
    to->id = arena_copy(a, w->id);
    to->rev = arena_copy(a, w->rev);
    for (size_t i = 0; i < w->includes; i++) {
        p->include[i] = arena_copy(a, w->include[i]);
    }
    for (size_t i = 0; i < w->excludes; i++) {
        p->exclude[i] = arena_copy(a, w->exclude[i]);
    }
    to->include = p->include;
    to->exclude = p->exclude;
    to->authorization = arena_copy_opt(a, w->authorization);
    p->had_token = w->authorization.p != NULL;
    snprintf(p->view.repo, sizeof p->view.repo, SLICE_FMT, SLICE_ARG(to->repo));
    snprintf(p->view.type, sizeof p->view.type, SLICE_FMT, SLICE_ARG(to->type));
    snprintf(p->view.name, sizeof p->view.name, SLICE_FMT, SLICE_ARG(to->id));
    snprintf(p->view.rev, sizeof p->view.rev, SLICE_FMT, SLICE_ARG(to->rev));
    p->view.pin = w->pin;
}

static void job_free(struct prefetch **pp)
{
    struct prefetch *p = *pp;

    *pp = NULL;
    if (p == NULL) {
        return;
    }
    if (p->lookup.authorization.p != NULL) {
        explicit_bzero((void *)(uintptr_t)p->lookup.authorization.p, p->lookup.authorization.n);
    }
    arena_fini(&p->arena);
    free(p);
}

/* --- its row, JSON by number: a token is never in one ----------------------------------------- */

static void write_patterns(struct buf *out, const char *key, const struct slice *at, size_t count)
{
    jwrite_open(out, key, '[');
    for (size_t i = 0; i < count; i++) {
        jwrite_text(out, NULL, at[i]);
    }
    jwrite_close(out, ']');
}

static void write_row(struct prefetch *p, struct buf *out)
{
    const struct prefetch_params *w = &p->lookup;
    struct prefetch_view v;

    lock_take(&p->all->lock);
    v = p->view;
    lock_drop(&p->all->lock);
    jwrite_open(out, NULL, '{');
    jwrite_text(out, "repo", w->repo);
    jwrite_text(out, "type", w->type);
    jwrite_text(out, "id", w->id);
    jwrite_text(out, "rev", w->rev);
    write_patterns(out, "include", w->include, w->includes);
    write_patterns(out, "exclude", w->exclude, w->excludes);
    jwrite_bool(out, "pin", w->pin);
    jwrite_bool(out, "token", p->had_token);
    jwrite_str(out, "commit", v.commit);
    jwrite_str(out, "state", states[v.state]);
    jwrite_u64(out, "code", (uint64_t)-v.code);
    jwrite_str(out, "why", v.why);
    jwrite_u64(out, "files", v.files);
    jwrite_u64(out, "files_done", v.files_done);
    jwrite_u64(out, "files_failed", v.files_failed);
    jwrite_u64(out, "bytes", v.bytes);
    jwrite_u64(out, "bytes_done", v.bytes_done);
    jwrite_u64(out, "here_bytes", v.here_bytes);
    jwrite_u64(out, "began_unix_s", v.began_unix_s);
    jwrite_u64(out, "ended_unix_s", v.ended_unix_s);
    jwrite_close(out, '}');
}

int prefetch_save(struct prefetch *p, struct err *e)
{
    struct buf row = BUF_INIT(ROW_BYTES);
    char key[KEY_BYTES];
    struct batch *b;
    int rc;

    write_row(p, &row);
    if (row.rc != 0) {
        rc = err_set(e, E_TOOBIG, "the patterns of --include and --exclude are too long");
    } else {
        be_put(key, KEY_BYTES, p->view.id);
        b = batch_new();
        batch_put(b, TABLE_PREFETCH, slice_of(key, KEY_BYTES), buf_slice(&row));
        rc = store_commit(p->all->hub->store, &b, COMMIT_SYNC, e);
    }
    buf_free(&row);
    return rc;
}

static int forget_row(struct store *s, uint64_t id, struct err *e)
{
    struct batch *b = batch_new();
    char key[KEY_BYTES];

    be_put(key, KEY_BYTES, id);
    batch_del(b, TABLE_PREFETCH, slice_of(key, KEY_BYTES));
    return store_commit(s, &b, COMMIT_LAZY, e);
}

/* --- ... read again --------------------------------------------------------------------------- */

static uint64_t prefetch_json_number(const json_t *o, const char *key)
{
    uint64_t n;

    return jread_u64(o, key, &n) ? n : 0;
}

static size_t patterns(const json_t *o, const char *key, struct slice out[PREFETCH_PATTERNS])
{
    const json_t *list = json_object_get(o, key), *one;
    size_t n = 0, i;

    json_array_foreach(list, i, one)
    {
        if (json_is_string(one) && n < PREFETCH_PATTERNS) {
            out[n++] = jread_slice(one);
        }
    }
    return n;
}

static void read_view(const json_t *o, struct prefetch_view *v)
{
    for (size_t i = 0; i < ARRAY_LEN(states); i++) {
        if (slice_eqs(jread_text(o, "state"), states[i])) {
            v->state = (enum prefetch_state)i;
        }
    }
    snprintf(v->commit, sizeof v->commit, SLICE_FMT, SLICE_ARG(jread_text(o, "commit")));
    snprintf(v->why, sizeof v->why, SLICE_FMT, SLICE_ARG(jread_text(o, "why")));
    v->code = -(int)prefetch_json_number(o, "code");
    v->files = prefetch_json_number(o, "files");
    v->files_done = prefetch_json_number(o, "files_done");
    v->files_failed = prefetch_json_number(o, "files_failed");
    v->bytes = prefetch_json_number(o, "bytes");
    v->bytes_done = prefetch_json_number(o, "bytes_done");
    v->here_bytes = prefetch_json_number(o, "here_bytes");
    v->began_unix_s = prefetch_json_number(o, "began_unix_s");
    v->ended_unix_s = prefetch_json_number(o, "ended_unix_s");
}

static struct prefetch *read_row(const json_t *o)
{
    struct slice include[PREFETCH_PATTERNS], exclude[PREFETCH_PATTERNS];
    struct prefetch *p = NEW(struct prefetch);
    struct prefetch_params w = {.repo = jread_text(o, "repo"),
                                .type = jread_text(o, "type"),
                                .id = jread_text(o, "id"),
                                .rev = jread_text(o, "rev"),
                                .include = include,
                                .exclude = exclude,
                                .pin = json_is_true(json_object_get(o, "pin"))};

    w.includes = patterns(o, "include", include);
    w.excludes = patterns(o, "exclude", exclude);
    copy_lookup(p, &w);
    p->had_token = json_is_true(json_object_get(o, "token"));
    read_view(o, &p->view);
    return p;
}

struct loading {
    void (*each)(void *arg, struct prefetch *p);
    void *arg;
};

static int on_prefetch_row(void *arg, struct slice key, struct slice value)
{
    struct loading *x = arg;
    json_t *o = json_loadb(value.p != NULL ? value.p : "", value.n, JSON_ALLOW_NUL, NULL);

    if (json_is_object(o) && key.n == KEY_BYTES && jread_text(o, "id").n != 0) {
        struct prefetch *p = read_row(o);
        p->view.id = be_get(key.p, KEY_BYTES);
        x->each(x->arg, p);
    } else {
        log_warn("prefetch.row", "why=\"the row of a prefetch cannot be parsed\"");
    }
    json_decref(o);
    return 0;
}

/* Every row, in order; takes them as jobs that nobody lists yet. */
static int load_rows(struct store *s, void (*each)(void *arg, struct prefetch *p), void *arg,
                     struct err *e)
{
    struct loading x = {each, arg};

    return store_scan(s, TABLE_PREFETCH, SLICE_NONE, SLICE_NONE, on_prefetch_row, &x, e);
}

static bool prefetch_has_ended(const struct prefetch *p)
{
    return prefetch_is_over(&p->view);
}

/* --- workers ---------------------------------------------------------------------------------- */

/* Under the lock: what may be worked at now, or when there is something. */
static struct prefetch *next_due(struct prefetches *all, uint64_t now_ms, uint64_t *wait_ms)
{
    *wait_ms = IDLE_MS;
    LIST_EACH (&all->jobs, it) {
        struct prefetch *p = LIST_ITEM(it, struct prefetch, node);
        if (prefetch_has_ended(p) || p->running) {
            continue;
        }
        if (p->next_ms <= now_ms) {
            return p;
        }
        *wait_ms = min_u64(*wait_ms, p->next_ms - now_ms);
    }
    return NULL;
}

/* Trouble that passes by itself: the Hub's, the network's. */
static bool passes(const struct prefetch *p, int rc)
{
    switch (rc) {
    case E_NETWORK:
    case E_TIMEOUT:
    case E_BUSY:
    case E_AGAIN:
    case E_CHANGED:
    case E_PROTOCOL:
    case E_IO:
    case E_CANCELLED:
        return clock_unix_s() - p->moved_unix_s < PATIENCE_S;
    case E_CORRUPT:
        return p->view.tries < CORRUPT_TRIES;
    default:
        return false;
    }
}

static uint64_t pause_ms(uint64_t tries)
{
    return tries > 8 ? (uint64_t)RETRY_MOST_MS
                     : min_u64((uint64_t)RETRY_LEAST_MS << tries, RETRY_MOST_MS);
}

/* Under the lock. */
static void end_as(struct prefetch *p, enum prefetch_state state, int rc, const struct err *why)
{
    p->view.state = state;
    p->view.code = rc;
    p->view.why[0] = '\0';
    if (rc != 0) {
        snprintf(p->view.why, sizeof p->view.why, "%s", why->text);
    }
    p->view.next_unix_s = 0;
    p->view.ended_unix_s = clock_unix_s();
}

/* Under the lock. Whatever is not over goes on: after a pause, or at the next start. */
static void record_prefetch_end(struct prefetch *p, int rc, const struct err *why)
{
    if (rc == 0) {
        end_as(p, PREFETCH_DONE, 0, NULL);
    } else if (p->reported_to_stop) {
        end_as(p, PREFETCH_STOPPED, E_CANCELLED,
               &(struct err){.text = "the prefetch was canceled"});
    } else if (p->all->closing) {
        p->view.state = PREFETCH_WAITING;
    } else if (passes(p, rc)) {
        uint64_t rest_ms;
        p->view.state = PREFETCH_WAITING;
        p->view.code = rc;
        snprintf(p->view.why, sizeof p->view.why, "%s", why->text);
        p->view.tries = p->moved && rc != E_CORRUPT ? 1 : p->view.tries + 1;
        rest_ms = pause_ms(p->view.tries - 1);
        p->next_ms = clock_now_ms() + rest_ms;
        p->view.next_unix_s = clock_unix_s() + rest_ms / 1000;
        p->view.gives_up_unix_s = p->moved_unix_s + PATIENCE_S;
    } else {
        end_as(p, PREFETCH_FAILED, rc, why);
    }
}

static void say_ended(const struct prefetch_view *v)
{
    log_info("prefetch.ended",
             "repo=%s id=%s/%s rev=%s state=%s files=%" PRIu64 "/%" PRIu64 " bytes=%" PRIu64
             " why=\"%s\"",
             v->repo, v->type, v->name, v->rev, prefetch_state_name(v->state), v->files_done,
             v->files, v->bytes_done, v->why);
}

static void work_at(struct prefetch *p)
{
    struct prefetches *all = p->all;
    struct prefetch_view v;
    struct err why = {0};
    int rc = prefetch_run(p, &why);

    lock_take(&all->lock);
    record_prefetch_end(p, rc, &why);
    v = p->view;
    lock_drop(&all->lock);
    if (prefetch_is_over(&v)) {
        say_ended(&v);
    } else if (v.code != 0) {
        log_warn("prefetch.waits", "repo=%s id=%s/%s why=\"%s\"", v.repo, v.type, v.name, v.why);
    }
    if (prefetch_save(p, &why) != 0) {
        log_warn("prefetch.not_noted", "why=\"%s\"", why.text);
    }
    lock_take(&all->lock);
    p->running = false; /* from here on somebody else may have it */
    lock_drop(&all->lock);
}

static void *worker(void *arg)
{
    struct prefetches *all = arg;
    uint64_t wait_ms;

    lock_take(&all->lock);
    while (!all->closing) {
        struct prefetch *p = next_due(all, clock_now_ms(), &wait_ms);
        if (p == NULL) {
            (void)cond_wait_ms(&all->work, &all->lock, wait_ms);
            continue;
        }
        p->running = true;
        p->moved = false;
        p->view.code = 0;
        p->view.why[0] = '\0';
        p->view.next_unix_s = 0;
        lock_drop(&all->lock);
        work_at(p);
        lock_take(&all->lock);
    }
    lock_drop(&all->lock);
    return NULL;
}

/* --- open and close --------------------------------------------------------------------------- */

static void on_loaded(void *arg, struct prefetch *p)
{
    struct prefetches *all = arg;

    p->all = all;
    p->moved_unix_s = clock_unix_s();
    all->last_id = max_u64(all->last_id, p->view.id);
    list_push_back(&all->jobs, &p->node);
    if (prefetch_has_ended(p)) {
        return;
    }
    if (p->had_token) {
        end_as(p, PREFETCH_FAILED, E_DENIED,
               &(struct err){.text = "the mirror was restarted and does not store tokens of "
                                     "clients; start it again with --token-file"});
        return;
    }
    p->view.state = PREFETCH_WAITING;
    log_info("prefetch.resumed", "repo=%s id=%s/%s", p->view.repo, p->view.type, p->view.name);
}

struct prefetches *prefetches_open(const struct hub_deps *hub)
{
    struct prefetches *all = NEW(struct prefetches);
    struct err why;

    all->hub = hub;
    lock_init(&all->lock, LOCK_HUB);
    cond_init(&all->work);
    list_init(&all->jobs);
    if (load_rows(hub->store, on_loaded, all, &why) != 0) {
        log_error("prefetch.load", "why=\"%s\"", why.text);
    }
    all->worker = mem_array(WORKERS, sizeof all->worker[0]);
    for (size_t i = 0; i < WORKERS; i++) {
        all->worker[i] = thread_start("prefetch", worker, all);
    }
    return all;
}

void prefetches_close(struct prefetches **pp)
{
    struct prefetches *all = *pp;
    struct list *n;

    *pp = NULL;
    if (all == NULL) {
        return;
    }
    lock_take(&all->lock);
    all->closing = true;
    LIST_EACH (&all->jobs, it) {
        LIST_ITEM(it, struct prefetch, node)->stop = true;
    }
    cond_broadcast(&all->work);
    lock_drop(&all->lock);
    for (size_t i = 0; i < WORKERS; i++) {
        pthread_join(all->worker[i], NULL);
    }
    while ((n = list_pop_front(&all->jobs)) != NULL) {
        struct prefetch *p = LIST_ITEM(n, struct prefetch, node);
        job_free(&p);
    }
    free(all->worker);
    cond_fini(&all->work);
    lock_fini(&all->lock);
    free(all);
}

/* --- asking for it ---------------------------------------------------------------------------- */

static bool same_patterns(const struct slice *a, size_t n, const struct slice *b, size_t m)
{
    for (size_t i = 0; i < n && n == m; i++) {
        if (!slice_eq(a[i], b[i])) {
            return false;
        }
    }
    return n == m;
}

static bool is_same(const struct prefetch_params *a, const struct prefetch_params *b)
{
    return slice_eq(a->repo, b->repo) && slice_eq(a->type, b->type) && slice_eq(a->id, b->id) &&
           slice_eq(a->rev, b->rev) && a->pin == b->pin &&
           slice_eq(a->authorization, b->authorization) &&
           same_patterns(a->include, a->includes, b->include, b->includes) &&
           same_patterns(a->exclude, a->excludes, b->exclude, b->excludes);
}

/* Under the lock: the same job under way, made due immediately. */
static struct prefetch *find_same(struct prefetches *all, const struct prefetch_params *w)
{
    LIST_EACH (&all->jobs, it) {
        struct prefetch *p = LIST_ITEM(it, struct prefetch, node);
        if (!prefetch_has_ended(p) && !p->reported_to_stop && is_same(&p->lookup, w)) {
            p->next_ms = 0;
            return p;
        }
    }
    return NULL;
}

/* Under the lock: the oldest that is over, taken off the list, when there are too many. */
static struct prefetch *take_oldest(struct prefetches *all)
{
    struct prefetch *oldest = NULL;
    unsigned over = 0;

    LIST_EACH (&all->jobs, it) {
        struct prefetch *p = LIST_ITEM(it, struct prefetch, node);
        if (prefetch_has_ended(p) && !p->running) {
            oldest = oldest == NULL ? p : oldest;
            over++;
        }
    }
    if (over <= KEPT) {
        return NULL;
    }
    list_remove(&oldest->node);
    return oldest;
}

static void forget_oldest(struct prefetches *all)
{
    struct prefetch *p;
    struct err why;

    lock_take(&all->lock);
    p = take_oldest(all);
    lock_drop(&all->lock);
    if (p != NULL && forget_row(all->hub->store, p->view.id, &why) != 0) {
        log_warn("prefetch.forget", "why=\"%s\"", why.text);
    }
    job_free(&p);
}

int prefetch_add(struct prefetches *all, const struct prefetch_params *w, uint64_t *id,
                 bool *joined, struct err *e)
{
    struct prefetch *p, *same;
    int rc;

    p = NEW(struct prefetch);
    p->all = all;
    copy_lookup(p, w);
    p->view.began_unix_s = p->moved_unix_s = clock_unix_s();
    p->running = true; /* not before its row is written */
    lock_take(&all->lock);
    same = find_same(all, w);
    *joined = same != NULL;
    if (same == NULL) {
        p->view.id = ++all->last_id;
        list_push_back(&all->jobs, &p->node);
    }
    *id = same != NULL ? same->view.id : p->view.id;
    cond_broadcast(&all->work);
    lock_drop(&all->lock);
    if (same != NULL) {
        job_free(&p);
        return 0;
    }
    rc = prefetch_save(p, e);
    lock_take(&all->lock);
    p->running = false;
    if (rc != 0) {
        end_as(p, PREFETCH_FAILED, rc, e);
    }
    cond_broadcast(&all->work);
    lock_drop(&all->lock);
    forget_oldest(all);
    return rc;
}

/* Under the lock: true when nobody works at it, and its row is to be written. */
static bool stop_one(struct prefetch *p)
{
    p->reported_to_stop = true;
    p->stop = true;
    if (p->running) {
        return false;
    }
    end_as(p, PREFETCH_STOPPED, E_CANCELLED, &(struct err){.text = "the prefetch was canceled"});
    return true;
}

int prefetch_stop(struct prefetches *all, struct slice repo, struct slice type, struct slice name,
                  struct slice rev, unsigned *count, struct err *e)
{
    int rc = 0;

    *count = 0;
    for (;;) {
        struct prefetch *found = NULL;
        bool write = false;
        lock_take(&all->lock);
        LIST_EACH (&all->jobs, it) {
            struct prefetch *p = LIST_ITEM(it, struct prefetch, node);
            if (found == NULL && !prefetch_has_ended(p) && !p->reported_to_stop &&
                slice_eq(p->lookup.repo, repo) && slice_eq(p->lookup.type, type) &&
                slice_eq(p->lookup.id, name) && (rev.p == NULL || slice_eq(p->lookup.rev, rev))) {
                found = p;
                write = stop_one(p);
                p->running = p->running || write; /* ours until it is written */
            }
        }
        lock_drop(&all->lock);
        if (found == NULL) {
            break;
        }
        ++*count;
        if (write) {
            rc = prefetch_save(found, e);
            lock_take(&all->lock);
            found->running = false;
            lock_drop(&all->lock);
        }
    }
    return rc != 0       ? rc
           : *count == 0 ? err_set(e, E_NOTFOUND,
                                   "no prefetch of " SLICE_FMT
                                   " is running or waiting; see `mirrorctl hf prefetch`",
                                   SLICE_ARG(name))
                         : 0;
}

int prefetch_look(struct prefetches *all, uint64_t id, struct prefetch_view *out, struct err *e)
{
    int rc = E_NOTFOUND;

    lock_take(&all->lock);
    LIST_EACH (&all->jobs, it) {
        struct prefetch *p = LIST_ITEM(it, struct prefetch, node);
        if (p->view.id == id) {
            *out = p->view;
            rc = 0;
        }
    }
    lock_drop(&all->lock);
    return rc != 0 ? err_set(e, rc, "no such prefetch: %" PRIu64, id) : 0;
}

int prefetch_each(struct prefetches *all, int (*each)(void *arg, const struct prefetch_view *v),
                  void *arg)
{
    struct prefetch_view *v;
    size_t count = 0, i = 0;
    int rc = 0;

    lock_take(&all->lock);
    LIST_EACH (&all->jobs, it) {
        count++;
    }
    v = mem_array(count + 1, sizeof v[0]);
    LIST_EACH (&all->jobs, it) {
        v[i++] = LIST_ITEM(it, struct prefetch, node)->view;
    }
    lock_drop(&all->lock);
    for (i = 0; rc == 0 && i < count; i++) {
        rc = each(arg, &v[i]);
    }
    free(v);
    return rc;
}
