/* isotime.h - times as JSON and XML have them (ISO 8601, in UTC): "2013-05-24T00:00:00.123Z".
 *
 * threads  any; pure
 */
#ifndef COMMON_CODEC_ISOTIME_H
#define COMMON_CODEC_ISOTIME_H

#include "common/base/slice.h"

/* False when it is not a time, or before 1970 or after 2200. */
MUST_USE bool isotime_parse(struct slice text, int64_t *unix_ns);

#endif
