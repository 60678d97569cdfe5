/* settings_scan.h - makes a configuration text safe for libconfuse.
 *
 * libconfuse's lexer has five faults: it counts the line of a comment twice; it keeps its state
 * when a string or comment is not closed, so that the next parse in this process begins inside
 * it; it accepts a file that ends inside a section; it takes an unquoted URL for a comment; and
 * it takes an unset variable for an empty text. This module turns comments into blanks, and
 * reports everything else that the lexer would get wrong as an error with its line.
 *
 * threads  any (reads the environment)
 */
#ifndef COMMON_CODEC_SETTINGS_SCAN_H
#define COMMON_CODEC_SETTINGS_SCAN_H

#include "common/base/err.h"
#include "common/base/slice.h"

/* Changes text in place. long_texts: quoted texts may go over several lines; then an unclosed one
 * is noticed only at the end. The error reads "file:line: what: why; what to do". */
MUST_USE int settings_scan(const char *file, char *text, size_t n, bool long_texts, struct err *e);

#endif
