#include "server/plan/paged_fetch.h"

#include <stdlib.h>
#include <uthash.h>

#include "common/base/log.h"
#include "common/codec/url.h"
#include "common/codec/weblink.h"
#include "server/http/body_memory.h"
#include "server/plan/document.h"

enum {
    PAGED_FETCH_MAGIC = 0x67617468,
    OUT_BYTES = 256 << 20, /* of one gathering */
    KEPT_BYTES = 64 << 20, /* of one loop's */
    KEPT_MAX = 4096,
    PAGED_FETCH_BYTES = 4 << 10, /* beside what is made: so much counts as memory */
    STALE_S = 5,                 /* with the origin in trouble nobody asks it again for so long */
    TOUCH_S = 3600,              /* what is used from memory counts as read, so often */
    TEXT_BYTES = 512,
    URL_BYTES = 16384,
};

struct paged_fetch_share { /* what is kept for a client */
    UT_hash_handle hh;
    uint64_t client;
    uint64_t bytes;
};

struct paged_fetch {
    uint32_t magic;
    UT_hash_handle hh;
    struct list lru;
    struct planner *all;
    unsigned holds;
    unsigned calls; /* of those: of calls that wait, or have its results */
    bool listed;    /* in by_name: one count */
    bool ready;
    struct arena arena;
    struct slice name;
    struct repo *repo; /* held */
    uint64_t generation;
    struct dependency dependency;
    struct list waiters;         /* uses */
    struct fair_clients clients; /* whose they are */
    struct lookup lookup;        /* of the part under way */
    unsigned deps;               /* parts that are in the result so far */
    bool again;                  /* this part broke off once */
    struct cache_ask *ask;
    bool answered; /* inside cache_lookup() */
    struct document_wait *wait;
    struct document *doc; /* being read by the job */
    struct slice next;    /* URL of the part behind it; p == NULL: it is the last */
    bool busy;            /* the job is out */
    struct job job;
    struct err why;
    struct buf out;
    struct result result;
    struct body_use use; /* of memory */
    uint64_t client;     /* whose account that is on */
    size_t made_bytes;
    uint64_t kept_for, kept_bytes;
    struct buf digests; /* of the parts, where known */
    uint64_t touched_unix_s;
};

struct paged_fetch_use { /* a run's count of a gathering */
    struct paged_fetch_use *next;
    struct list node; /* among its waiters */
    struct plan_run *run;
    void (*came)(struct plan_run *r, const struct result *f);
    void (*refused)(struct plan_run *r, const struct result *f);
    struct paged_fetch *g;
};

static void ask_part(struct paged_fetch *g);

/* --- a part ----------------------------------------------------------------------------------- */

/* A client may end its query in "+1": then that would be a part of the question without it. No
 * query has a blank. */
static struct slice mark_of(struct slice key)
{
    return slice_find(key, '?') >= 0 ? SLICE(" +") : SLICE("+");
}

struct slice part_key(struct slice key, unsigned part, struct arena *a)
{
    return part == 0 ? key
                     : arena_fmt(a, SLICE_FMT SLICE_FMT "%u", SLICE_ARG(key),
                                 SLICE_ARG(mark_of(key)), part);
}

bool part_is_of(struct slice part, struct slice key)
{
    return slice_eq(part, key) ||
           (slice_starts(part, key) && slice_starts(slice_from(part, key.n), mark_of(key)));
}

int part_next(const struct answer *a, unsigned part, struct arena *arena, struct slice *next,
              struct err *e)
{
    struct buf url = BUF_INIT(URL_BYTES);
    struct slice to = SLICE_NONE;
    int rc;

    *next = SLICE_NONE;
    for (size_t i = 0; i < a->nfields && to.p == NULL; i++) {
        if (slice_eqs(a->fields[i].name, "link")) { /* there may be several */
            to = weblink_next(a->fields[i].value);
        }
    }
    if (to.p == NULL) {
        return 0;
    }
    rc = part + 1 == PAGED_FETCH_PARTS_MAX
             ? err_set(e, E_TOOBIG, "the origin's listing has more than %d pages",
                       PAGED_FETCH_PARTS_MAX)
             : url_resolve(a->url, to, &url, e);
    if (rc == 0) {
        *next = arena_copy(arena, buf_slice(&url));
    }
    buf_free(&url);
    return rc;
}

