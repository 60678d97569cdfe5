/* challenge.h - parses WWW-Authenticate: which Bearer token an origin requires, and who issues it.
 *
 * A field has any number of challenges, each a scheme and its parameters, all separated by commas.
 * What cannot be parsed is skipped up to the next comma.
 *
 * owns     slices live in the given arena
 * threads  any; pure
 * source   RFC 9110 (11.3, 11.6.1), RFC 6750 (3)
 */
#ifndef SERVER_FETCH_CHALLENGE_H
#define SERVER_FETCH_CHALLENGE_H

#include "common/base/arena.h"
#include "common/base/slice.h"

struct challenge { /* p == NULL: not given */
    struct slice realm, service, scope;
};

/* The first Bearer challenge of the field that names a realm. */
MUST_USE bool challenge_parse(struct slice field, struct arena *a, struct challenge *out);

#endif
