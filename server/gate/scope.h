/* scope.h - what a token may do: "<right>:<glob>", where '*' stands for any bytes and all else for
 * itself.
 *
 * threads  any
 */
#ifndef SERVER_GATE_SCOPE_H
#define SERVER_GATE_SCOPE_H

#include "common/base/err.h"
#include "common/base/slice.h"

/* E_INVALID with what, why, what to do. */
MUST_USE int scope_check(struct slice scope, struct err *e);
/* Does this scope give `right` on `subject` ("<repo>/<path>")? publish includes read, admin
 * includes all. */
bool scope_gives(struct slice scope, struct slice right, struct slice subject);
/* What a subject within `repo` begins with, behind "<repo>/", when this scope gives `right` on it.
 * False: it gives it on none. */
bool scope_reaches(struct slice scope, struct slice right, struct slice repo, struct slice *prefix);

#endif
