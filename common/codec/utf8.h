/* utf8.h - which bytes are characters (RFC 3629: no overlong forms, no surrogates, nothing past
 * U+10FFFF).
 *
 * Bytes that are none become U+FFFD, one for each maximal part that could have begun a character:
 * what Unicode recommends, WHATWG's decoder and Python's errors="replace" do.
 */
#ifndef COMMON_CODEC_UTF8_H
#define COMMON_CODEC_UTF8_H

#include "common/base/buf.h"

enum utf8 {
    UTF8_WHOLE, /* *n bytes are one character */
    UTF8_NONE,  /* *n bytes are part of none */
    UTF8_CUT,   /* all that is left begins a character whose end is missing */
};

/* What s, which is not empty, begins with. */
enum utf8 utf8_next(struct slice s, size_t *n);
/* The character that s begins with, well-formed. */
uint32_t utf8_char(struct slice s);
/* Writes c, a Unicode scalar value; 1 to 4 bytes. */
size_t utf8_put(uint32_t c, char out[4]);
/* Length of the well-formed part that s begins with: s.n when there is nothing to clean. */
size_t utf8_valid(struct slice s);
/* Appends s, cleaned; gives how many U+FFFD were put in. With `more` a cut character at the end
 * waits for its rest: *used says how much was taken; without, all is. */
uint64_t utf8_clean(struct slice s, bool more, struct buf *out, size_t *used);

#endif
