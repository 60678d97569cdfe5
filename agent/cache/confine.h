/* confine.h - what a child gives up before it reads bytes from outside: for good.
 *
 * Reading and writing anywhere but below one folder (Landlock, from Linux 5.19 on; what is open
 * stays so), other files' modes, owners and attributes, sockets, programs, other processes, new
 * rights (seccomp, no_new_privs), core dumps. A kernel without Landlock does the rest: the checks
 * on names hold without it.
 */
#ifndef AGENT_CACHE_CONFINE_H
#define AGENT_CACHE_CONFINE_H

#include <stdbool.h>

void confine_to(const char *folder);
bool confine_knows_files(void); /* false: the kernel has no Landlock */

#endif
