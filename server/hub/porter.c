#include "server/hub/porter.h"

#include <stdlib.h>

#include "common/os/newfile.h"

enum { PORTER_MAGIC = 0x706f7274 };

struct porter {
    uint32_t magic;
    struct porters *all;
    struct cache *cache;
    struct loop *loop;
    struct want want;
    struct letter begins, ends;
    _Atomic uint64_t done_bytes;
    /* The loop's, until it is over. */
    struct cache_ask *ask;
    bool answered; /* inside cache_want() */
    struct answer *answer;
    struct body *body;
    int rc;
    struct err why;
    /* Under all->lock. */
    bool over, ended;
};

void porters_init(struct porters *ps)
{
    lock_init(&ps->lock, LOCK_LEAF);
    cond_init(&ps->news);
}

void porters_fini(struct porters *ps)
{
    cond_fini(&ps->news);
    lock_fini(&ps->lock);
}

void porters_wait(struct porters *ps, uint64_t *seen, uint64_t ms)
{
    lock_take(&ps->lock);
    if (ps->finished == *seen) {
        (void)cond_wait_ms(&ps->news, &ps->lock, ms);
    }
    *seen = ps->finished;
    lock_drop(&ps->lock);
}

/* --- on the loop -------------------------------------------------------------------------------------------------- */

static void finish(struct porter *p, int rc)
{
    p->rc = rc;
    lock_take(&p->all->lock);
    p->over = true;
    p->all->finished++;
    cond_broadcast(&p->all->news);
    lock_drop(&p->all->lock);
}

/* As far as it has come; the last 64 KiB show when all of it was found right. */
static void look(void *arg)
{
    struct porter *p = arg;
    struct body *b = p->body;
    int rc = body_follow(b);

    atomic_store_explicit(&p->done_bytes, rc > 0 ? b->end : b->off, memory_order_relaxed);
    if (rc == 0) {
        return;
    }
    b->wake = NULL;
    finish(p, rc > 0 ? 0 : err_set(&p->why, rc, "it broke off, or was not what was promised"));
}

static void on_answer(void *arg, struct answer *a)
{
    struct porter *p = arg;

    CHECK(p->magic == PORTER_MAGIC);
    p->ask = NULL;
    p->answered = true;
    p->answer = a;
    if (a->status != 200) {
        int rc = answer_rc(a);
        if (a->why.code != 0) {
            p->why = a->why;
        } else {
            err_set(&p->why, rc, "the origin answers %d", a->status);
        }
        finish(p, rc);
        return;
    }
    if (p->want.head_only) { /* it has no bytes */
        finish(p, 0);
        return;
    }
    p->body = answer_body(p->cache, a, p->loop, 0, a->total_bytes);
    p->body->wake = look;
    p->body->wake_arg = p;
    look(p);
}

static void begin(struct letter *l)
{
    struct porter *p = CONTAINER_OF(l, struct porter, begins);
    struct cache_ask *ask = cache_want(p->cache, p->loop, &p->want, on_answer, p);

    if (!p->answered) {
        p->ask = ask;
    }
}

static void end(struct letter *l)
{
    struct porter *p = CONTAINER_OF(l, struct porter, ends);

    cache_cancel(&p->ask);
    body_close(&p->body);
    answer_release(&p->answer);
    lock_take(&p->all->lock);
    p->ended = true;
    cond_broadcast(&p->all->news);
    lock_drop(&p->all->lock);
}

/* --- the thread's side -------------------------------------------------------------------------------------------- */

struct porter *porter_start(struct porters *ps, struct cache *c, struct loop *l,
                            const struct want *w)
{
    struct porter *p = NEW(struct porter);

    p->magic = PORTER_MAGIC;
    p->all = ps;
    p->cache = c;
    p->loop = l;
    p->want = *w;
    p->want.hint_first = 0;
    p->want.hint_end = LENGTH_UNKNOWN;
    p->want.hint_suffix = 0;
    p->begins.deliver = begin;
    mailbox_post(l->mail, &p->begins);
    return p;
}

bool porter_over(struct porter *p)
{
    bool over;

    lock_take(&p->all->lock);
    over = p->over;
    lock_drop(&p->all->lock);
    return over;
}

uint64_t porter_done_bytes(const struct porter *p)
{
    return atomic_load_explicit(&p->done_bytes, memory_order_relaxed);
}

int porter_rc(const struct porter *p, struct err *why)
{
    if (p->rc != 0 && why != NULL) {
        *why = p->why;
    }
    return p->rc;
}

const struct answer *porter_answer(const struct porter *p)
{
    return p->answer;
}

int porter_read(const struct porter *p, struct buf *out, struct err *e)
{
    const struct body *b = p->body;
    char *to = b->end < out->max ? buf_room(out, (size_t)b->end) : NULL;
    int rc = 0;

    if (to == NULL) {
        return err_set(e, E_TOOBIG, "a document of the origin is too large");
    }
    if (b->fd == -1) {
        memcpy(to, b->bytes, (size_t)b->end);
    } else {
        rc = fd_pread_all(b->fd, to, (size_t)b->end, 0, e);
    }
    buf_grew(out, rc == 0 ? (size_t)b->end : 0);
    return rc;
}

void porter_end(struct porter **pp)
{
    struct porter *p = *pp;
    struct porters *all;

    *pp = NULL;
    if (p == NULL) {
        return;
    }
    all = p->all;
    p->ends.deliver = end; /* letters keep their order: it has begun by then */
    mailbox_post(p->loop->mail, &p->ends);
    lock_take(&all->lock);
    while (!p->ended) {
        cond_wait(&all->news, &all->lock);
    }
    lock_drop(&all->lock);
    p->magic = 0;
    free(p);
}
