/* base64.h - RFC 4648, the standard alphabet with padding. */
#ifndef COMMON_CODEC_BASE64_H
#define COMMON_CODEC_BASE64_H

#include "common/base/slice.h"

#define BASE64_ROOM(n) (((n) + 2) / 3 * 4 + 1)

void base64_encode(const void *bytes, size_t n,
                   char *out); /* BASE64_ROOM(n) bytes, NUL-terminated */
/* Padded standard alphabet only; false on any other byte, bad padding or more than `room` bytes. */
MUST_USE bool base64_decode(struct slice s, void *out, size_t room, size_t *n);

#endif
