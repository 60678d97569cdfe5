/* sums.h - cuts a file into blocks for a delta, and computes the two sums of each block.
 *
 * The peer searches its file for our blocks: the rolling sum finds candidates, the strong sum
 * decides, and the digest of the whole file checks the result. So a strong sum may be short; its
 * length grows with the number of comparisons that a file of that size takes.
 *
 * threads  any; plain values
 * source   sessions of the installed client and server (docs/protocols/rsync.md)
 */
#ifndef SERVER_SYNC_RSYNC_SUMS_H
#define SERVER_SYNC_RSYNC_SUMS_H

#include "server/sync/rsync/checksum.h"
#include "server/sync/rsync/varint.h"

enum { SUMS_BLOCK_LEAST = 700, SUMS_BLOCK_MOST = 1 << 17, SUMS_STRONG_LEAST = 2 };

struct sums_head { /* as sent; all zero: the whole file is requested */
    uint32_t count;
    uint32_t block_bytes;
    uint32_t strong_bytes;
    uint32_t remainder; /* bytes of the last block; 0: it is a full one */
};

/* For a basis of that size. full: strong sums keep all their bytes. Zeros when there is nothing
 * to compare. */
struct sums_head sums_of(uint64_t size_bytes, enum checksum_kind k, bool full);
/* The length of block i. */
static inline uint32_t sums_block(const struct sums_head *h, uint32_t i)
{
    return i + 1 == h->count && h->remainder != 0 ? h->remainder : h->block_bytes;
}

void put_sums_head(struct buf *b, const struct sums_head *h);
/* E_PROTOCOL in *g when the numbers are invalid. */
struct sums_head get_sums_head(struct get *g, size_t strong_max);
uint32_t sums_rolling(struct slice block);

#endif
