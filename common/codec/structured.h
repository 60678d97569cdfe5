/* structured.h - parses dictionaries of Structured Fields (RFC 9651), member by member.
 *
 * The whole field is checked. If it turns out to be invalid at its end, the caller must discard
 * the members that it has read.
 *
 * threads  pure functions
 */
#ifndef COMMON_CODEC_STRUCTURED_H
#define COMMON_CODEC_STRUCTURED_H

#include "common/base/slice.h"

enum structured_kind {
    STRUCTURED_BOOLEAN,
    STRUCTURED_INTEGER,
    STRUCTURED_STRING,
    STRUCTURED_OTHER, /* a decimal, a token, bytes, a date, a display string, or a list of such */
};

struct structured_member {
    struct slice key;
    enum structured_kind kind;
    bool boolean;
    int64_t integer;
};

/* Removes the next member from *rest. 1: there is one; 0: there are no more; -1: not a
 * dictionary. */
MUST_USE int structured_next(struct slice *rest, struct structured_member *out);

#endif
