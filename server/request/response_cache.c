#include "server/request/response_cache.h"

#include <stdlib.h>

#include "common/os/clock.h"

#include "server/request/rendering.h"

enum {
    CLOCK_SLACK_S = 60, /* a clock set back further makes nothing fresh */
    NAME_BYTES = 2048,
    KEY_SLOTS = 1024, /* a fetch that ends forgets its key: not a walk through the whole table */
};

struct response_cache {
    /* slots, two for each entry: a walk would be a cache miss a step */
    struct cached_response **by_name;
    size_t mask;
    uint64_t number; /* the last reply's */
    struct list lru; /* front: used last, to the second */
    struct list by_key[KEY_SLOTS];
    size_t entries;
    size_t entries_max;
    size_t files; /* descriptors that they hold */
    size_t files_max;
    uint64_t bytes; /* of documents and small blobs */
    uint64_t bytes_max;
};

static char *put_response_key(char *to, char before, struct slice s)
{
    *to++ = before;
    return s.n != 0 ? (char *)memcpy(to, s.p, s.n) + s.n : to;
}

/* The fields by which the origin may tell answers apart, in the repo's order. */
static struct slice forwarded(const struct http_req *req, const struct repo *r)
{
    struct buf b = BUF_INIT(NAME_BYTES);
    struct slice s = SLICE_NONE;

    for (size_t i = 0; i < r->forwards; i++) {
        struct slice value = http_req_list(req, r->forward[i]);
        buf_byte(&b, '\n');
        if (value.p != NULL) {
            buf_byte(&b, ':');
            buf_adds(&b, value);
        }
    }
    if (b.rc == 0) {
        s = arena_copy(req->arena, buf_slice(&b));
    }
    buf_free(&b);
    return s;
}

struct slice cached_response_name(const struct http_req *req, const struct repo *r,
                                  struct slice path, bool by_target)
{

    const char *from = by_target ? req->target.p : path.p;
    struct slice rest = slice_of(from, (size_t)(req->target.p + req->target.n - from));
    struct slice repo = slice_str(r->name);
    struct slice accept = SLICE("");
    bool by_host = r->ops->by_host && r->public_url == NULL;
    struct slice host = by_host ? req->host : SLICE("");
    struct slice forward;
    char *name;
    char *to;

    if ((req->method != METHOD_GET && req->method != METHOD_HEAD) || !r->anonymous_read ||
        path.p == NULL || rest.n > NAME_BYTES) {
        return SLICE_NONE;
    }
    /* Documents and listings depend on Accept; files, nearly all of the traffic, do not. */
    if (r->ops->rewrite != NULL || r->origin == NULL) {
        accept = http_req_list(req, "accept");
    }
    if (accept.n > NAME_BYTES || host.n > NAME_BYTES) {
        return SLICE_NONE;
    }
    forward = r->forwards != 0 ? forwarded(req, r) : SLICE("");
    if (forward.p == NULL) {
        return SLICE_NONE;
    }
    name = to = arena_alloc(req->arena, 4 + repo.n + rest.n + accept.n + host.n + forward.n);
    to = put_response_key(to, by_target ? 'v' : by_host && req->tls ? 's' : ' ', repo);
    to = put_response_key(to, '/', rest); /* a target has no blank */
    to = put_response_key(to, ' ', accept);
    to = put_response_key(to, '\n', host);
    if (forward.n != 0) {
        memcpy(to, forward.p, forward.n);
        to += forward.n;
    }
    return slice_of(name, (size_t)(to - name));
}

bool cached_response_serves(const struct cached_response *h, const struct http_req *req)
{
    return (!h->head_only || req->method == METHOD_HEAD) &&
           (h->for_all || !h->repo->by_caller || http_req_field(req, "authorization").p == NULL);
}

struct response_cache *response_cache_open(size_t entries, size_t files_max, uint64_t bytes_max)
{
    struct response_cache *t = NEW(struct response_cache);
    size_t slots = 2;

    while (slots < 2 * entries) {
        slots *= 2;
    }
    t->by_name = mem_array(slots, sizeof t->by_name[0]);
    t->mask = slots - 1;
    t->number = clock_now_ns(); /* above all of the table before it: connections outlive it */
    t->entries_max = entries;
    t->files_max = files_max;
    t->bytes_max = bytes_max;
    list_init(&t->lru);
    for (size_t i = 0; i < KEY_SLOTS; i++) {
        list_init(&t->by_key[i]);
    }
    return t;
}

static const struct blob *blob_of(const struct cached_response *h)
{
    return h->answer != NULL ? h->answer->blob : h->blob;
}

static size_t files_of(const struct cached_response *h)
{
    const struct blob *b = blob_of(h);

    return (b != NULL && blob_fd(b) != -1) || (h->rendering != NULL && h->rendering->fd != -1);
}

