/* jwrite.h - JSON written piece by piece into a buf: commas and quotes are set here, nesting is the caller's.
 *
 * Reading is jansson's (documents) and yajl's (streams). A bool after each call is not needed: the buf keeps its first error,
 * and nesting deeper than JWRITE_DEPTH makes it E_TOOBIG.
 */
#ifndef COMMON_CODEC_JWRITE_H
#define COMMON_CODEC_JWRITE_H

#include "common/base/buf.h"

enum { JWRITE_DEPTH = 63 };

struct jwrite {
    struct buf *out;
    uint64_t some;  /* bit d: level d has a member already */
    unsigned depth; /* open objects and arrays */
    bool keyed;     /* a key was written, its value comes */
};

#define JWRITE_INTO(buffer) ((struct jwrite){.out = (buffer)})

void jwrite_open(struct jwrite *j, char bracket); /* '{' or '[' */
void jwrite_close(struct jwrite *j, char bracket);
void jwrite_key(struct jwrite *j, struct slice key);
void jwrite_text(struct jwrite *j, struct slice s); /* cleaned: utf8.h */
void jwrite_u64(struct jwrite *j, uint64_t n);
void jwrite_word(struct jwrite *j,
                 struct slice w); /* true, false, null, or a number as it stands */

/* A key and its value. */
void jwrite_slice_of(struct jwrite *j, const char *key, struct slice value);
void jwrite_word_of(struct jwrite *j, const char *key, const char *word);
void jwrite_text_of(struct jwrite *j, const char *key, const char *value);
void jwrite_u64_of(struct jwrite *j, const char *key, uint64_t n);
void jwrite_double_of(struct jwrite *j, const char *key, double x); /* finite; six digits */

/* {"code": "E_CONFIG", "exit": 78, "text": "c:3: what, why, what to do", "file": "c", "line": 3}: the last two when a file's
 * line is to blame. */
void jwrite_err(struct jwrite *j, const struct err *e);

#endif
