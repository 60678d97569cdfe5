/* form.h - the fields of a query, or of a form as clients send it:
 * "paths=a+b&paths=c%2Fd&expand=true".
 *
 * owns     values live in the arena that is given
 * threads  any; pure
 */
#ifndef COMMON_CODEC_FORM_H
#define COMMON_CODEC_FORM_H

#include "common/base/arena.h"

/* in a body that names paths: as many as a loop may read in one turn */
enum { FORM_FIELDS_MAX = 4096 };

/* Has it at most so many fields, including empty ones? Stops reading as soon as it knows. */
bool form_within(struct slice form, size_t max);
/* Removes the next field from *rest; name and value are raw. False: there is none. */
MUST_USE bool form_next(struct slice *rest, struct slice *name, struct slice *value);
/* '+' is a blank, escapes are decoded once; p == NULL: badly escaped, or longer than max. */
struct slice form_value(struct slice raw, size_t max, struct arena *a);
/* The next field of that name, decoded; *rest moves past it. p == NULL: none. */
struct slice form_find(struct slice *rest, const char *name, size_t max, struct arena *a);
#endif
