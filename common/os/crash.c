#include "common/os/crash.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void crash_point(const char *name)
{
    static atomic_ulong passed;
    const char *at = getenv("MIRROR_CRASH_AT");
    size_t n = strlen(name);
    unsigned long nth;

    if (at == NULL || strncmp(at, name, n) != 0 || (at[n] != '\0' && at[n] != ':')) {
        return;
    }
    nth = at[n] == ':' ? strtoul(at + n + 1, NULL, 10) : 1;
    if (atomic_fetch_add(&passed, 1) + 1 == nth) {
        kill(getpid(), SIGKILL);
        for (;;) {
            pause(); /* the signal is on its way */
        }
    }
}
