/* gear.h - cuts bytes into pieces by their content, so that an insertion moves only one or two
 * cuts.
 *
 * Plain Gear: h = 2 h + table[byte], cut behind a byte where the 16 high bits of h are zero, never
 * below GEAR_MIN and always at GEAR_MAX. A bit leaves h after 64 bytes, so a piece's first GEAR_MIN
 * - 64 bytes are passed over. table[i] is the first 8 bytes, big-endian, of the SHA-256 of the 16
 * bytes "mirrord gear 1:" and i.
 *
 * Two mirrords compare pieces that each has cut itself: all of this is part of the lists' format
 * (store/pieces.h), and does not change.
 *
 * threads  any; the table is made once a process
 * source   Xia et al. 2016 (FastCDC) for Gear
 */
#ifndef COMMON_HASH_GEAR_H
#define COMMON_HASH_GEAR_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/check.h"

enum { GEAR_MIN = 8 << 10, GEAR_MAX = 128 << 10 };

struct gear { /* zeroed at first */
    uint64_t h;
    size_t n; /* bytes of the current piece */
};

/* Consumes from p the bytes that belong to the current piece, 1 to n. *end: the piece ends after
 * them, and a new one begins. */
MUST_USE size_t gear_cut(struct gear *g, const void *p, size_t n, bool *end);

#endif
