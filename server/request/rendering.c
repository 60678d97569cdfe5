#include "server/request/rendering.h"

#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

enum {
    RENDERING_MAGIC = 0x72656e64,
    MAKERS = 3, /* one client has two of them at most (fair_queue.h) */
    MAKERS_NICE = 5,
    SMALL_BYTES = 1 << 20,    /* in memory rather than in a file */
    MEMORY_BYTES = 256 << 20, /* for all of them */
    RECENT_BYTES =
        64
        << 20, /* kept for whoever comes next: a fetch that ends voids what loops have resolved */
    RECENT_MAX = 1024,
    WRITE_BYTES = 1 << 20,
};

struct renderings {
    struct store *store;
    struct pool *disk;
    struct pool *makers;
    struct lock lock;
    struct box *by_key; /* under the lock, as the rest */
    struct list recent; /* used last in front; each is held */
    uint64_t recent_bytes;
    unsigned recent_count;
    struct rendering_stats stats;
};

struct waiter {
    struct list node;
    struct message message;
    struct request *request; /* held: the maker may look at what is the first one's */
    struct box *box;         /* held */
    void (*done)(struct request *c, struct rendering *r, int rc, const struct err *why);
};

struct box { /* what others see of it is `pub` */
    struct rendering pub;
    uint32_t magic;
    UT_hash_handle hh;
    struct renderings *all;
    struct repo_set *set; /* held: the key has a pointer into it */
    struct buf key;
    uint64_t client; /* who asked first */
    unsigned holds;  /* under the lock, as these: */
    bool ready;
    bool listed;
    struct list recent;
    struct list waiters;
    const struct rendering_work *what;
    void *arg;
    struct job job;
    struct buf out;
    struct stage *stage;
    uint64_t memory_bytes; /* of the budget */
    int rc;
    struct err why;
};

static struct box *box_of(struct rendering *r)
{
    struct box *x = CONTAINER_OF(r, struct box, pub);
    CHECK(x->magic == RENDERING_MAGIC);
    return x;
}

/* --- its end ---------------------------------------------------------------------------------- */

static void box_free(struct box *x)
{
    stage_abort(&x->stage);
    buf_free(&x->out);
    buf_free(&x->key);
    free(x->pub.next);
    repo_set_release(&x->set);
    x->magic = 0;
    free(x);
}

static void free_job(struct job *j)
{
    box_free(CONTAINER_OF(j, struct box, job));
}

/* Under the lock. */
static void unlist(struct box *x)
{
    if (x->listed) {
        HASH_DEL(x->all->by_key, x);
        x->listed = false;
    }
}

static void box_release(struct box *x)
{
    struct renderings *all = x->all;
    bool last;

    lock_take(&all->lock);
    CHECK(x->holds > 0);
    last = --x->holds == 0;
    if (last) {
        unlist(x);
        all->stats.memory_bytes -= x->memory_bytes;
        all->stats.file_bytes -= x->stage != NULL ? x->pub.size_bytes : 0;
    }
    lock_drop(&all->lock);
    if (last && x->stage != NULL) { /* the last close of a large file takes its time */
        x->job = (struct job){.work = free_job};
        pool_submit(all->disk, &x->job, x->client);
    } else if (last) {
        box_free(x);
    }
}

struct rendering *rendering_hold(struct rendering *r)
{
    struct box *x = box_of(r);

    lock_take(&x->all->lock);
    x->holds++;
    lock_drop(&x->all->lock);
    return r;
}

void rendering_release(struct rendering **rp)
{
    struct rendering *r = *rp;

    *rp = NULL;
    if (r != NULL) {
        box_release(box_of(r));
    }
}

/* --- the making ------------------------------------------------------------------------------- */

static bool take_memory(struct box *x, uint64_t n)
{
    struct renderings *all = x->all;
    bool fits;

    lock_take(&all->lock);
    fits = all->stats.memory_bytes + n <= MEMORY_BYTES;
    if (fits) {
        all->stats.memory_bytes += n;
        x->memory_bytes = n;
    }
    lock_drop(&all->lock);
    return fits;
}

