/* content_range.h - parses the Content-Range of a 206 (RFC 9110 14.4), strictly.
 *
 * owns     nothing
 * threads  any; pure
 */
#ifndef SERVER_FETCH_CONTENT_RANGE_H
#define SERVER_FETCH_CONTENT_RANGE_H

#include "common/base/slice.h"

struct content_range {
    uint64_t first;
    uint64_t end;   /* one past the last */
    uint64_t total; /* UINT64_MAX for "*" */
};

/* "bytes a-b/t" or "bytes a-b/star" with a <= b < t; anything else is false. */
MUST_USE bool content_range_parse(struct slice value, struct content_range *out);

#endif
