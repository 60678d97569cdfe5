#include <stdlib.h>

#include "common/os/clock.h"
#include "server/cache/cache_priv.h"

enum { READER_MAGIC = 0x72656164, TAIL_BYTES = 1 << 20 };

struct reader { /* a body that follows a fill */
    struct body body;
    uint32_t magic;
    struct fill *fill;     /* held by the answer */
    struct answer *answer; /* held */
    struct audience *audience;
    struct list node;    /* in the audience: its loop's */
    struct list stalled; /* in the fill: under its lock */
    uint64_t need_at;    /* the same */
    uint64_t need_end;
    uint64_t first;
    uint64_t born_ms;
    bool whole; /* reaches the end: its tail is withheld until the digest holds */
    bool waiting;
};

static struct reader *reader_of(struct body *b)
{
    struct reader *r = CONTAINER_OF(b, struct reader, body);
    CHECK(r->magic == READER_MAGIC);
    return r;
}

void reader_wake(struct list *node)
{
    struct reader *r = LIST_ITEM(node, struct reader, node);

    CHECK(r->magic == READER_MAGIC);
    if (r->waiting && r->body.wake != NULL) {
        r->waiting = false;
        r->body.wake(r->body.wake_arg);
    }
}

bool reader_need(struct fill *f, struct reader_need *out)
{
    struct list *it = list_pop_front(&f->stalled);

    if (it != NULL) {
        struct reader *r = LIST_ITEM(it, struct reader, stalled);
        *out = (struct reader_need){r->need_at, r->need_end};
    }
    return it != NULL;
}

/* How far this reader may see. Under the lock. */
static uint64_t horizon(const struct reader *r, uint64_t there)
{
    const struct fill *f = r->fill;
    uint64_t known = f->total_bytes != LENGTH_UNKNOWN ? f->total_bytes : there;

    if (!r->whole || f->verified) {
        return there;
    }
    return min_u64(there, known > WITHHELD_BYTES ? known - WITHHELD_BYTES : 0);
}

/* Nothing to send yet: the audience is told when there is; and the fill, when nobody fetches these bytes. */
static void wait_here(struct reader *r, uint64_t there)
{
    struct fill *f = r->fill;

    r->waiting = true;
    r->audience->wanted = true;
    if (there == r->body.off &&
        !claims_cover(&f->claims, &f->have, r->body.off, f->cache->set.jump_bytes) &&
        !list_linked(&r->stalled)) {
        r->need_at = r->body.off;
        list_push_back(&f->stalled, &r->stalled);
        fill_post_demand(f);
    }
}

static int reader_poll(struct body *b, uint64_t *upto)
{
    struct reader *r = reader_of(b);
    struct fill *f = r->fill;
    uint64_t there;
    uint64_t limit;
    uint64_t now = clock_now_ms();
    int rc = 0;

    lock_take(&f->lock);
    if (f->total_bytes != LENGTH_UNKNOWN && b->end > f->total_bytes) {
        b->end = f->total_bytes;
    }
    there = extents_until(&f->have, b->off);
    limit = min_u64(horizon(r, there), b->end);
    *upto = max_u64(limit, b->off);
    if (f->rc != 0) {
        rc = f->rc; /* nothing of a fill that failed may look complete */
    } else if (*upto == b->off && b->off < b->end) {
        if (b->off == r->first && fill_is_troubled(f, r->born_ms, now)) {
            rc = f->trouble.code; /* nothing was sent: that can still be said */
            f->gave_up_ms = now;
        } else {
            wait_here(r, there);
        }
    }
    lock_drop(&f->lock);
    return rc;
}

static void reader_close(struct body *b)
{
    struct reader *r = reader_of(b);
    struct fill *f = r->fill;

    list_remove_if(&r->node);
    lock_take(&f->lock);
    list_remove_if(&r->stalled);
    f->readers--;
    lock_drop(&f->lock);
    r->magic = 0;
    answer_release(&r->answer);
    free(r);
}

/* Under the lock. */
static struct audience *audience_of(struct fill *f, struct loop *l)
{
    struct audience *a;

    LIST_EACH (&f->audiences, it) {
        a = LIST_ITEM(it, struct audience, node);
        if (a->loop == l) {
            return a;
        }
    }
    a = NEW(struct audience);
    a->fill = f;
    a->loop = l;
    list_init(&a->readers);
    list_push_back(&f->audiences, &a->node);
    return a;
}

/* Are the bytes before a range that reaches the end no more than the range itself? Then it is the rest of a whole file that is
 * read on, and not a peek at its end. Under the lock. */
static bool is_the_rest(const struct fill *f, uint64_t first, uint64_t end)
{
    struct extents before = {0};
    uint64_t missing;

    extents_copy(&before, &f->have);
    extents_add(&before, first, UINT64_MAX);
    missing = first - (extents_bytes(&before) - (UINT64_MAX - first));
    extents_fini(&before);
    return missing <= end - first;
}

struct body *reader_new(struct fill *f, struct answer *a, struct loop *l, uint64_t first,
                        uint64_t end)
{
    static const struct body_ops ops = {.poll = reader_poll, .close = reader_close};
    struct reader *r = NEW(struct reader);

    r->magic = READER_MAGIC;
    r->body = (struct body){.ops = &ops, .off = first, .end = end, .fd = f->fd};
    r->fill = f;
    r->answer = answer_hold(a);
    r->need_end = end;
    r->first = first;
    r->born_ms = clock_now_ms();
    lock_take(&f->lock);
    f->readers++;
    if (f->total_bytes != LENGTH_UNKNOWN) {
        r->body.end = min_u64(end, f->total_bytes);
    }
    /* A short range at the end is what lazy readers ask first; whoever reads on to the end wants a whole file. */
    r->whole =
        (f->want.digest_known || f->want.git_known || f->want.sha512_known ||
         f->want.reader != NULL) &&
        r->body.end >= f->total_bytes &&
        (first == 0 || (r->body.end - first > TAIL_BYTES && is_the_rest(f, first, r->body.end)));
    if (first == 0 && r->body.end >= f->total_bytes) {
        f->whole_wanted = true;
    }
    f->whole_wanted = f->whole_wanted || r->whole;
    if (f->whole_wanted && !f->want_all) {
        fill_post_demand(f);
    }
    r->audience = audience_of(f, l);
    lock_drop(&f->lock);
    list_push_back(&r->audience->readers, &r->node);
    return &r->body;
}
