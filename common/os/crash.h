/* crash.h - points at which a test can end the process as SIGKILL would.
 *
 * crash_point("area.step") is placed between two steps whose order must survive a crash or a
 * power cut. A process with MIRROR_CRASH_AT=area.step in its environment ends there; with
 * MIRROR_CRASH_AT=area.step:3 it ends the third time. Without the variable it costs one look at
 * the environment, so use it only in code that runs a few times a second at most.
 *
 * threads  any
 */
#ifndef COMMON_OS_CRASH_H
#define COMMON_OS_CRASH_H

void crash_point(const char *name);

#endif
