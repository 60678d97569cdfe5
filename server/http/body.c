#include "server/http/body.h"

#include <stdlib.h>

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
