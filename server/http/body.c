#include "server/http/body.h"

#include <stdlib.h>

#include "server/http/msg.h"

static void close_memory(struct body *b)
{
    free(b);
}

static const struct body_ops memory_ops = {.close = close_memory};

struct body *body_of_bytes(struct slice s)
{
    struct body *b = mem_new(sizeof *b + s.n);
    char *copy = (char *)(b + 1);

    if (s.n != 0) {
        memcpy(copy, s.p, s.n);
    }
    *b = (struct body){.ops = &memory_ops, .end = s.n, .fd = -1, .bytes = copy};
    return b;
}

int body_follow(struct body *b)
{
    uint64_t upto = b->off;

    while (b->ops->poll != NULL) {
        int rc = b->ops->poll(b, &upto);
        if (rc != 0) {
            return rc;
        }
        if (b->end != LENGTH_UNKNOWN && upto >= b->end) {
            break;
        }
        if (upto == b->off) {
            return 0; /* it wakes us: a poll that finds nothing new notes who waits */
        }
        b->off = upto;
    }
    return 1;
}