static uint64_t weight(const struct cached_response *h)
{
    const struct blob *b = blob_of(h);

    return h->bytes.n + (h->rendering != NULL ? h->rendering->size_bytes : 0) +
           (b != NULL && blob_fd(b) == -1 ? blob_size_bytes(b) : 0);
}

static void take_out(struct response_cache *t, struct cached_response *h)
{
    struct cached_response **at = &t->by_name[h->hash & t->mask];

    while (*at != h) {
        at = &(*at)->next;
    }
    *at = h->next;
    list_remove(&h->lru);
    list_remove(&h->same_key);
    t->entries--;
    t->files -= files_of(h);
    t->bytes -= weight(h);
    cached_response_release(&h);
}

void response_cache_close(struct response_cache **tp)
{
    struct response_cache *t = *tp;

    if (t == NULL) {
        return;
    }
    *tp = NULL;
    while (!list_empty(&t->lru)) {
        take_out(t, LIST_ITEM(t->lru.next, struct cached_response, lru));
    }
    free(t->by_name);
    free(t);
}

static struct cached_response *find_response(const struct response_cache *t, struct slice name,
                                             uint64_t hash)
{
    struct cached_response *h = t->by_name[hash & t->mask];

    while (h != NULL && (h->hash != hash || !slice_eq(h->name, name))) {
        h = h->next;
    }
    return h;
}

static struct list *slot_of(struct response_cache *t, struct slice key)
{
    return &t->by_key[slice_hash(key) % KEY_SLOTS];
}

struct cached_response *response_cache_find(struct response_cache *t, const struct repo *r,
                                            struct slice name, uint64_t unix_s)
{
    struct cached_response *h = find_response(t, name, slice_hash(name));

    if (h == NULL) {
        return NULL;
    }
    if (h->repo != r || h->generation != r->generation || h->fresh_until_unix_s <= unix_s ||
        (h->fresh_until_unix_s != UINT64_MAX && h->stored_unix_s > unix_s + CLOCK_SLACK_S)) {
        take_out(t, h);
        return NULL;
    }
    if (h->moved_unix_s != unix_s) { /* neighbours are far away in memory: not at each hit */
        h->moved_unix_s = unix_s;
        list_remove(&h->lru);
        list_push_front(&t->lru, &h->lru);
    }
    return h;
}

struct cached_response *cached_response_new(struct repo_set *set, struct repo *r, struct slice name,
                                            struct slice key)
{
    struct cached_response *h = NEW(struct cached_response);

    h->holds = 1;
    h->set = repo_set_share(set);
    h->repo = r;
    h->generation = r->generation;
    h->floor_s = r->ops->stale_first ? FLOOR_NEVER : 0;
    h->name = arena_copy(&h->arena, name);
    h->hash = slice_hash(name);
    h->key = arena_copy(&h->arena, key);
    h->bytes = BUF_INIT(SIZE_MAX / 4);
    return h;
}

void response_cache_add(struct response_cache *t, struct cached_response *h)
{
    struct cached_response *old = find_response(t, h->name, h->hash);
    struct cached_response **slot = &t->by_name[h->hash & t->mask];

    if (old != NULL) {
        take_out(t, old);
    }
    while (!list_empty(&t->lru) &&
           (t->entries >= t->entries_max || t->files + files_of(h) > t->files_max ||
            t->bytes + weight(h) > t->bytes_max)) {
        take_out(t, LIST_ITEM(t->lru.prev, struct cached_response, lru));
    }
    h->reply.number = ++t->number;
    h->next = *slot;
    *slot = h;
    list_push_front(&t->lru, &h->lru);
    list_push_back(slot_of(t, h->key), &h->same_key);
    t->entries++;
    t->files += files_of(h);
    t->bytes += weight(h);
    cached_response_hold(h);
}

struct cached_response *cached_response_hold(struct cached_response *h)
{
    h->holds++;
    return h;
}

void cached_response_release(struct cached_response **hp)
{
    struct cached_response *h = *hp;

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

void response_cache_forget(struct response_cache *t, struct slice repo, struct slice key)
{
    if (t == NULL) {
        return; /* emptied: we are stopping, and a fetch had its say */
    }
    if (key.p != NULL) {
        LIST_EACH (slot_of(t, key), n) {
            struct cached_response *h = LIST_ITEM(n, struct cached_response, same_key);
            if (slice_eq(h->key, key) && slice_eqs(repo, h->repo->name)) {
                take_out(t, h);
            }
        }
        return;
    }
    LIST_EACH (&t->lru, n) {
        struct cached_response *h = LIST_ITEM(n, struct cached_response, lru);
        if (slice_eqs(repo, h->repo->name)) {
            take_out(t, h);
        }
    }
}
