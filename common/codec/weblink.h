/* weblink.h - the Link field of a response (RFC 8288): where the next page of a list is.
 *
 * threads  any; pure */
#ifndef COMMON_CODEC_WEBLINK_H
#define COMMON_CODEC_WEBLINK_H

#include "common/base/slice.h"

/* The target, as written, of the first link whose relation is "next"; p == NULL: none. */
struct slice weblink_next(struct slice field);

#endif
