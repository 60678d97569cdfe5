/* reader_rate.h - whether somebody takes what we have for them at less than a least rate.
 *
 * Only time counts in which bytes of ours wait for the peer to take them: not that in which an
 * origin, a disk or a limit of ours is slow. It is gathered from looks some seconds apart, and what
 * was taken in between, whenever that was, counts for the peer.
 *
 * threads  its owner's; the time is an argument
 */
#ifndef SERVER_HTTP_READER_RATE_H
#define SERVER_HTTP_READER_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct reader_rate_limit {
    uint32_t bytes_per_s; /* 0: any */
    uint32_t over_ms;     /* of waiting */
};

struct reader_rate { /* all 0 at first */
    uint64_t looked_ms;
    uint64_t held_ms;    /* gathered */
    uint64_t from_bytes; /* taken when that was 0 */
};

uint64_t reader_rate_due(const struct reader_rate *r,
                         const struct reader_rate_limit *limit); /* UINT64_MAX: never */
/* held: it waits for the peer now. bytes: taken in all. True: too slow, once in over_ms at most. */
bool reader_rate_look(struct reader_rate *r, const struct reader_rate_limit *limit, uint64_t now_ms,
                      bool held, uint64_t bytes);

#endif
