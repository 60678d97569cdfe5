/* glob.h - a path against a pattern, as rsync does it.
 *
 * "*" stops at a '/', "**" does not, "?" and "[a-z]" are one byte that is no '/'; '\' takes the next byte as it is. Classes such as
 * "[[:alpha:]]" are those of the C locale.
 *
 * threads  any; pure. Patterns come from strangers: one that takes too many steps does not match
 * source   rsync's manual, its answers to random rules (tests/system/test_filter.py)
 */
#ifndef COMMON_CODEC_GLOB_H
#define COMMON_CODEC_GLOB_H

#include "common/base/slice.h"

/* All of the text. */
MUST_USE bool glob_match(struct slice pattern, struct slice text);

#endif
