/* asked.h - the requests of a visit that have no answer yet, in the order in which they were sent, and the one that is being
 * written.
 *
 * A peer answers in order, but may say out of turn that it cannot send one. A request with a basis is written block by block;
 * its answer cannot begin before the last.
 *
 * owns     nothing; plain values
 * threads  one at a time
 * source   research/sync 1.1 (8-9), 2.4
 */
#ifndef SERVER_SYNC_RSYNC_ASKED_H
#define SERVER_SYNC_RSYNC_ASKED_H

#include "server/sync/rsync/sums.h"

enum { ASKED_MAX = 1000 };

struct asked {
    int32_t index; /* -1: answered out of turn */
    uint64_t listed_bytes;
    struct sums_head head;
};

struct asked_queue {
    struct asked ring[ASKED_MAX];
    unsigned first, n;
    struct sums_head writing; /* count 0: none */
    uint32_t writing_next;
};

/* May a request be begun, or its next block be added? */
bool asked_has_room(const struct asked_queue *q);
void asked_add(struct asked_queue *q, int32_t index, uint64_t listed_bytes,
               const struct sums_head *head);
/* True: that was the last block of the one being written. */
bool asked_wrote_block(struct asked_queue *q);
/* The one whose answer comes next; NULL: none. */
struct asked *asked_first(struct asked_queue *q);
/* May the peer answer that one now, by this head? */
MUST_USE bool asked_fits(struct asked_queue *q, int32_t index, const struct sums_head *head);
/* Out of turn: false when it was not asked, or not to its end. */
MUST_USE bool asked_strike(struct asked_queue *q, int32_t index);
/* Everything has its answer, and nothing is being written. */
bool asked_is_empty(struct asked_queue *q);

#endif
