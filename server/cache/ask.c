/* ask.c - one want, from cache_want() to its answer: the row alone answers most, the others go to their key's entry. */

#include <stdlib.h>

#include "common/os/clock.h"
#include "server/cache/cache_priv.h"

enum { KEY_MAX = 16384 };

static struct slice copy(struct arena *a, struct slice s)
{
    return s.p != NULL ? arena_copy(a, s) : SLICE_NONE;
}

void want_copy(struct arena *a, const struct want *w, struct want *out)
{
    struct status_map *map = arena_alloc(a, (w->status_maps + 1) * sizeof *map);

    *out = *w;
    out->repo = copy(a, w->repo);
    out->key = copy(a, w->key);
    out->url = copy(a, w->url);
    out->via = copy(a, w->via);
    out->accept = copy(a, w->accept);
    out->authorization = copy(a, w->authorization);
    out->principal = copy(a, w->principal);
    out->token_scope = copy(a, w->token_scope);
    out->held_by = copy(a, w->held_by);
    if (w->status_maps > 0) {
        memcpy(map, w->status_map, w->status_maps * sizeof *map);
    }
    out->status_map = map;
}

void hit_free(struct hit **hp)
{
    struct hit *h = *hp;

    *hp = NULL;
    if (h != NULL) {
        blob_release(&h->blob);
        arena_fini(&h->arena);
        free(h);
    }
}

static int find_at(struct cache *c, struct slice row_key, const struct want *w, struct hit **out,
                   struct err *e)
{
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);
    struct hit *h = NEW(struct hit);
    int rc = store_get(c->store, TABLE_OBJECT, row_key, &row, e);

    *out = NULL;
    if (rc != 0) {
        goto out;
    }
    if (!object_decode(buf_slice(&row), &h->arena, &h->object) || !object_answers(&h->object, w)) {
        rc = err_set(e, E_NOTFOUND, "another object is wanted than the row has");
        goto out;
    }
    rc = blob_open(c->store, &h->object.digest, &h->blob, e);
    if (rc != 0) {
        rc = E_NOTFOUND; /* evicted, or damaged and taken away: it is fetched again */
        goto out;
    }
    *out = h;
    h = NULL;
out:
    hit_free(&h);
    buf_free(&row);
    return rc;
}

struct held_search {
    struct cache *cache;
    const struct want *want;
    struct hit *hit;
};

static int try_holder(void *arg, struct slice repo, char kind, struct slice key)
{
    struct held_search *s = arg;
    const struct want *w = s->want;
    struct buf row_key = BUF_INIT(KEY_MAX);

    /* A NUL: it was fetched with somebody's own credential. */
    if (kind == 'o' && slice_eq(repo, w->repo) && slice_find(key, '\0') < 0 &&
        memmem(key.p, key.n, w->held_by.p, w->held_by.n) != NULL) {
        object_key(&row_key, repo, key, SLICE(""));
        if (row_key.rc == 0) {
            (void)find_at(s->cache, buf_slice(&row_key), w, &s->hit, NULL);
        }
    }
    buf_free(&row_key);
    return s->hit != NULL;
}

/* What the row does not have may have come by another name: layers are in many images. */
int hit_find(struct cache *c, struct slice row_key, const struct want *w, struct hit **out,
             struct err *e)
{
    struct held_search s = {.cache = c, .want = w};
    int rc = find_at(c, row_key, w, out, e);

    if (rc == E_NOTFOUND && w->digest_known && w->held_by.p != NULL && w->principal.n == 0) {
        rc = holder_each(c->store, &w->digest, try_holder, &s, e);
        *out = s.hit;
        rc = s.hit != NULL ? 0 : rc < 0 ? rc : E_NOTFOUND;
    }
    return rc;
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

static void ask_free(struct cache_ask *k)
{
    struct cache *c = k->cache;

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
    ask_free(k);
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
        ask_free(k);
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

    entry_ask(k->cache, k);
}

static struct cache_ask *ask_new(struct cache *c, struct loop *l, const struct want *w)
{
    struct cache_ask *k = NEW(struct cache_ask);
    struct buf key = BUF_INIT(KEY_MAX);

    atomic_fetch_add(&c->asks, 1);
    k->cache = c;
    k->loop = l;
    want_copy(&k->arena, w, &k->want);
    k->origin = origin_hold(w->origin);
    object_key(&key, w->repo, w->key, w->principal);
    CHECK(key.rc ==
          0); /* WANT_KEY_MAX is below KEY_MAX, by more than a repo and a principal take */
    k->row_key = arena_copy(&k->arena, buf_slice(&key));
    buf_free(&key);
    return k;
}

static void refresh_behind(struct cache *c, const struct want *w)
{
    struct cache_ask *k = ask_new(c, NULL, w);

    k->want.head_only = false;
    k->want.hint_first = 0;
    k->want.hint_end = LENGTH_UNKNOWN;
    k->want.demand = (struct demand){.refresh = true};
    k->want.floor_s = 0;
    k->letter.deliver = on_ask_letter;
    mailbox_post(c->mail, &k->letter);
}

/* On a pool thread: the row alone answers most wants. */
static void look(struct job *j)
{
    struct cache_ask *k = CONTAINER_OF(j, struct cache_ask, job);
    struct cache *c = k->cache;
    uint64_t now = clock_unix_s();
    struct hit *h = NULL;
    struct err e;

    if (hit_find(c, k->row_key, &k->want, &h, &e) == 0) {
        enum verdict_fresh v = freshness_judge(&h->object, &k->want, now);
        if (v != STALE) {
            struct answer *a = answer_of_blob(c, &h->object, h->blob, &k->want,
                                              v == FRESH ? CACHE_HIT : CACHE_STALE);
            blob_touch(c->store, &h->object.digest, now);
            if (v == STALE_OK &&
                !(k->want.head_only && h->object.size_bytes > GET_FOR_HEAD_BYTES)) {
                refresh_behind(c, &k->want);
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

struct cache_ask *cache_want(struct cache *c, struct loop *l, const struct want *w,
                             void (*on_answer)(void *arg, struct answer *a), void *arg)
{
    struct cache_ask *k = ask_new(c, l, w);

    k->on_answer = on_answer;
    k->arg = arg;
    k->job.work = look;
    pool_submit(c->disk, &k->job);
    return k;
}

void cache_cancel(struct cache_ask **kp)
{
    if (*kp != NULL) {
        atomic_store(&(*kp)->cancelled, true); /* freed when its answer comes by */
        *kp = NULL;
    }
}
