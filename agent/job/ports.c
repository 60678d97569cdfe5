#include "agent/job/ports.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/dice.h"
#include "common/os/clock.h"

enum { LOW = 15000, HIGH = 29000, TRIES = 1000, USUAL = 29500 };

static bool is_free(unsigned port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = fd != -1 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0;

    if (fd != -1) {
        close(fd);
    }
    return ok;
}

static unsigned first_of_connections(void)
{
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    unsigned first = 0;

    if (f != NULL) {
        first = fscanf(f, "%u", &first) == 1 ? first : 0;
        fclose(f);
    }
    return first;
}

unsigned port_pick(void)
{
    uint64_t dice = clock_now_ns() ^ (uint64_t)getpid() << 40 ^ 1;
    unsigned end = first_of_connections();

    end = end > LOW + 1000 && end < HIGH ? end : HIGH;
    for (unsigned i = 0; i < TRIES; i++) {
        unsigned port = LOW + (unsigned)dice_below(&dice, end - LOW - 1);

        if (is_free(port) && is_free(port + 1)) {
            return port;
        }
    }
    return USUAL;
}
