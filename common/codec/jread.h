/* jread.h - what a parsed document (jansson) has: a value of another kind is as if it were not
 * there. Writing is jwrite.h's.
 *
 * A document that is none, or has no such member, is NULL, and asked like any other. Texts are
 * borrowed while the document lives; parsed with JSON_ALLOW_NUL they may hold NUL. Numbers are
 * whole, from 0 on; where there is none *out stays.
 */
#ifndef COMMON_CODEC_JREAD_H
#define COMMON_CODEC_JREAD_H

#include <jansson.h>

#include "common/base/slice.h"

/* A document from outside. NULL: it is none, or has more than values_max of values: "{}," takes
 * some 250 bytes of memory, so that a bound for its text is none for it. */
json_t *jread_parse(struct slice text, size_t flags, size_t values_max);
/* More than a text of so many bytes has that says something. */
size_t jread_values_of(size_t text_bytes);

struct slice jread_slice(const json_t *v); /* p == NULL: no text */
bool jread_count(const json_t *v, uint64_t *out);

/* Of an object's member. */
struct slice jread_text(const json_t *o, const char *key);
bool jread_u64(const json_t *o, const char *key, uint64_t *out);

#endif
