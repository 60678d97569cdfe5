/* origin_field.h - which header fields of an origin's answer reach a client: those of
 * origin_fields.def, and those that the repo's `pass_headers` names.
 *
 * An origin is trusted with the bytes of its objects, not with what a proxy in front of us or a
 * browser does next. What was stored by a version that let more through is filtered as well: the
 * table is asked when an answer is worded.
 *
 * threads  any; a repo's list is immutable
 */
#ifndef SERVER_REPO_ORIGIN_FIELD_H
#define SERVER_REPO_ORIGIN_FIELD_H

#include "common/base/slice.h"

struct repo;

/* name: in small letters. */
bool origin_field_passes(const struct repo *r, struct slice name);
/* Why pass_headers cannot name it (a name, or the beginning of names and '*'), in a few words;
 * NULL: it can. */
const char *origin_field_refuses(const char *name);
/* The same for targeted_cache_control (RFC 9213). */
const char *origin_field_no_target(const char *name);
enum { ORIGIN_FIELD_NAMES = 64, ORIGIN_FIELD_TARGETS = 8 }; /* of a repo, at most */

#endif
