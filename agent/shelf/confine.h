/* confine.h - what a child gives up before it reads bytes from outside: for good.
 *
 * Reading and writing anywhere but below one folder (Landlock, from Linux 5.19 on; what is open stays so), sockets, programs, other processes, new rights
 * (seccomp, no_new_privs), core dumps. What the kernel does not know is left out: the checks on names hold without it.
 */
#ifndef AGENT_SHELF_CONFINE_H
#define AGENT_SHELF_CONFINE_H

void confine_to(const char *folder);

#endif