void part_note(const struct answer *a, struct result *f)
{
    f->until_unix_s = min_u64(f->until_unix_s, a->fresh_until_unix_s);
    f->stale = f->stale || cache_state_is_stale(a->state);
    f->in_trouble = f->in_trouble || a->state == CACHE_STALE;
    f->spoken_unix_s =
        f->spoken_unix_s == 0 ? a->stored_unix_s : min_u64(f->spoken_unix_s, a->stored_unix_s);
}

int part_of_head(const struct answer *a, const struct lookup *w, uint64_t now_unix_s,
                 struct result *f, struct err *e)
{
    part_note(a, f);
    f->until_unix_s = now_unix_s + w->ttl_s;
    return a->total_bytes == w->size_bytes
               ? 0
               : err_set(e, E_PROTOCOL,
                         "the origin's file at this path does not have the "
                         "expected size");
}

void part_refused(const struct answer *a, struct arena *arena, struct result *f)
{
    struct slice code = answer_field(a, "x-error-code");
    struct slice message = answer_field(a, "x-error-message");

    message = message.p != NULL ? message : slice_str(a->why.text);
    f->rc = answer_rc(a);
    f->status = a->status;
    f->code = arena_copy_opt(arena, code);
    f->message = arena_copy(arena, slice_first(message, min_u64(message.n, TEXT_BYTES)));
}

/* --- its memory ------------------------------------------------------------------------------- */

static struct body_memory *memory_of(const struct paged_fetch *g)
{
    return g->all->deps.memory;
}

/* False: its client may hold no more. */
static bool hold_memory(struct paged_fetch *g)
{
    enum body_kind kind = g->calls == 0 ? BODY_SPARE : g->ready ? BODY_IN_USE : BODY_MAY_END;

    if (!g->busy) { /* else it grows */
        g->made_bytes = PAGED_FETCH_BYTES + g->out.cap;
    }
    return memory_of(g) == NULL ||
           body_memory_hold(memory_of(g), &g->all->port, &g->use, g->client, kind, g->made_bytes);
}

static void drop_memory(struct paged_fetch *g)
{
    if (memory_of(g) != NULL) {
        body_memory_drop(memory_of(g), &g->use);
    }
}

/* --- its life --------------------------------------------------------------------------------- */

/* Nothing is asked with it any more. */
static void forget_token(struct paged_fetch *g)
{
    struct slice *token = &g->dependency.lookup.authorization;

    if (token->n != 0) {
        explicit_bzero((void *)(uintptr_t)token->p, token->n);
    }
    *token = g->lookup.authorization = SLICE_NONE;
}

static void release(struct paged_fetch *g)
{
    CHECK(g->magic == PAGED_FETCH_MAGIC && g->holds > 0);
    if (--g->holds != 0) {
        return;
    }
    forget_token(g);
    CHECK(!g->listed && !g->busy && g->ask == NULL && g->wait == NULL && list_empty(&g->waiters));
    drop_memory(g);
    document_free(&g->doc);
    buf_free(&g->out);
    buf_free(&g->digests);
    repo_release(&g->repo);
    arena_fini(&g->arena);
    g->magic = 0;
    free(g);
}

static struct paged_fetch_share *share_of(struct planner *all, uint64_t client)
{
    struct paged_fetch_share *s = NULL;

    HASH_FIND(hh, all->shares, &client, sizeof client, s);
    if (s == NULL) {
        s = NEW(struct paged_fetch_share);
        s->client = client;
        HASH_ADD(hh, all->shares, client, sizeof s->client, s);
    }
    return s;
}

