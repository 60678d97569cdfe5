/* jo.h - JSON out: written straight into a buf: objects and arrays opened and closed, values in between, commas by themselves.
 *
 * Texts from outside need not be UTF-8: a byte that is not part of it becomes U+FFFD. `key` NULL: an item of an array.
 *
 * threads  one at a time per buf
 */
#ifndef SERVER_ADMIN_JO_H
#define SERVER_ADMIN_JO_H

#include "common/base/buf.h"
#include "common/hash/digest.h"

void jo_open(struct buf *out, const char *key, char bracket); /* '{' or '[' */
void jo_shut(struct buf *out, char bracket);                  /* '}' or ']' */
void jo_str(struct buf *out, const char *key, struct slice value);
void jo_digest(struct buf *out, const char *key, const struct digest *d); /* in hex */
void jo_u64(struct buf *out, const char *key, uint64_t value);
void jo_ratio(struct buf *out, const char *key, double value); /* four digits behind the point */
void jo_bool(struct buf *out, const char *key, bool value);
void jo_null(struct buf *out, const char *key);
void jo_err(struct buf *out, const char *key, const struct err *e); /* jwrite_err() */

#endif
