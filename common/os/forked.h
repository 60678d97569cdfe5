/* forked.h - a child of this program by fork(), and a pipe by which it tells us something: a
 * verdict, an errno, or by its end that it is over.
 *
 * owns     the pid and the descriptor, which exec() closes, are the caller's
 * threads  call it before threads are started, or when what the child calls needs no lock that
 *          another thread may hold
 * errors   E_IO and the like: no pipe, no process; then there is no child
 */
#ifndef COMMON_OS_FORKED_H
#define COMMON_OS_FORKED_H

#include <sys/types.h>

#include "common/base/err.h"

/* Returns twice. In the child *pid is 0 and *fd is to be written to; here *fd is to be read from.
 * What stdio holds is written before, as both would write it. */
MUST_USE int forked_start(pid_t *pid, int *fd, struct err *e);

#endif