static void keep_paged_result(struct paged_fetch *g)
{
    struct planner *all = g->all;

    list_push_front(&all->lru, &g->lru);
    g->kept_for = g->client;
    g->kept_bytes = g->made_bytes;
    share_of(all, g->kept_for)->bytes += g->kept_bytes;
    all->bytes += g->kept_bytes;
    all->count++;
}

static void keep_no_more(struct paged_fetch *g)
{
    struct planner *all = g->all;
    struct paged_fetch_share *s = share_of(all, g->kept_for);

    list_remove(&g->lru);
    all->bytes -= g->kept_bytes;
    all->count--;
    s->bytes -= g->kept_bytes;
    if (s->bytes == 0) {
        HASH_DEL(all->shares, s);
        free(s);
    }
}

static void unlist(struct paged_fetch *g)
{
    if (!g->listed) {
        return;
    }
    g->listed = false;
    HASH_DEL(g->all->by_name, g);
    if (list_linked(&g->lru)) {
        keep_no_more(g);
    }
    release(g);
}

/* Of the client that has most the oldest, but not the one that was used last. */
static struct paged_fetch *next_to_go(struct planner *all)
{
    struct paged_fetch_share *most = all->shares;

    for (struct paged_fetch_share *s = all->shares; s != NULL; s = s->hh.next) {
        most = s->bytes > most->bytes ? s : most;
    }
    for (struct list *n = all->lru.prev; n != all->lru.next; n = n->prev) {
        struct paged_fetch *g = LIST_ITEM(n, struct paged_fetch, lru);
        if (g->kept_for == most->client) {
            return g;
        }
    }
    return LIST_ITEM(all->lru.prev, struct paged_fetch, lru);
}

static void trim(struct planner *all)
{
    while (all->count > 1 && (all->bytes > KEPT_BYTES || all->count > KEPT_MAX)) {
        unlist(next_to_go(all));
    }
}

/* The time is part of it: until when a result holds is said for those who ask for that time. Who
 * may read a repository holds for five minutes, what its branch stands for one, and both are made
 * of the same document. So is whether all parts of a list are wanted, or the first alone. */
static struct slice name_of_dependency(struct arena *a, const struct repo *r,
                                       const struct dependency *n)
{
    struct buf b = BUF_INIT(sizeof r + sizeof n->lookup.ttl_s + 1 + n->key.n + 1 + n->lookup.key.n +
                            1 + n->lookup.principal.n);
    struct slice name;

    buf_add(&b, &r, sizeof r);
    buf_add(&b, &n->lookup.ttl_s, sizeof n->lookup.ttl_s);
    buf_byte(&b, n->one_part);
    buf_adds(&b, n->key);
    buf_byte(&b, 0);
    buf_adds(&b, n->lookup.key);
    buf_byte(&b, 0);
    buf_adds(&b, n->lookup.principal);
    CHECK(b.rc == 0);
    name = arena_copy(a, buf_slice(&b));
    buf_free(&b);
    return name;
}

static struct paged_fetch *paged_fetch_new(struct plan_run *r, struct slice name)
{
    struct paged_fetch *g = NEW(struct paged_fetch);
    const struct dependency *n = &r->plan->dependency;

    g->magic = PAGED_FETCH_MAGIC;
    g->all = r->planner;
    g->repo = repo_hold(r->repo);
    g->generation = r->generation;
    g->name = arena_copy(&g->arena, name);
    g->dependency = *n;
    g->dependency.key = arena_copy_opt(&g->arena, n->key);
    g->dependency.lookup.key = g->dependency.path = arena_copy_opt(&g->arena, n->lookup.key);
    g->dependency.lookup.url = arena_copy_opt(&g->arena, n->lookup.url);
    g->dependency.lookup.accept = arena_copy_opt(&g->arena, n->lookup.accept);
    g->dependency.lookup.authorization = arena_copy_opt(&g->arena, n->lookup.authorization);
    g->dependency.lookup.principal = g->dependency.name =
        arena_copy_opt(&g->arena, n->lookup.principal);
    g->dependency.lookup.repo = slice_str(r->repo->name);
    g->dependency.lookup.document = !n->lookup.head_only; /* its size is no matter then */
    g->dependency.lookup.client = g->client = r->who->client;
    g->lookup = g->dependency.lookup;
    fair_clients_add(&g->clients, r->who->client);
    list_init(&g->waiters);
    g->out = BUF_INIT(OUT_BYTES);
    g->digests = BUF_INIT(PAGED_FETCH_PARTS_MAX * sizeof(struct digest));
    g->result.until_unix_s = UINT64_MAX;
    g->holds = 1;
    g->listed = true;
    HASH_ADD_KEYPTR(hh, g->all->by_name, g->name.p, g->name.n, g);
    return g;
}

