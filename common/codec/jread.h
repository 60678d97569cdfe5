/* jread.h - reads parsed JSON documents (jansson): a value of the wrong type counts as missing.
 * jwrite.h writes.
 *
 * An invalid document or a missing member is NULL, and NULL is accepted like a document. Texts
 * are borrowed while the document lives; after parsing with JSON_ALLOW_NUL they may hold NUL.
 * Numbers are integers from 0 on; if there is none, *out does not change.
 */
#ifndef COMMON_CODEC_JREAD_H
#define COMMON_CODEC_JREAD_H

#include <jansson.h>

#include "common/base/slice.h"

/* Parses a document from outside. NULL: it is invalid, or has more than values_max values. The
 * limit is needed because "{}," takes some 250 bytes of memory, so a limit of the text alone
 * would not limit memory. */
json_t *jread_parse(struct slice text, size_t flags, size_t values_max);
/* A number of values that no meaningful text of this size exceeds. */
size_t jread_values_of(size_t text_bytes);

struct slice jread_slice(const json_t *v); /* p == NULL: not a text */
bool jread_count(const json_t *v, uint64_t *out);

/* A member of an object. */
struct slice jread_text(const json_t *o, const char *key);
bool jread_u64(const json_t *o, const char *key, uint64_t *out);

#endif
