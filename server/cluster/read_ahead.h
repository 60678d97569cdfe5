/* read_ahead.h - reads a range of the log's entries with several requests at a time, and gives
 * their bytes in order. An entry that cannot be read is left to the caller.
 *
 * Memory: at most READ_AHEAD_MAX entries are held that have not been taken.
 *
 * owns     its threads, from read_ahead_open() to read_ahead_close(); borrows the bucket
 * threads  one at a time; read_ahead_take() blocks
 */
#ifndef SERVER_CLUSTER_READ_AHEAD_H
#define SERVER_CLUSTER_READ_AHEAD_H

#include "server/cluster/bucket.h"

enum { READ_AHEAD_MAX = 32 };

struct read_ahead;

struct read_ahead *read_ahead_open(struct bucket *b, uint64_t first, uint64_t last);
/* Swaps out for the bytes of entry seq. False: they could not be read, or seq is not the entry
 * after the one that was asked for last. */
bool read_ahead_take(struct read_ahead *r, uint64_t seq, struct buf *out, uint64_t *date_unix_s);
void read_ahead_close(struct read_ahead **rp); /* waits for requests under way; NULL is fine */

#endif