/* --- telling ---------------------------------------------------------------------------------- */

static void notify_paged_use(struct paged_fetch_use *u)
{
    struct result f = u->g->result;

    f.dependency = u->g->dependency; /* the same as was asked, and it lives as long */
    u->came(u->run, &f);
}

static void finish_paged_fetch(struct paged_fetch *g, int rc)
{
    struct list *n;

    g->result.rc = rc;
    g->result.bytes = buf_slice(&g->out);
    g->ready = true;
    if (g->result.stale) {
        g->result.until_unix_s = g->all->loop->unix_s + STALE_S;
    }
    g->holds++;
    (void)hold_memory(g); /* in use from here on: it has been granted already */
    forget_token(g);
    if (rc != 0) {
        unlist(g); /* the cache remembers a no for as long as it may */
    } else if (g->listed) {
        keep_paged_result(g);
        trim(g->all);
    }
    while ((n = list_pop_front(&g->waiters)) != NULL) {
        notify_paged_use(LIST_ITEM(n, struct paged_fetch_use, node));
    }
    release(g);
}

static void fail_paged_fetch(struct paged_fetch *g, int rc, int status, struct slice why)
{
    g->result.status = status;
    g->result.message =
        arena_copy_opt(&g->arena, slice_first(why, why.n < TEXT_BYTES ? why.n : TEXT_BYTES));
    finish_paged_fetch(g, rc);
}

/* --- ending early ----------------------------------------------------------------------------- */

/* Calls that wait no more may hold it for a while yet. */
static void forget_made(struct paged_fetch *g)
{
    buf_free(&g->out);
    drop_memory(g);
}

/* Nobody waits any more. A job that is out ends first. */
static void abandon(struct paged_fetch *g)
{
    if (g->ready) { /* its users have the result */
        unlist(g);
        return;
    }
    g->holds++;
    unlist(g);
    cache_cancel(&g->ask);
    document_cancel(&g->wait);
    if (g->busy) {
        g->holds++; /* worked() gives it back */
    } else {
        forget_made(g);
    }
    release(g);
}

static struct paged_fetch_use *waiter_of(struct paged_fetch *g, uint64_t client)
{
    LIST_EACH (&g->waiters, n) {
        struct paged_fetch_use *u = LIST_ITEM(n, struct paged_fetch_use, node);
        if (u->run->who->client == client) {
            return u;
        }
    }
    return NULL;
}

static void refuse_paged_use(struct paged_fetch_use *u)
{
    struct result f = {.dependency = u->g->dependency,
                       .rc = E_BUSY,
                       .status = 503,
                       .message = SLICE("the document made from this listing needs more memory "
                                        "than http { body_memory } has left for this client; "
                                        "try again")};

    u->refused(u->run, &f);
}

/* Its client hears 503, and the next one that waits has it on its account. False: there is none, or
 * none that may hold so much: it is abandoned. */
static bool pass_account(struct paged_fetch *g)
{
    struct paged_fetch_use *u;

    drop_memory(g);
    g->holds++;
    do {
        while ((u = waiter_of(g, g->client)) != NULL) {
            list_remove(&u->node);
            refuse_paged_use(u);
        }
        if (list_empty(&g->waiters)) {
            abandon(g); /* no run leaves inside refused(): its exchange ends later */
            release(g);
            return false;
        }
        g->client = LIST_ITEM(g->waiters.next, struct paged_fetch_use, node)->run->who->client;
    } while (!hold_memory(g));
    release(g);
    return true;
}

