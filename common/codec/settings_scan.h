/* settings_scan.h - a configuration text made safe for libconfuse.
 *
 * libconfuse's lexer counts the line of a comment twice, keeps its state when a string or comment
 * is left open (so that the next parse in this process begins inside it), takes a file that ends
 * inside a section, a URL without quotes for a comment, and an unset variable for an empty text.
 * Here comments become blanks, and whatever else it would trip over is an error with its line.
 *
 * threads  any (reads the environment)
 */
#ifndef COMMON_CODEC_SETTINGS_SCAN_H
#define COMMON_CODEC_SETTINGS_SCAN_H

#include "common/base/err.h"
#include "common/base/slice.h"

/* Changes text in place. long_texts: those in quotes may go over several lines, at the price that
 * one left open is found at the end. The error reads "file:line: what, why, what to do". */
MUST_USE int settings_scan(const char *file, char *text, size_t n, bool long_texts, struct err *e);

#endif
