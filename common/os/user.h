/* user.h - system accounts: the present one, how to become another one, and why a file cannot be
 * read.
 *
 * threads  any; user_become() changes the whole process
 */
#ifndef COMMON_OS_USER_H
#define COMMON_OS_USER_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/base/err.h"

enum { USER_NAME = 64, USER_WHY = 160 };

struct user {
    uid_t uid;
    gid_t gid;
    char name[USER_NAME];  /* the number if the account has no name */
    char group[USER_NAME]; /* the same of its group */
};

/* The account that a service runs as: the owner of its folder, unless that is root; else the
 * account of that name. folder and name may be NULL. False: no such account. */
bool user_of_service(const char *folder, const char *name, struct user *out);
/* The account that this process runs as. */
void user_self(struct user *out);
/* Gives up root permanently, and takes the groups of that account. */
MUST_USE int user_become(const struct user *u, struct err *e);
/* After access() or open() failed with this errno: who cannot read the file, why, and what to do.
 */
void user_why_unreadable(const char *path, int errno_value, char out[USER_WHY]);

#endif
