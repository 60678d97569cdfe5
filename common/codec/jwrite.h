/* jwrite.h - JSON written straight into a buf: objects and arrays opened and closed, values in
 * between, commas by themselves.
 *
 * There is no writer to carry along: whether a comma is due shows in the buf's last byte, so
 * members may also be written into a buf of their own and joined later, and a buf may be cut back
 * to where a value began. None is due in an empty buf, behind an open bracket, a key or the line
 * before. `key` NULL: an item of an array, or the value of the jwrite_key() before. Texts from
 * outside need not be UTF-8: what is not part of it becomes U+FFFD. Nesting is the caller's.
 * Reading is jansson's (documents) and yajl's (streams).
 *
 * threads  one at a time per buf
 * errors   the buf keeps its first
 */
#ifndef COMMON_CODEC_JWRITE_H
#define COMMON_CODEC_JWRITE_H

#include "common/base/buf.h"

void jwrite_open(struct buf *out, const char *key, char bracket); /* '{' or '[' */
void jwrite_close(struct buf *out, char bracket);                 /* '}' or ']' */
void jwrite_key(struct buf *out, struct slice key);               /* one from outside */
void jwrite_text(struct buf *out, const char *key, struct slice value);
void jwrite_str(struct buf *out, const char *key, const char *value);
void jwrite_hex(struct buf *out, const char *key, const uint8_t *bytes, size_t n); /* a digest */
void jwrite_u64(struct buf *out, const char *key, uint64_t value);
void jwrite_double(struct buf *out, const char *key, double value); /* finite; six digits */
void jwrite_ratio(struct buf *out, const char *key, double value);  /* four behind the point */
void jwrite_bool(struct buf *out, const char *key, bool value);
void jwrite_null(struct buf *out, const char *key);
void jwrite_word(struct buf *out, const char *key, struct slice word); /* a value as it stands */

/* {"code": "E_CONFIG", "exit": 78, "text": "c:3: what, why, what to do", "file": "c", "line": 3}:
 * the last two when a file's line is to blame. */
void jwrite_err(struct buf *out, const char *key, const struct err *e);

void jwrite_quoted(struct buf *out, struct slice s); /* the text in its quotes alone */

#endif
