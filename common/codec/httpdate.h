/* httpdate.h - the dates of HTTP fields (RFC 9110 5.6.7).
 *
 * All three forms are read (IMF-fixdate, RFC 850, asctime), one is written. Two-digit years are put within 50 years of
 * now_unix_s, as the RFC asks.
 */
#ifndef COMMON_CODEC_HTTPDATE_H
#define COMMON_CODEC_HTTPDATE_H

#include <stdint.h>

#include "common/base/slice.h"

enum { HTTPDATE_ROOM = 32 };

MUST_USE bool httpdate_parse(struct slice text, uint64_t now_unix_s, uint64_t *unix_s);
void httpdate_format(uint64_t unix_s,
                     char out[HTTPDATE_ROOM]); /* "Fri, 20 Nov 2026 22:00:00 GMT" */

#endif
