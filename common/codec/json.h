/* json.h - JSON written piece by piece into a buf: commas and quotes are set here, nesting is the caller's.
 *
 * Reading is jansson's (documents) and yajl's (streams). A bool after each call is not needed: the buf keeps its first error,
 * and nesting deeper than JSON_DEPTH makes it E_TOOBIG.
 */
#ifndef COMMON_CODEC_JSON_H
#define COMMON_CODEC_JSON_H

#include "common/base/buf.h"

enum { JSON_DEPTH = 63 };

struct json {
    struct buf *out;
    uint64_t some;  /* bit d: level d has a member already */
    unsigned depth; /* open objects and arrays */
    bool keyed;     /* a key was written, its value comes */
};

#define JSON_INTO(buffer) ((struct json){.out = (buffer)})

void json_open(struct json *j, char bracket); /* '{' or '[' */
void json_close(struct json *j, char bracket);
void json_key(struct json *j, struct slice key);
void json_text(struct json *j, struct slice s); /* bytes that are no UTF-8 become U+FFFD */
void json_u64(struct json *j, uint64_t n);
void json_word(struct json *j, struct slice w); /* true, false, null, or a number as it stands */

#endif
