/* ask.c - one lookup, from cache_lookup() to its answer. Most are answered by the row alone; the
 * others go to their key's entry. */

#include <stdlib.h>

#include "common/os/clock.h"
#include "server/cache/cache_priv.h"

static const struct lookup_field *copy_forward(struct arena *a, const struct lookup *w)
{
    struct lookup_field *to;

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

static const struct slice *copy_targets(struct arena *a, const struct lookup *w)
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

void lookup_copy(struct arena *a, const struct lookup *w, struct lookup *out)
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

/* --- the answer ------------------------------------------------------------------------------- */

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

static void on_answered(struct message *l)
{
    struct cache_ask *k = CONTAINER_OF(l, struct cache_ask, message);

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
    k->message.deliver = on_answered;
    message_queue_post(k->loop->mail, &k->message);
}

/* --- the asking ------------------------------------------------------------------------------- */

static void on_ask_message(struct message *l)
{
    struct cache_ask *k = CONTAINER_OF(l, struct cache_ask, message);

    if (atomic_load(&k->cancelled)) { /* it left before anything was begun for it */
        ask_release(k);
    } else {
        entry_ask(k->cache, k);
    }
}

static struct cache_ask *ask_new(struct cache *c, struct loop *l, const struct lookup *w)
{
    struct cache_ask *k = NEW(struct cache_ask);
    struct buf key = BUF_INIT(w->repo.n + 1 + w->key.n + 1 + w->principal.n);

    atomic_fetch_add(&c->asks, 1);
    atomic_init(&k->refs, 1);
    fair_clients_add(&k->clients, w->client);
    k->cache = c;
    k->loop = l;
    lookup_copy(&k->arena, w, &k->lookup);
    k->origin = origin_hold(w->origin);
    object_key(&key, w->repo, w->key, w->principal);
    CHECK(key.rc == 0);
    k->row_key = arena_copy(&k->arena, buf_slice(&key));
    buf_free(&key);
    return k;
}

/* In the background: nobody waits for what comes of it. It counts for the client that caused it,
 * like a request. */
static void revalidate(struct cache *c, const struct lookup *w)
{
    struct cache_ask *k = ask_new(c, NULL, w);

    k->lookup.head_only = false;
    k->lookup.hint_first = 0;
    k->lookup.hint_end = LENGTH_UNKNOWN;
    k->lookup.hint_suffix = 0;
    k->lookup.background = true;
    k->lookup.request_cache_control = (struct request_cache_control){
        0}; /* one that comes when another has just ended finds it fresh */
    k->message.deliver = on_ask_message;
    message_queue_post(c->mail, &k->message);
}

/* May the row answer, and as what? */
static bool answers(const struct object *o, const struct lookup *w, uint64_t now,
                    enum cache_state *state)
{
    switch (freshness_judge(o, w, now)) {
    case FRESH:
        *state = CACHE_HIT;
        return true;
    case STALE_OK: /* a neighbor that revalidates must not get what is as old as its own */
        *state = CACHE_UPDATING;
        return w->asker == CLIENT_ASKS || (w->asker == NEIGHBOR_ASKS && !w->background);
    case STALE:
        *state = CACHE_STALE;
        return w->asker == CLIENT_ASKS && w->in_trouble && !o->must_ask &&
               freshness_allows_stale_on_error(o, w, now);
    }
    return false;
}

/* On a pool thread: the row alone answers most wants. */
static void look_up_object_row(struct job *j)
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
    if (hit_find(c, k->row_key, &k->lookup, &h, NULL, &e) == 0) {
        enum cache_state state;
        if (answers(&h->object, &k->lookup, now, &state)) {
            struct answer *a = answer_of_blob(c, &h->object, h->blob, &k->lookup, state);
            blob_touch(c->store, &h->object.digest, now);
            if (state != CACHE_HIT &&
                !(k->lookup.head_only && h->object.size_bytes > GET_FOR_HEAD_BYTES)) {
                revalidate(c, &k->lookup);
            }
            ask_answer(k, a);
            hit_free(&h);
            return;
        }
    }
    hit_free(&h);
    if (k->lookup.request_cache_control.only_cached) {
        err_set(&e, E_NOTFOUND,
                "not in the cache, or no longer fresh, and the request has only-if-cached");
        ask_answer(k, answer_of_status(c, 504, CACHE_MISS, 0, &e));
        return;
    }
    k->message.deliver = on_ask_message;
    message_queue_post(c->mail, &k->message);
}

/* `uri` and `header` of http { } may be set above it, and adapters write keys anew. */
static void refuse_name(struct cache_ask *k)
{
    struct err e;

    err_set(&e, E_TOOBIG, "the path and its query are longer than %d bytes; shorten them",
            LOOKUP_KEY_MAX);
    ask_answer(k, answer_of_status(k->cache, 414, CACHE_MISS, 0, &e));
}

struct cache_ask *cache_lookup(struct cache *c, struct loop *l, const struct lookup *w,
                               void (*on_answer)(void *arg, struct answer *a), void *arg)
{
    struct cache_ask *k = ask_new(c, l, w);

    k->on_answer = on_answer;
    k->arg = arg;
    if (w->key.n > LOOKUP_KEY_MAX) {
        refuse_name(k);
        return k;
    }
    k->job.work = look_up_object_row;
    pool_submit(c->disk, &k->job, w->client);
    return k;
}

static void on_leaving(struct message *l)
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
        message_queue_post(k->cache->mail, &k->leaving);
    }
}

struct sharing {
    struct message message;
    struct cache_ask *ask; /* held */
    uint64_t client;
};

static void on_sharing(struct message *l)
{
    struct sharing *s = CONTAINER_OF(l, struct sharing, message);
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
    s->message.deliver = on_sharing;
    message_queue_post(k->cache->mail, &s->message);
}
