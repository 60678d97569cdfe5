/* varint.h - reads and writes the numbers of the rsync protocol: bytes, little-endian words,
 * varints, varlongs, indices.
 *
 * Reads go through a struct get. It remembers that bytes ran out (E_AGAIN) or were invalid
 * (E_PROTOCOL), yields zeros from then on, and is checked once after a whole group of reads. The
 * leading ones of a varint's first byte say how many bytes follow; its remaining bits are the
 * highest of the value. A varlong has a least length.
 *
 * threads  any; plain values
 * source   bytes of the installed program
 */
#ifndef SERVER_SYNC_RSYNC_VARINT_H
#define SERVER_SYNC_RSYNC_VARINT_H

#include "common/base/buf.h"

struct get {
    const uint8_t *p;
    size_t n;
    int rc; /* 0, E_AGAIN, E_PROTOCOL */
};

static inline struct get get_from(struct slice s)
{
    return (struct get){.p = (const uint8_t *)s.p, .n = s.n};
}

uint8_t get_byte(struct get *t);
uint16_t get_short(struct get *t);
int32_t get_int(struct get *t);
int32_t get_varint(struct get *t);
int64_t get_varlong(struct get *t, unsigned least_bytes);
struct slice get_bytes(struct get *t, size_t n); /* p == NULL when there are fewer */
/* A text after its length in one or two bytes, as names of checksums are sent. */
struct slice get_vstring(struct get *t);

void put_short(struct buf *b, uint16_t v);
void put_int(struct buf *b, int32_t v);
void put_varint(struct buf *b, int32_t v);
void put_varlong(struct buf *b, int64_t v, unsigned least_bytes);
void put_vstring(struct buf *b, struct slice s); /* at most 32,767 bytes */

/* Indices into the list are sent as differences to the last one; -1 ends a phase. */
enum { INDEX_DONE = -1 };
struct index_coding {
    int32_t last;
    int32_t last_negative;
};
#define INDEX_CODING_INIT ((struct index_coding){.last = -1, .last_negative = 1})

int32_t get_index(struct get *t, struct index_coding *c); /* c moves only when t has no error */
void put_index(struct buf *b, struct index_coding *c, int32_t index);

#endif
