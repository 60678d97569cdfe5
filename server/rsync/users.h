/* users.h - who may come with a password: a file of "name:password" lines, as rsync's own daemon
 * has.
 *
 * Tokens are kept hashed, and rsync's clients prove a password by the digest of it and a challenge:
 * so a password stands here, and what its user may do is what the token of that name may. The file
 * is read for each answer: a change counts at once. Lines that begin with '#' or '@' (its groups)
 * are passed over.
 *
 * threads  any; blocks
 * errors   E_DENIED: wrong, or nobody of that name, which nobody can tell apart; E_INVALID: others
 *          may read the file
 * source   sessions of the installed client
 */
#ifndef SERVER_RSYNC_USERS_H
#define SERVER_RSYNC_USERS_H

#include "common/base/err.h"
#include "common/base/slice.h"

MUST_USE int users_check(const char *path, struct err *e); /* the file itself */
/* challenge: another each time. answer: base64, without padding, of the digest of password and
 * challenge; which digest, its length says. */
MUST_USE int users_prove(const char *path, struct slice user, struct slice challenge,
                         struct slice answer, struct err *e);

#endif
