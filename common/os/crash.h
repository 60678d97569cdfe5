/* crash.h - places where a test may end the process, as SIGKILL would.
 *
 * Between two steps that must be safe in any order of power and luck stands
 * crash_point("area.step"). A process whose environment has MIRROR_CRASH_AT=area.step ends there;
 * MIRROR_CRASH_AT=area.step:3 at its third passing. Without the variable it costs one look at the
 * environment, so it stands where things happen a few times a second at most.
 *
 * threads  any
 */
#ifndef COMMON_OS_CRASH_H
#define COMMON_OS_CRASH_H

void crash_point(const char *name);

#endif
