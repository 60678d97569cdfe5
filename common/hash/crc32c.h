/* crc32c.h - CRC-32C (Castagnoli): TensorBoard's records, S3's checksums. */
#ifndef COMMON_HASH_CRC32C_H
#define COMMON_HASH_CRC32C_H

#include "common/base/slice.h"

/* Of bytes that follow those whose crc is `before`; 0 at the beginning. */
uint32_t crc32c(uint32_t before, struct slice bytes);

#endif
