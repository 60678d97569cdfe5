#include "agent/job/jitter.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"

uint64_t jitter_ms(struct slice host, uint64_t span_ms)
{
    return span_ms != 0 ? slice_hash(host) % span_ms : 0;
}

void jitter_wait(uint64_t span_ms)
{
    char host[HOST_NAME_MAX + 1] = "";
    uint64_t ms;
    struct timespec left;

    (void)gethostname(host, sizeof host - 1); /* without a name: all alike, and on time */
    ms = jitter_ms(slice_str(host), span_ms);
    if (span_ms != 0) {
        log_debug("run.jitter", "host=%s wait_ms=%" PRIu64, host, ms);
    }
    left = (struct timespec){(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) == -1 && errno == EINTR) {
    }
}