static int move_to_file(struct box *x, struct err *e)
{
    struct stage *st = NULL;
    int rc = stage_open(x->all->store, x->out.n, false, &st, e);

    for (size_t at = 0; rc == 0 && at < x->out.n; at += WRITE_BYTES) {
        rc = stage_write(st, x->out.p + at, (size_t)min_u64(WRITE_BYTES, x->out.n - at), at, e);
    }
    if (rc != 0) {
        stage_abort(&st);
        return rc;
    }
    buf_free(&x->out);
    x->stage = st;
    x->pub.fd = stage_fd(st);
    lock_take(&x->all->lock);
    x->all->stats.file_bytes += x->pub.size_bytes;
    lock_drop(&x->all->lock);
    return 0;
}

/* On a full disk memory is all there is. */
static int put_away(struct box *x, struct err *e)
{
    char hex[DIGEST_HEX + 1];
    struct digest d;
    int rc;

    digest_of(buf_slice(&x->out), &d);
    digest_format(&d, hex);
    snprintf(x->pub.etag, sizeof x->pub.etag, "\"%.32s\"", hex);
    x->pub.size_bytes = x->out.n;
    if (x->out.n > SMALL_BYTES || !take_memory(x, x->out.n)) {
        rc = move_to_file(x, e);
        if (rc == 0 || !take_memory(x, x->out.n)) {
            return rc;
        }
    }
    x->pub.bytes = x->out.p;
    return 0;
}

/* --- those used last -------------------------------------------------------------------------- */

/* Under the lock. */
static void take_recent(struct box *x)
{
    list_remove(&x->recent);
    x->all->recent_bytes -= x->pub.size_bytes;
    x->all->recent_count--;
}

/* Under the lock. The one to be released, or NULL: all that are left may stay. */
static struct box *recent_excess(struct renderings *all, uint64_t bytes_max, unsigned count_max)
{
    struct box *x;

    if (all->recent_bytes <= bytes_max && all->recent_count <= count_max) {
        return NULL;
    }
    x = LIST_ITEM(all->recent.prev, struct box, recent);
    take_recent(x);
    return x;
}

static void trim_recent(struct renderings *all, uint64_t bytes_max, unsigned count_max)
{
    struct box *x;

    do {
        lock_take(&all->lock);
        x = recent_excess(all, bytes_max, count_max);
        lock_drop(&all->lock);
        if (x != NULL) {
            box_release(x);
        }
    } while (x != NULL);
}

/* Under the lock. */
static void use(struct box *x)
{
    if (list_linked(&x->recent)) {
        take_recent(x);
    } else {
        x->holds++;
    }
    list_push_front(&x->all->recent, &x->recent);
    x->all->recent_bytes += x->pub.size_bytes;
    x->all->recent_count++;
}

/* --- telling ---------------------------------------------------------------------------------- */

static void on_reported(struct message *l)
{
    struct waiter *w = CONTAINER_OF(l, struct waiter, message);
    struct box *x = w->box;

    if (w->request->x != NULL) {
        w->done(w->request, x->rc == 0 ? &x->pub : NULL, x->rc, &x->why);
    }
    box_release(x);
    request_release(&w->request);
    free(w);
}

static void notify_rendering_waiter(struct waiter *w)
{
    w->message.deliver = on_reported;
    message_queue_post(w->request->serve_loop->loop->mail, &w->message);
}

static void make_rendering(struct job *j)
{
    struct box *x = CONTAINER_OF(j, struct box, job);
    struct list waiters;
    struct list *n;

    x->rc = x->what->make(x->arg, &x->out, &x->pub, &x->why);
    x->what->free(x->arg); /* before the first waiter lets its call go */
    x->rc = x->rc != 0 ? x->rc : put_away(x, &x->why);
    list_init(&waiters);
    lock_take(&x->all->lock);
    x->ready = true;
    if (x->rc == 0 && x->listed) {
        use(x);
    } else {
        unlist(x); /* the next one tries again */
    }
    while ((n = list_pop_front(&x->waiters)) != NULL) {
        list_push_back(&waiters, n);
    }
    lock_drop(&x->all->lock);
    while ((n = list_pop_front(&waiters)) != NULL) {
        notify_rendering_waiter(LIST_ITEM(n, struct waiter, node));
    }
    trim_recent(x->all, RECENT_BYTES, RECENT_MAX);
    box_release(x);
}

