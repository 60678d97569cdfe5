/* httpdate.h - dates in HTTP fields (RFC 9110 5.6.7): reads all three forms, writes IMF-fixdate. */
#ifndef COMMON_CODEC_HTTPDATE_H
#define COMMON_CODEC_HTTPDATE_H

#include "common/base/slice.h"

enum { HTTPDATE_ROOM = 30 }; /* "Sun, 06 Nov 1994 08:49:37 GMT" and NUL */

/* `now_unix_s` decides the century of RFC 850's two-digit years: at most 50 years ahead. False
 * when it is not a date. The weekday is not checked against the date. Dates before 1970 read as
 * 0. */
MUST_USE bool httpdate_parse(struct slice text, uint64_t now_unix_s, uint64_t *unix_s);
void httpdate_format(uint64_t unix_s, char out[HTTPDATE_ROOM]);

#endif
