/* users.h - checks the passwords of rsync clients: a file of "name:password" lines, as rsync's
 * own daemon has.
 *
 * Tokens are stored hashed, and rsync's clients prove a password by the digest of it and a
 * challenge. So this file has the password, and its user may do what the token of that name may.
 * The file is read for each check, so a change takes effect immediately. Lines that begin with
 * '#' or '@' (its groups) are ignored.
 *
 * threads  any; blocks
 * errors   E_DENIED: a wrong password or an unknown name, without a difference; E_INVALID: others
 *          may read the file
 * source   sessions of the installed client
 */
#ifndef SERVER_RSYNC_USERS_H
#define SERVER_RSYNC_USERS_H

#include "common/base/err.h"
#include "common/base/slice.h"

MUST_USE int users_check(const char *path, struct err *e); /* the file itself */
/* challenge: a new one each time. answer: base64, without padding, of the digest of password and
 * challenge; its length says which digest. */
MUST_USE int users_prove(const char *path, struct slice user, struct slice challenge,
                         struct slice answer, struct err *e);

#endif
