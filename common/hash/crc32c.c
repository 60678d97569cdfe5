#include "common/hash/crc32c.h"

uint32_t crc32c(uint32_t before, struct slice bytes)
{
    uint32_t crc = ~before;

    for (size_t i = 0; i < bytes.n; i++) {
        crc ^= (uint8_t)bytes.p[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (0x82F63B78u & -(crc & 1)); /* the polynomial, bits reversed */
        }
    }
    return ~crc;
}
