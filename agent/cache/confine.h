/* confine.h - permanently takes rights from a child process before it reads bytes from outside.
 *
 * It loses: reading and writing outside one folder (Landlock, from Linux 5.19 on; open files stay
 * open), changing other files' modes, owners and attributes, sockets, programs, other processes,
 * new rights (seccomp, no_new_privs), core dumps. Without Landlock in the kernel the rest is
 * still taken: the checks of names do not depend on it.
 */
#ifndef AGENT_CACHE_CONFINE_H
#define AGENT_CACHE_CONFINE_H

#include <stdbool.h>

void confine_to(const char *folder);
bool confine_knows_files(void); /* false: the kernel has no Landlock */

#endif
