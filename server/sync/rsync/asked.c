#include "server/sync/rsync/asked.h"

bool asked_has_room(const struct asked_queue *q)
{
    return q->writing.count != 0 || q->n < ASKED_MAX;
}

void asked_add(struct asked_queue *q, int32_t index, uint64_t listed_bytes,
               const struct sums_head *head)
{
    CHECK(q->writing.count == 0 && q->n < ASKED_MAX);
    q->ring[(q->first + q->n++) % ASKED_MAX] = (struct asked){index, listed_bytes, *head};
    q->writing = *head;
    q->writing_next = 0;
}

bool asked_wrote_block(struct asked_queue *q)
{
    if (++q->writing_next < q->writing.count) {
        return false;
    }
    q->writing.count = 0;
    return true;
}

struct asked *asked_first(struct asked_queue *q)
{
    while (q->n > 0 && q->ring[q->first].index < 0) {
        q->first = (q->first + 1) % ASKED_MAX;
        q->n--;
    }
    return q->n > 0 ? &q->ring[q->first] : NULL;
}

bool asked_fits(struct asked_queue *q, int32_t index, const struct sums_head *h)
{
    const struct asked *a = asked_first(q);

    if (a == NULL || a->index != index || (q->writing.count != 0 && q->n == 1)) {
        return false;
    }
    return h->count == 0 || /* literals alone are always right */
           (h->count == a->head.count && h->block_bytes == a->head.block_bytes &&
            h->remainder == a->head.remainder);
}

bool asked_strike(struct asked_queue *q, int32_t index)
{
    unsigned whole =
        q->n - (q->writing.count != 0); /* the last is not, while it is being written */

    for (unsigned i = 0; i < whole && index >= 0; i++) {
        struct asked *a = &q->ring[(q->first + i) % ASKED_MAX];
        if (a->index == index) {
            a->index = -1;
            return true;
        }
    }
    return false;
}

bool asked_is_empty(struct asked_queue *q)
{
    return asked_first(q) == NULL && q->writing.count == 0;
}
