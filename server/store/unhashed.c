#include "server/store/unhashed.h"

#include <stdlib.h>

struct block {
    struct list node;
    uint64_t at;
    struct buf bytes;
};

void unhashed_init(struct unhashed *r)
{
    list_init(&r->blocks);
    r->bytes = 0;
}

static struct block *first_of(struct unhashed *r)
{
    return list_empty(&r->blocks) ? NULL : LIST_ITEM(r->blocks.next, struct block, node);
}

static void block_remove(struct unhashed *r, struct block *b)
{
    r->bytes -= b->bytes.n;
    list_remove(&b->node);
}

static void block_free(struct block *b)
{
    buf_free(&b->bytes);
    free(b);
}

void unhashed_put(struct unhashed *r, uint64_t at, struct buf *block)
{
    struct block *b = NEW(struct block);

    b->at = at;
    b->bytes = *block;
    *block = BUF_INIT(block->max);
    r->bytes += b->bytes.n;
    list_push_back(&r->blocks, &b->node);
}

void unhashed_take(struct unhashed *from, uint64_t upto, struct unhashed *to)
{
    struct block *b;

    while ((b = first_of(from)) != NULL && b->at + b->bytes.n <= upto) {
        block_remove(from, b);
        to->bytes += b->bytes.n;
        list_push_back(&to->blocks, &b->node);
    }
}

int unhashed_hash(struct unhashed *r, struct hasher *h, int fd, uint64_t upto, struct err *e)
{
    struct block *b;
    int rc = 0;

    while (rc == 0 && (b = first_of(r)) != NULL) {
        if (b->at > hasher_count(h)) {
            rc = hasher_add_file(h, fd, min_u64(b->at, upto), e);
        }
        if (rc == 0 && b->at == hasher_count(h) && b->at + b->bytes.n <= upto) {
            hasher_add(h, b->bytes.p, b->bytes.n);
        }
        block_remove(r, b);
        block_free(b);
    }
    unhashed_drop(r);
    return rc == 0 ? hasher_add_file(h, fd, upto, e) : rc;
}

void unhashed_drop(struct unhashed *r)
{
    struct block *b;

    while ((b = first_of(r)) != NULL) {
        block_remove(r, b);
        block_free(b);
    }
}