/* --- the asking ------------------------------------------------------------------------------- */

/* Under the lock. shared: others find it. */
static struct box *box_new(struct renderings *all, struct request *c, struct buf *key, bool shared)
{
    struct box *x = NEW(struct box);

    x->magic = RENDERING_MAGIC;
    x->pub.fd = -1;
    x->all = all;
    x->set = repo_set_share(c->set);
    x->client = c->who.client;
    x->key = *key;
    *key = BUF_INIT(0);
    list_init(&x->waiters);
    x->holds = 1; /* the job's */
    x->listed = shared;
    if (shared) {
        HASH_ADD_KEYPTR(hh, all->by_key, x->key.p, x->key.n, x);
    }
    return x;
}

void rendering_ask(struct request *c, struct slice key, size_t bytes_max,
                   const struct rendering_work *what, void *arg,
                   void (*done)(struct request *c, struct rendering *r, int rc,
                                const struct err *why))
{
    struct renderings *all = c->serve_loop->serve->renderings;
    struct waiter *w = NEW(struct waiter);
    struct buf whole = BUF_INIT(sizeof c->repo + sizeof c->repo_generation + key.n);
    struct box *x = NULL;
    bool begun;
    bool ready;

    w->request = request_hold(c);
    w->done = done;
    buf_add(&whole, &c->repo, sizeof c->repo);
    buf_add(&whole, &c->repo_generation, sizeof c->repo_generation);
    buf_adds(&whole, key);
    CHECK(whole.rc == 0);
    lock_take(&all->lock);
    if (key.p != NULL) {
        HASH_FIND(hh, all->by_key, whole.p, whole.n, x);
    }
    begun = x == NULL;
    if (begun) {
        x = box_new(all, c, &whole, key.p != NULL);
    }
    all->stats.made += begun;
    all->stats.shared += !begun;
    ready = x->ready;
    x->holds++;
    w->box = x;
    if (ready) {
        use(x);
    } else {
        list_push_back(&x->waiters, &w->node);
    }
    lock_drop(&all->lock);
    buf_free(&whole);
    if (begun) {
        x->what = what;
        x->arg = arg;
        x->out = BUF_INIT(bytes_max);
        x->job.work = make_rendering;
        pool_submit(all->makers, &x->job, x->client);
    } else {
        what->free(arg);
        pool_move(all->makers, &x->job, c->who.client);
    }
    if (ready) {
        trim_recent(all, RECENT_BYTES, RECENT_MAX);
        notify_rendering_waiter(w);
    }
}

/* --- all of them ------------------------------------------------------------------------------ */

struct renderings *renderings_open(struct store *s, struct pool *disk)
{
    struct renderings *all = NEW(struct renderings);

    all->store = s;
    all->disk = disk;
    all->makers = pool_open("maker", MAKERS, MAKERS_NICE);
    lock_init(&all->lock, LOCK_LEAF);
    list_init(&all->recent);
    return all;
}

void renderings_stats(struct renderings *all, struct rendering_stats *out)
{
    lock_take(&all->lock);
    *out = all->stats;
    lock_drop(&all->lock);
}

void renderings_stop(struct renderings *all)
{
    pool_close(&all->makers);
    trim_recent(all, 0, 0);
}

void renderings_close(struct renderings **allp)
{
    struct renderings *all = *allp;

    *allp = NULL;
    if (all != NULL) {
        CHECK(all->by_key == NULL && all->makers == NULL);
        lock_fini(&all->lock);
        free(all);
    }
}
