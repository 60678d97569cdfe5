#include <stdlib.h>

#include "server/cache/cache_priv.h"

enum { READER_MAGIC = 0x72656164 };

struct reader { /* a body that follows a fill */
    struct body body;
    uint32_t magic;
    struct fill *fill;     /* held by the answer */
    struct answer *answer; /* held */
    struct fill_reader at;
    bool waiting;
};

static struct reader *reader_of(struct body *b)
{
    struct reader *r = CONTAINER_OF(b, struct reader, body);
    CHECK(r->magic == READER_MAGIC);
    return r;
}

static void wake(struct fill_reader *at)
{
    struct reader *r = CONTAINER_OF(at, struct reader, at);

    CHECK(r->magic == READER_MAGIC);
    if (r->waiting && r->body.wake != NULL) {
        r->waiting = false;
        r->body.wake(r->body.wake_arg);
    }
}

static int reader_poll(struct body *b, uint64_t *upto)
{
    struct reader *r = reader_of(b);
    int rc = fill_read(r->fill, &r->at, b->off, &b->end, upto);

    r->waiting = r->waiting || (rc == 0 && *upto == b->off && b->off < b->end);
    return rc;
}

static void reader_close(struct body *b)
{
    struct reader *r = reader_of(b);

    fill_leave(r->fill, &r->at);
    r->magic = 0;
    answer_release(&r->answer);
    free(r);
}

struct body *reader_new(struct fill *f, struct answer *a, struct loop *l, uint64_t first,
                        uint64_t end)
{
    static const struct body_ops ops = {.poll = reader_poll, .close = reader_close};
    struct reader *r = NEW(struct reader);
    int fd;

    r->magic = READER_MAGIC;
    r->fill = f;
    r->answer = answer_hold(a);
    r->at.wake = wake;
    fd = fill_join(f, &r->at, l, first, &end);
    r->body = (struct body){.ops = &ops, .off = first, .end = end, .fd = fd};
    return &r->body;
}
