/* bits.h - a bitmap of chunks, one bit each, as peers exchange it: bit 7 of byte 0 is chunk 0. */
#ifndef AGENT_PEERS_BITS_H
#define AGENT_PEERS_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BITS_BYTES(count) (((count) + 7) / 8)

static inline bool bits_get(const uint8_t *bits, size_t i)
{
    return (bits[i / 8] >> (7 - i % 8) & 1) != 0;
}

static inline void bits_set(uint8_t *bits, size_t i, bool yes)
{
    uint8_t bit = (uint8_t)(0x80 >> i % 8);

    bits[i / 8] = (uint8_t)(yes ? bits[i / 8] | bit : bits[i / 8] & ~bit);
}

#endif