/* False: it is abandoned. */
static bool count_memory(struct paged_fetch *g)
{
    return hold_memory(g) || pass_account(g);
}

/* Others need its memory. */
static void on_part_use_end(struct body_use *use)
{
    struct paged_fetch *g = CONTAINER_OF(use, struct paged_fetch, use);

    if (g->ready && g->calls != 0) {
        body_memory_spare(memory_of(g), use); /* it is used again */
    } else if (g->ready) {
        unlist(g);
    } else if (list_empty(&g->waiters)) {
        drop_memory(g); /* its job is out yet, for nobody */
    } else {
        (void)pass_account(g);
    }
}

/* --- one part after the other ----------------------------------------------------------------- */

/* A page that nobody can read would be kept as long as one that is right: it is asked for anew next
 * time. */
static void forget_part(struct paged_fetch *g)
{
    struct err why;
    uint64_t removed;

    if (cache_remove(g->all->deps.cache, g->lookup.repo, g->lookup.key, false, &removed, &why) !=
        0) {
        log_warn("serve.gather_remove", "repo=%s why=\"%s\"", g->repo->name, why.text);
    }
}

static void run_paged_fetch_job(struct job *j)
{
    struct paged_fetch *g = CONTAINER_OF(j, struct paged_fetch, job);
    struct buf doc = BUF_INIT(g->all->deps.document_bytes);
    struct paged_fetch_part part = {
        .dependency = &g->dependency,
        .url = g->doc != NULL ? g->doc->answer->url : SLICE(""),
        .first = g->deps == 0,
        .last = g->next.p == NULL,
    };

    g->why.code = g->doc != NULL
                      ? document_read(g->doc, &doc, &g->why)
                      : blob_read_whole(g->all->deps.store, &g->dependency.root, &doc, &g->why);
    if (g->why.code == 0) {
        part.doc = buf_slice(&doc);
        g->why.code = g->repo->ops->paged_fetch(g->repo, &part, &g->out, &g->why);
    }
    if (g->why.code == 0 && g->out.rc != 0) {
        err_set(&g->why, E_TOOBIG, "the origin's listing is too large");
    }
    buf_free(&doc);
    if (g->why.code == E_PROTOCOL && !g->dependency.of_blob) {
        forget_part(g);
    }
}

static void worked(struct job *j)
{
    struct paged_fetch *g = CONTAINER_OF(j, struct paged_fetch, job);
    int rc = g->why.code;

    g->busy = false;
    document_free(&g->doc);
    g->deps++;
    if (list_empty(&g->waiters)) { /* all have left: it was unlisted then */
        forget_made(g);
        release(g);
    } else if (rc == 0 && !count_memory(g)) {
        return;
    } else if (rc != 0) {
        log_warn("serve.gather_failed", "repo=%s why=\"%s\"", g->repo->name, g->why.text);
        fail_paged_fetch(g, rc, 502, slice_str(g->why.text));
    } else if (g->next.p == NULL) {
        finish_paged_fetch(g, 0);
    } else {
        g->lookup.url = g->next;
        g->lookup.key = part_key(g->dependency.lookup.key, g->deps, &g->arena);
        g->again = false;
        ask_part(g);
    }
}

/* It may be fetched only where the page may lead (fetch/origin.h). */
static int find_next(struct paged_fetch *g, const struct answer *a, struct err *e)
{
    struct slice next;
    int rc = part_next(a, g->deps, &g->arena, &next, e);

    g->next = SLICE_NONE;
    if (g->dependency.one_part) {
        g->result.next = next;
    } else if (next.p != NULL) {
        g->next = next;
        g->lookup.via = arena_copy(&g->arena, a->url);
    }
    return rc;
}

static void note_part(struct paged_fetch *g, const struct answer *a)
{
    part_note(a, &g->result);
    if (a->blob != NULL && a->digest_known) {
        buf_add(&g->digests, &a->digest, sizeof a->digest);
    }
}

