/* scope.h - matches a token's scope: "<right>:<glob>", where '*' stands for any bytes and every
 * other byte for itself.
 *
 * threads  any
 */
#ifndef SERVER_GATE_SCOPE_H
#define SERVER_GATE_SCOPE_H

#include "common/base/err.h"
#include "common/base/slice.h"

/* E_INVALID, with what is wrong, why, and what to do. */
MUST_USE int scope_check(struct slice scope, struct err *e);
/* Does this scope give `right` on `subject` ("<repo>/<path>")? publish includes read, admin
 * includes all. */
bool scope_gives(struct slice scope, struct slice right, struct slice subject);
/* The prefix, after "<repo>/", of the subjects within `repo` for which this scope gives `right`.
 * False: there are none. */
bool scope_reaches(struct slice scope, struct slice right, struct slice repo, struct slice *prefix);

#endif
