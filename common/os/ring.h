/* ring.h - passes bytes from one thread to another through memory of a fixed size, without a
 * lock.
 *
 * The producer never waits: bytes for which there is no room are refused as a whole. ring_put()
 * returns how much waited before it, and ring_take() whether more has arrived in the meantime, so
 * that the two can decide who wakes the consumer: when a put says that nothing waited, no take
 * that began before it has seen its bytes.
 *
 * threads  ring_put: the one producer; ring_take: one consumer at a time
 */
#ifndef COMMON_OS_RING_H
#define COMMON_OS_RING_H

#include "common/base/buf.h"

struct ring;

struct ring *ring_open(size_t size_bytes); /* a power of two */
/* False: no room for all of s, and nothing was put. */
MUST_USE bool ring_put(struct ring *r, struct slice s, size_t *waited_bytes);
/* Appends the waiting bytes to `out`. True: more has arrived in the meantime. */
bool ring_take(struct ring *r, struct buf *out);
void ring_close(struct ring **rp);

#endif
