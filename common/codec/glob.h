/* glob.h - matches a text against a pattern with wildcards; the only matcher in the sources.
 *
 * GLOB_PATH follows rsync: "*" stops at a '/', "**" does not, "?" and "[a-z]" are one byte other
 * than '/'; '\' makes the next byte literal. Classes such as "[[:alpha:]]" are those of the C
 * locale.
 *
 * All ways to match are followed together, byte by byte of the text, so a match costs at most
 * pattern x text, for any input.
 *
 * threads  any; pure. Patterns and texts may come from strangers; a pattern longer than
 *          GLOB_PATTERN_MAX matches nothing
 * source   rsync's manual, its answers to random rules (tests/system/test_filter.py)
 */
#ifndef COMMON_CODEC_GLOB_H
#define COMMON_CODEC_GLOB_H

#include "common/base/slice.h"

enum { GLOB_PATTERN_MAX = 4096 };

/* Flags. */
enum glob_how {
    GLOB_PATH = 0,
    GLOB_FLAT = 1,  /* '/' is an ordinary byte, as in fnmatch(3) without flags */
    GLOB_STARS = 2, /* only '*' is special, and stands for any bytes */
    GLOB_TAIL = 4,  /* the whole text, or all that follows one of its '/' */
};

/* Matches the whole text, by GLOB_PATH. */
MUST_USE bool glob_match(struct slice pattern, struct slice text);
/* *steps: the cost is added to it, in comparisons of a byte; may be NULL. */
MUST_USE bool glob_match_how(struct slice pattern, struct slice text, unsigned how,
                             uint64_t *steps);

#endif
