/* jwrite.h - writes JSON directly into a buf: objects and arrays are opened and closed, values
 * are written in between, commas are added as needed.
 *
 * There is no writer object: the buf's last byte shows whether a comma is needed. So members may
 * be written into a separate buf and joined later, and a buf may be cut back to where a value
 * began. No comma is written in an empty buf, or after an open bracket, a key or a newline. `key`
 * NULL: an item of an array, or the value of the preceding jwrite_key(). Texts from outside need
 * not be UTF-8: invalid bytes become U+FFFD. The caller is responsible for the nesting. jansson
 * reads documents, yajl reads streams.
 *
 * threads  one at a time per buf
 * errors   the buf keeps its first
 */
#ifndef COMMON_CODEC_JWRITE_H
#define COMMON_CODEC_JWRITE_H

#include "common/base/buf.h"

void jwrite_open(struct buf *out, const char *key, char bracket); /* '{' or '[' */
void jwrite_close(struct buf *out, char bracket);                 /* '}' or ']' */
void jwrite_key(struct buf *out, struct slice key);               /* a key from outside */
void jwrite_text(struct buf *out, const char *key, struct slice value);
void jwrite_str(struct buf *out, const char *key, const char *value);
void jwrite_hex(struct buf *out, const char *key, const uint8_t *bytes, size_t n); /* a digest */
void jwrite_u64(struct buf *out, const char *key, uint64_t value);
void jwrite_double(struct buf *out, const char *key, double value); /* finite; six digits */
void jwrite_ratio(struct buf *out, const char *key, double value);  /* four decimals */
void jwrite_bool(struct buf *out, const char *key, bool value);
void jwrite_null(struct buf *out, const char *key);
void jwrite_word(struct buf *out, const char *key, struct slice word); /* a value as it is */

/* {"code": "E_CONFIG", "exit": 78, "text": "c:3: what, why, what to do", "file": "c", "line": 3}:
 * the last two if the error is in a line of a file. */
void jwrite_err(struct buf *out, const char *key, const struct err *e);

void jwrite_quoted(struct buf *out, struct slice s); /* only the text in its quotes */
/* A json_dump_callback_t: appends to the struct buf `out`. */
int jwrite_dumped(const char *p, size_t n, void *out);

#endif
