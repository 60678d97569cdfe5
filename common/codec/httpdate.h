/* httpdate.h - dates as HTTP writes them (RFC 9110 5.6.7): "Sun, 06 Nov 1994 08:49:37 GMT", and its two old forms. */
#ifndef COMMON_CODEC_HTTPDATE_H
#define COMMON_CODEC_HTTPDATE_H

#include "common/base/slice.h"

enum { HTTPDATE_BYTES = 30 }; /* with the NUL */

MUST_USE bool httpdate_parse(struct slice s, uint64_t *unix_s);
void httpdate_format(uint64_t unix_s, char out[HTTPDATE_BYTES]); /* up to the year 9999 */

#endif
