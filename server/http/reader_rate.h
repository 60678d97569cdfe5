/* reader_rate.h - detects a client that reads slower than a minimum rate.
 *
 * Only time in which bytes of ours wait for the peer counts, not time in which an origin, a disk or
 * a limit of ours is slow. It is sampled every few seconds; the bytes read between two samples
 * count for the peer, whenever they were read.
 *
 * owns     nothing: plain data
 * threads  its owner's; the time is an argument
 */
#ifndef SERVER_HTTP_READER_RATE_H
#define SERVER_HTTP_READER_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct reader_rate_limit {
    uint32_t bytes_per_s; /* 0: no minimum */
    uint32_t over_ms;     /* of waiting time */
};

struct reader_rate { /* all 0 at the start */
    uint64_t looked_ms;
    uint64_t held_ms;    /* waiting time so far */
    uint64_t from_bytes; /* bytes read when held_ms was 0 */
};

uint64_t reader_rate_due(const struct reader_rate *r,
                         const struct reader_rate_limit *limit); /* UINT64_MAX: never */
/* held: bytes wait for the peer now. bytes: read in total. True: too slow, at most once in
 * over_ms. */
bool reader_rate_look(struct reader_rate *r, const struct reader_rate_limit *limit, uint64_t now_ms,
                      bool held, uint64_t bytes);

#endif
