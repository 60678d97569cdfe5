/* form.h - the fields of a query, or of a form as clients send it:
 * "paths=a+b&paths=c%2Fd&expand=true".
 *
 * owns     values live in the arena that is given
 * threads  any; pure
 */
#ifndef COMMON_CODEC_FORM_H
#define COMMON_CODEC_FORM_H

#include "common/base/arena.h"

enum { FORM_FIELDS_MAX = 4096 }; /* in a body that names paths: what a loop may read in one turn */

/* No more fields than that, empty ones too? Looks no further than it has to. */
bool form_within(struct slice form, size_t max);
/* Cuts the next field off. False: there is none. Both raw. */
MUST_USE bool form_next(struct slice *rest, struct slice *name, struct slice *value);
/* '+' is a blank, escapes are decoded, once; p == NULL: badly escaped, or longer than max. */
struct slice form_value(struct slice raw, size_t max, struct arena *a);
/* The next field of that name, decoded; *rest moves behind it. p == NULL: there is none. */
struct slice form_find(struct slice *rest, const char *name, size_t max, struct arena *a);
#endif
