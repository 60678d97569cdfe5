/* glob.h - a text against a pattern with wildcards: the one matcher for all of them.
 *
 * GLOB_PATH is rsync's way: "*" stops at a '/', "**" does not, "?" and "[a-z]" are one byte that is
 * no '/'; '\' takes the next byte as it is. Classes such as "[[:alpha:]]" are those of the C
 * locale.
 *
 * All ways to match are followed at once, byte by byte of the text: a match costs at most pattern x
 * text, whatever both are.
 *
 * threads  any; pure. Patterns and texts come from strangers; a pattern beyond GLOB_PATTERN_MAX
 *          matches nothing
 * source   rsync's manual, its answers to random rules (tests/system/test_filter.py)
 */
#ifndef COMMON_CODEC_GLOB_H
#define COMMON_CODEC_GLOB_H

#include "common/base/slice.h"

enum { GLOB_PATTERN_MAX = 4096 };

/* Any of them together. */
enum glob_how {
    GLOB_PATH = 0,
    GLOB_FLAT = 1,  /* '/' is a byte like others, as fnmatch(3) without flags has it */
    GLOB_STARS = 2, /* '*' alone is special, and stands for any bytes */
    GLOB_TAIL = 4,  /* all of the text, or all that follows one of its '/' */
};

/* All of the text, by GLOB_PATH. */
MUST_USE bool glob_match(struct slice pattern, struct slice text);
/* *steps: what it cost is added, in comparisons of a byte; may be NULL. */
MUST_USE bool glob_match_how(struct slice pattern, struct slice text, unsigned how,
                             uint64_t *steps);

#endif