static void put_to_work(struct paged_fetch *g)
{
    g->busy = true;
    g->job = (struct job){.work = run_paged_fetch_job, .done = worked, .reply = g->all->loop->mail};
    pool_submit(g->all->deps.readers, &g->job, g->clients.client[0]);
    for (unsigned i = 1; i < g->clients.count; i++) {
        pool_move(g->all->deps.readers, &g->job, g->clients.client[i]);
    }
}

static void on_whole_page(void *arg, struct document *d, int rc)
{
    struct paged_fetch *g = arg;

    if (rc != 0 && !g->again) {
        g->again = true;
        ask_part(g);
        return;
    }
    if (rc == 0) {
        rc = find_next(g, d->answer, &g->why);
    } else {
        err_set(&g->why, rc, "the origin's document did not arrive completely");
    }
    if (rc != 0) {
        document_free(&d);
        fail_paged_fetch(g, rc, 502, slice_str(g->why.text));
        return;
    }
    note_part(g, d->answer);
    g->doc = d;
    put_to_work(g);
}

static void on_paged_fetch_answer(void *arg, struct answer *a)
{
    struct paged_fetch *g = arg;

    g->ask = NULL;
    g->answered = true;
    if (a->status == 200 && g->lookup.head_only) {
        int rc = part_of_head(a, &g->lookup, g->all->loop->unix_s, &g->result, &g->why);
        answer_release(&a);
        if (rc == 0) {
            finish_paged_fetch(g, 0);
        } else {
            fail_paged_fetch(g, rc, 502, slice_str(g->why.text));
        }
    } else if (a->status == 200) {
        document_whole(g->all->deps.cache, g->all->loop, a, &g->wait, on_whole_page, g);
    } else {
        part_refused(a, &g->arena, &g->result);
        answer_release(&a);
        finish_paged_fetch(g, g->result.rc);
    }
}

static void ask_part(struct paged_fetch *g)
{
    struct cache_ask *ask;

    g->holds++; /* it may be over before cache_lookup() returns */
    g->answered = false;
    ask = cache_lookup(g->all->deps.cache, g->all->loop, &g->lookup, on_paged_fetch_answer, g);
    if (!g->answered) {
        g->ask = ask;
        for (unsigned i = 1; i < g->clients.count; i++) {
            cache_share(ask, g->clients.client[i]);
        }
    }
    release(g);
}

/* Another client waits for it: what is queued for it is done in whichever's turn comes first. */
static void share_paged_fetch(struct paged_fetch *g, uint64_t client)
{
    if (!fair_clients_add(&g->clients, client)) {
        return;
    }
    if (g->ask != NULL) {
        cache_share(g->ask, client);
    } else if (g->busy) {
        pool_move(g->all->deps.readers, &g->job, client);
    }
}

/* --- the asking ------------------------------------------------------------------------------- */

/* What is stale because the origin was in trouble may be shown again while the origin is asked:
 * else each one who asks would wait for an origin that does not even refuse. */
static struct paged_fetch *find_running_fetch(struct plan_run *r, struct slice name)
{
    struct planner *all = r->planner;
    struct lookup *w = &r->plan->dependency.lookup;
    bool forced = !r->plan->dependency.of_blob && w->class == LOOKUP_MUTABLE &&
                  plan_run_forces_refresh(
                      r, arena_fmt(r->arena, "%s/" SLICE_FMT, r->repo->name, SLICE_ARG(r->path)));
    struct paged_fetch *g;

    if (forced) {
        w->request_cache_control.refresh = true;
        w->floor_s = 0;
    }
    HASH_FIND(hh, all->by_name, name.p, name.n, g);
    if (g != NULL && (g->generation != r->repo->generation ||
                      (g->ready && (forced || g->result.until_unix_s <= all->loop->unix_s ||
                                    g->result.spoken_unix_s < w->since_unix_s)))) {
        w->in_trouble = g->ready && g->result.stale && !forced;
        unlist(g);
        g = NULL;
    }
    return g;
}

