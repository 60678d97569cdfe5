/* utf8.h - finds the valid characters in bytes (RFC 3629: no overlong forms, no surrogates,
 * nothing past U+10FFFF).
 *
 * Invalid bytes become U+FFFD, one for each maximal part that could have begun a character, as
 * Unicode recommends and as WHATWG's decoder and Python's errors="replace" do.
 */
#ifndef COMMON_CODEC_UTF8_H
#define COMMON_CODEC_UTF8_H

#include "common/base/buf.h"

enum utf8 {
    UTF8_WHOLE, /* *n bytes are one character */
    UTF8_NONE,  /* *n bytes are not part of a character */
    UTF8_CUT,   /* the rest is the beginning of a character without its end */
};

/* Classifies the beginning of s, which is not empty. */
enum utf8 utf8_next(struct slice s, size_t *n);
/* The first character of s, which must be well-formed. */
uint32_t utf8_char(struct slice s);
/* Writes c, a Unicode scalar value; 1 to 4 bytes. */
size_t utf8_put(uint32_t c, char out[4]);
/* Length of the well-formed prefix of s: s.n when everything is valid. */
size_t utf8_valid(struct slice s);
/* Appends s, cleaned; returns the number of U+FFFD. With `more`, an incomplete character at the
 * end is left for later: *used is what was consumed. Without `more`, everything is. */
uint64_t utf8_clean(struct slice s, bool more, struct buf *out, size_t *used);

#endif
