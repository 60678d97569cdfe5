#include "server/serve/hot.h"

#include <stdlib.h>

#include "server/serve/rendering.h"

enum {
    CLOCK_SLACK_S = 60, /* a clock set back further makes nothing fresh */
    NAME_BYTES = 2048,
};

struct hot_table {
    struct hot *by_name;
    struct list lru; /* front: used last */
    size_t entries;
    size_t entries_max;
    size_t files; /* descriptors that they hold */
    size_t files_max;
    uint64_t bytes; /* of documents and small blobs */
    uint64_t bytes_max;
};

struct slice hot_name(const struct http_req *req, const struct repo *r, struct slice path)
{
    struct slice rest = slice_of(path.p, (size_t)(req->target.p + req->target.n - path.p));
    struct slice accept;

    if ((req->method != METHOD_GET && req->method != METHOD_HEAD) || !r->anonymous_read ||
        path.p == NULL || rest.n > NAME_BYTES ||
        (r->by_caller && http_req_field(req, "authorization").p != NULL)) {
        return SLICE_NONE;
    }
    /* Documents and listings depend on Accept; files, nearly all of the traffic, do not. */
    if (r->ops->rewrite != NULL || r->origin == NULL) {
        accept = http_req_list(req, "accept");
        return accept.n > NAME_BYTES ? SLICE_NONE
                                     : arena_fmt(req->arena, "%s/" SLICE_FMT " " SLICE_FMT, r->name,
                                                 SLICE_ARG(rest), SLICE_ARG(accept));
    }
    return arena_fmt(req->arena, "%s/" SLICE_FMT, r->name, SLICE_ARG(rest));
}

struct hot_table *hot_open(size_t entries, size_t files_max, uint64_t bytes_max)
{
    struct hot_table *t = NEW(struct hot_table);

    t->entries_max = entries;
    t->files_max = files_max;
    t->bytes_max = bytes_max;
    list_init(&t->lru);
    return t;
}

static const struct blob *blob_of(const struct hot *h)
{
    return h->answer != NULL ? h->answer->blob : h->blob;
}

static size_t files_of(const struct hot *h)
{
    const struct blob *b = blob_of(h);

    return (b != NULL && blob_fd(b) != -1) || (h->rendering != NULL && h->rendering->fd != -1);
}

static uint64_t weight(const struct hot *h)
{
    const struct blob *b = blob_of(h);

    return h->bytes.n + (h->rendering != NULL ? h->rendering->size_bytes : 0) +
           (b != NULL && blob_fd(b) == -1 ? blob_size_bytes(b) : 0);
}

static void take_out(struct hot_table *t, struct hot *h)
{
    HASH_DEL(t->by_name, h);
    list_remove(&h->lru);
    t->entries--;
    t->files -= files_of(h);
    t->bytes -= weight(h);
    hot_release(&h);
}

void hot_close(struct hot_table **tp)
{
    struct hot_table *t = *tp;

    if (t == NULL) {
        return;
    }
    *tp = NULL;
    while (!list_empty(&t->lru)) {
        take_out(t, LIST_ITEM(t->lru.next, struct hot, lru));
    }
    free(t);
}

struct hot *hot_find(struct hot_table *t, const struct repo *r, struct slice name, uint64_t unix_s)
{
    struct hot *h;

    HASH_FIND(hh, t->by_name, name.p, name.n, h);
    if (h == NULL) {
        return NULL;
    }
    if (h->repo != r || h->generation != r->generation || h->fresh_until_unix_s <= unix_s ||
        (h->fresh_until_unix_s != UINT64_MAX && h->stored_unix_s > unix_s + CLOCK_SLACK_S)) {
        take_out(t, h);
        return NULL;
    }
    if (t->lru.next != &h->lru) {
        list_remove(&h->lru);
        list_push_front(&t->lru, &h->lru);
    }
    return h;
}

struct hot *hot_new(struct repo_set *set, struct repo *r, struct slice name, struct slice key)
{
    struct hot *h = NEW(struct hot);

    h->holds = 1;
    h->set = set;
    atomic_fetch_add(&set->holds, 1);
    h->repo = r;
    h->generation = r->generation;
    h->name = arena_copy(&h->arena, name);
    h->key = arena_copy(&h->arena, key);
    h->bytes = BUF_INIT(SIZE_MAX / 4);
    return h;
}

void hot_add(struct hot_table *t, struct hot *h)
{
    struct hot *old;

    HASH_FIND(hh, t->by_name, h->name.p, h->name.n, old);
    if (old != NULL) {
        take_out(t, old);
    }
    while (!list_empty(&t->lru) &&
           (t->entries >= t->entries_max || t->files + files_of(h) > t->files_max ||
            t->bytes + weight(h) > t->bytes_max)) {
        take_out(t, LIST_ITEM(t->lru.prev, struct hot, lru));
    }
    HASH_ADD_KEYPTR(hh, t->by_name, h->name.p, h->name.n, h);
    list_push_front(&t->lru, &h->lru);
    t->entries++;
    t->files += files_of(h);
    t->bytes += weight(h);
    hot_hold(h);
}

struct hot *hot_hold(struct hot *h)
{
    h->holds++;
    return h;
}

void hot_release(struct hot **hp)
{
    struct hot *h = *hp;

    if (h == NULL) {
        return;
    }
    *hp = NULL;
    CHECK(h->holds > 0);
    if (--h->holds != 0) {
        return;
    }
    answer_release(&h->answer);
    blob_release(&h->blob);
    rendering_release(&h->rendering);
    buf_free(&h->bytes);
    arena_fini(&h->arena);
    repo_set_release(&h->set);
    free(h);
}

void hot_forget(struct hot_table *t, struct slice repo, struct slice key)
{
    if (t == NULL) {
        return; /* emptied: we are stopping, and a fill had its say */
    }
    LIST_EACH (&t->lru, n) {
        struct hot *h = LIST_ITEM(n, struct hot, lru);
        if ((key.p == NULL || slice_eq(h->key, key)) && slice_eqs(repo, h->repo->name)) {
            take_out(t, h);
        }
    }
}