static void touch(struct paged_fetch *g, uint64_t unix_s)
{
    if (unix_s < g->touched_unix_s + TOUCH_S) {
        return;
    }
    g->touched_unix_s = unix_s;
    for (size_t at = 0; at < g->digests.n; at += sizeof(struct digest)) {
        struct digest d;
        memcpy(&d, g->digests.p + at, sizeof d);
        blob_touch(g->all->deps.store, &d, unix_s);
    }
}

void paged_fetch_dependency(struct plan_run *r,
                            void (*came)(struct plan_run *r, const struct result *f),
                            void (*refused)(struct plan_run *r, const struct result *f))
{
    struct slice name = name_of_dependency(r->arena, r->repo, &r->plan->dependency);
    struct paged_fetch *g = find_running_fetch(r, name);
    struct paged_fetch_use *u = NEW(struct paged_fetch_use);
    bool begins = g == NULL;

    if (begins) {
        g = paged_fetch_new(r, name);
    }
    g->holds++;
    g->calls++;
    *u = (struct paged_fetch_use){
        .next = r->use, .run = r, .came = came, .refused = refused, .g = g};
    r->use = u;
    if (g->ready) {
        (void)hold_memory(g);
        list_remove(&g->lru);
        list_push_front(&g->all->lru, &g->lru);
        touch(g, g->all->loop->unix_s);
        notify_paged_use(u);
        return;
    }
    list_push_back(&g->waiters, &u->node);
    if (begins && !count_memory(g)) {
        return;
    }
    if (begins && g->dependency.of_blob) {
        put_to_work(g);
    } else if (begins) {
        ask_part(g);
    } else {
        share_paged_fetch(g, r->who->client);
    }
}

void paged_fetch_leave(struct plan_run *r)
{
    for (struct paged_fetch_use *u = r->use; u != NULL; u = u->next) {
        if (list_linked(&u->node)) {
            list_remove(&u->node);
            if (list_empty(&u->g->waiters)) {
                abandon(u->g);
            }
        }
    }
}

void paged_fetch_drop(struct plan_run *r)
{
    struct paged_fetch_use *u;

    while ((u = r->use) != NULL) {
        r->use = u->next;
        CHECK(!list_linked(&u->node));
        if (--u->g->calls == 0 && u->g->ready && u->g->listed) {
            (void)hold_memory(u->g); /* it is kept for whoever asks next */
        }
        release(u->g);
        free(u);
    }
}

/* --- planners --------------------------------------------------------------------------------- */

struct planners {
    unsigned count;
    struct planner at[];
};

struct planners *planners_open(const struct planner_deps *deps, struct loops *ls)
{
    unsigned n = loops_count(ls);
    struct planners *ps = mem_new(sizeof *ps + n * sizeof ps->at[0]);

    ps->count = n;
    for (unsigned i = 0; i < n; i++) {
        ps->at[i] = (struct planner){.loop = loops_at(ls, i), .deps = *deps};
        list_init(&ps->at[i].lru);
        body_port_init(&ps->at[i].port, ps->at[i].loop->mail, on_part_use_end);
    }
    return ps;
}

struct planner *planners_at(struct planners *ps, unsigned loop)
{
    return &ps->at[loop];
}

static bool is_made_of(const struct paged_fetch *g, struct slice key)
{
    return key.p == NULL || part_is_of(key, g->dependency.lookup.key);
}

void planner_forget(struct planner *pl, struct slice repo, struct slice key)
{
    struct paged_fetch *g;
    struct paged_fetch *tmp;

    HASH_ITER(hh, pl->by_name, g, tmp)
    {
        if (repo.p == NULL || (slice_eqs(repo, g->repo->name) && is_made_of(g, key))) {
            unlist(g); /* who waits for it gets it, nobody else */
        }
    }
}

void planners_close(struct planners **psp)
{
    struct planners *ps = *psp;

    if (ps != NULL) {
        *psp = NULL;
        for (unsigned i = 0; i < ps->count; i++) {
            planner_forget(&ps->at[i], SLICE_NONE, SLICE_NONE);
        }
        free(ps);
    }
}
