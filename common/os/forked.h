/* forked.h - starts a child of this program by fork(), with a pipe by which it reports: a
 * verdict, an errno, or, by closing it, that it has ended.
 *
 * owns     the pid and the descriptor, which exec() closes, are the caller's
 * threads  call it before threads are started, or when nothing that the child calls needs a lock
 *          that another thread may hold
 * errors   E_IO and the like: no pipe or no process; then there is no child
 */
#ifndef COMMON_OS_FORKED_H
#define COMMON_OS_FORKED_H

#include <sys/types.h>

#include "common/base/err.h"

/* Returns twice. In the child *pid is 0 and *fd is for writing; in the parent *fd is for reading.
 * Flushes stdio first, because both would write its buffers. */
MUST_USE int forked_start(pid_t *pid, int *fd, struct err *e);

#endif
