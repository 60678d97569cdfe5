/* ask.c - one want, from cache_want() to its answer: the row alone answers most, the others go to their key's entry. */

#include <stdlib.h>

#include "common/os/clock.h"
#include "server/cache/cache_priv.h"

static const struct want_field *copy_forward(struct arena *a, const struct want *w)
{
    struct want_field *to;

    if (w->forwards == 0) {
        return NULL;
    }
    to = arena_alloc(a, w->forwards * sizeof *to);
    for (size_t i = 0; i < w->forwards; i++) {
        to[i].sent = w->forward[i].sent;
        to[i].name = arena_copy(a, w->forward[i].name);
        to[i].value = arena_copy_opt(a, w->forward[i].value);
        to[i].same = arena_copy_opt(a, w->forward[i].same);
    }
    return to;
}

static const struct slice *copy_targets(struct arena *a, const struct want *w)
{
    struct slice *to;

    if (w->ntargets == 0) {
        return NULL;
    }
    to = arena_alloc(a, w->ntargets * sizeof *to);
    for (size_t i = 0; i < w->ntargets; i++) {
        to[i] = arena_copy(a, w->targets[i]);
    }
    return to;
}

void want_copy(struct arena *a, const struct want *w, struct want *out)
{
    struct status_map *map = arena_alloc(a, (w->status_maps + 1) * sizeof *map);

    *out = *w;
    out->repo = arena_copy_opt(a, w->repo);
    out->key = arena_copy_opt(a, w->key);
    out->url = arena_copy_opt(a, w->url);
    out->via = arena_copy_opt(a, w->via);
    out->accept = arena_copy_opt(a, w->accept);
    out->authorization = arena_copy_opt(a, w->authorization);
    out->principal = arena_copy_opt(a, w->principal);
    out->token_scope = arena_copy_opt(a, w->token_scope);
    out->content = arena_copy_opt(a, w->content);
    out->held_by = arena_copy_opt(a, w->held_by);
    out->forward = copy_forward(a, w);
    out->targets = copy_targets(a, w);
    if (w->status_maps > 0) {
        memcpy(map, w->status_map, w->status_maps * sizeof *map);
    }
    out->status_map = map;
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

void ask_release(struct cache_ask *k)
{
    struct cache *c = k->cache;

    if (atomic_fetch_sub(&k->refs, 1) != 1) {
        return;
    }
    CHECK(k->entry == NULL);
    answer_release(&k->answer);
    origin_free(&k->origin);
    arena_fini(&k->arena);
    free(k);
    atomic_fetch_sub(&c->asks, 1);
}

static void on_answered(struct letter *l)
{
    struct cache_ask *k = CONTAINER_OF(l, struct cache_ask, letter);

    if (!atomic_load(&k->cancelled)) {
        struct answer *a = k->answer;
        k->answer = NULL;
        k->on_answer(k->arg, a);
    }
    ask_release(k);
}

static void count_state(struct cache *c, enum cache_state s)
{
    switch (s) {
    case CACHE_HIT:
        COUNT(c, hits, 1);
        break;
    case CACHE_MISS:
    case CACHE_REFRESHED:
        COUNT(c, misses, 1);
        break;
    case CACHE_COLLAPSED:
        COUNT(c, collapsed, 1);
        break;
    case CACHE_REVALIDATED:
        COUNT(c, revalidated, 1);
        break;
    case CACHE_STALE:
    case CACHE_UPDATING:
        COUNT(c, stale, 1);
        break;
    case CACHE_NEGATIVE:
        COUNT(c, negative, 1);
        break;
    case CACHE_FAILED:
        COUNT(c, failed, 1);
        break;
    }
}

void ask_answer(struct cache_ask *k, struct answer *a)
{
    if (k->loop == NULL) {
        answer_release(&a);
        ask_release(k);
        return;
    }
    count_state(k->cache, a->state);
    k->answer = a;
    k->letter.deliver = on_answered;
    mailbox_post(k->loop->mail, &k->letter);
}

/* --- the asking --------------------------------------------------------------------------------------------------- */

static void on_ask_letter(struct letter *l)
{
    struct cache_ask *k = CONTAINER_OF(l, struct cache_ask, letter);

    if (atomic_load(&k->cancelled)) { /* it left before anything was begun for it */
        ask_release(k);
    } else {
        entry_ask(k->cache, k);
    }
}

static struct cache_ask *ask_new(struct cache *c, struct loop *l, const struct want *w)
{
    struct cache_ask *k = NEW(struct cache_ask);
    struct buf key = BUF_INIT(w->repo.n + 1 + w->key.n + 1 + w->principal.n);

    atomic_fetch_add(&c->asks, 1);
    atomic_init(&k->refs, 1);
    fair_clients_add(&k->clients, w->client);
    k->cache = c;
    k->loop = l;
    want_copy(&k->arena, w, &k->want);
    k->origin = origin_hold(w->origin);
    object_key(&key, w->repo, w->key, w->principal);
    CHECK(key.rc == 0);
    k->row_key = arena_copy(&k->arena, buf_slice(&key));
    buf_free(&key);
    return k;
}

/* In the background: nobody waits for what comes of it. It counts for the client that caused it, like a request. */
static void revalidate(struct cache *c, const struct want *w)
{
    struct cache_ask *k = ask_new(c, NULL, w);

    k->want.head_only = false;
    k->want.hint_first = 0;
    k->want.hint_end = LENGTH_UNKNOWN;
    k->want.hint_suffix = 0;
    k->want.background = true;
    k->want.demand =
        (struct demand){0}; /* one that comes when another has just ended finds it fresh */
    k->letter.deliver = on_ask_letter;
    mailbox_post(c->mail, &k->letter);
}

/* May the row answer, and as what? */
static bool answers(const struct object *o, const struct want *w, uint64_t now,
                    enum cache_state *state)
{
    switch (freshness_judge(o, w, now)) {
    case FRESH:
        *state = CACHE_HIT;
        return true;
    case STALE_OK:
        *state = CACHE_UPDATING;
        return true;
    case STALE:
        *state = CACHE_STALE;
        return w->in_trouble && !o->must_ask && freshness_allows_stale_on_error(o, w, now);
    }
    return false;
}

/* On a pool thread: the row alone answers most wants. */
static void look(struct job *j)
{
    struct cache_ask *k = CONTAINER_OF(j, struct cache_ask, job);
    struct cache *c = k->cache;
    uint64_t now = clock_unix_s();
    struct hit *h = NULL;
    struct err e;

    if (atomic_load(&k->cancelled)) {
        ask_release(k);
        return;
    }
    if (hit_find(c, k->row_key, &k->want, &h, NULL, &e) == 0) {
        enum cache_state state;
        if (answers(&h->object, &k->want, now, &state)) {
            struct answer *a = answer_of_blob(c, &h->object, h->blob, &k->want, state);
            blob_touch(c->store, &h->object.digest, now);
            if (state != CACHE_HIT &&
                !(k->want.head_only && h->object.size_bytes > GET_FOR_HEAD_BYTES)) {
                revalidate(c, &k->want);
            }
            ask_answer(k, a);
            hit_free(&h);
            return;
        }
    }
    hit_free(&h);
    if (k->want.demand.only_cached) {
        err_set(&e, E_NOTFOUND, "not kept here, or not fresh: the client asks for no more");
        ask_answer(k, answer_of_status(c, 504, CACHE_MISS, 0, &e));
        return;
    }
    k->letter.deliver = on_ask_letter;
    mailbox_post(c->mail, &k->letter);
}

/* `uri` and `header` of http { } may be set above it, and adapters write keys anew. */
static void refuse_name(struct cache_ask *k)
{
    struct err e;

    err_set(&e, E_TOOBIG, "the path and its query have more than %d bytes: no name can be so long",
            WANT_KEY_MAX);
    ask_answer(k, answer_of_status(k->cache, 414, CACHE_MISS, 0, &e));
}

struct cache_ask *cache_want(struct cache *c, struct loop *l, const struct want *w,
                             void (*on_answer)(void *arg, struct answer *a), void *arg)
{
    struct cache_ask *k = ask_new(c, l, w);

    k->on_answer = on_answer;
    k->arg = arg;
    if (w->key.n > WANT_KEY_MAX) {
        refuse_name(k);
        return k;
    }
    k->job.work = look;
    pool_submit(c->disk, &k->job, w->client);
    return k;
}

static void on_leaving(struct letter *l)
{
    struct cache_ask *k = CONTAINER_OF(l, struct cache_ask, leaving);

    if (k->entry != NULL) {
        entry_leave(k);
        ask_release(k); /* its answer comes no more */
    }
    ask_release(k);
}

void cache_cancel(struct cache_ask **kp)
{
    struct cache_ask *k = *kp;

    *kp = NULL;
    if (k != NULL) {
        atomic_fetch_add(&k->refs, 1);
        atomic_store(&k->cancelled, true);
        k->leaving.deliver = on_leaving;
        mailbox_post(k->cache->mail, &k->leaving);
    }
}

struct sharing {
    struct letter letter;
    struct cache_ask *ask; /* held */
    uint64_t client;
};

static void on_sharing(struct letter *l)
{
    struct sharing *s = CONTAINER_OF(l, struct sharing, letter);
    struct cache_ask *k = s->ask;

    if (fair_clients_add(&k->clients, s->client) && k->entry != NULL) {
        entry_share(k->entry, s->client);
    }
    ask_release(k);
    free(s);
}

void cache_share(struct cache_ask *k, uint64_t client)
{
    struct sharing *s = NEW(struct sharing);

    pool_move(k->cache->disk, &k->job, client);
    atomic_fetch_add(&k->refs, 1);
    s->ask = k;
    s->client = client;
    s->letter.deliver = on_sharing;
    mailbox_post(k->cache->mail, &s->letter);
}
