/* structured.h - dictionaries of Structured Fields (RFC 9651), member by member.
 *
 * The whole field is checked: whoever reads a member of one that turns out to be none at its end
 * forgets what was read.
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

/* Takes the next member off *rest. 1: there is one; 0: there are no more; -1: this is no
 * dictionary. */
MUST_USE int structured_next(struct slice *rest, struct structured_member *out);

#endif
