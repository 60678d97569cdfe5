/* origin_field.h - the header fields of an origin's answer that reach a client: those of
 * origin_fields.def, and those that the repo's `pass_headers` names.
 *
 * An origin is trusted with the bytes of its objects, but not with the behaviour of a browser or of
 * a proxy in front of us. Fields stored by a version that passed more are filtered as well, because
 * the table is applied when an answer is sent.
 *
 * owns     nothing
 * threads  any; a repo's list is immutable
 */
#ifndef SERVER_REPO_ORIGIN_FIELD_H
#define SERVER_REPO_ORIGIN_FIELD_H

#include "common/base/slice.h"

struct repo;

/* name: in lower case. */
bool origin_field_passes(const struct repo *r, struct slice name);
/* Why pass_headers cannot name it (a name, or a prefix and '*'), in a few words; NULL: it can. */
const char *origin_field_refuses(const char *name);
/* The same for targeted_cache_control (RFC 9213). */
const char *origin_field_no_target(const char *name);
enum { ORIGIN_FIELD_NAMES = 64, ORIGIN_FIELD_TARGETS = 8 }; /* for one repo, at most */

#endif
