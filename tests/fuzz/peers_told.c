/* What a mirror tells of a swarm: all that is believed is of the file, and can be spoken to. */
#include "agent/peers/announcement.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { COUNT = 20 };
    struct reported t;

    if (reported_read(slice_of(data, size), COUNT, &t, NULL) == 0) {
        CHECK(t.ntake <= TAKE_MAX && t.npeers <= REPORTED_PEERS_MAX);
        CHECK(t.again_ms >= 1000 && t.again_ms <= 300000);
        for (size_t i = 0; i < t.ntake; i++) {
            CHECK(t.take[i] < COUNT);
        }
        for (size_t i = 0; i < t.npeers; i++) {
            CHECK(strnlen(t.peer[i], ADDRESS_ROOM) < ADDRESS_ROOM &&
                  strchr(t.peer[i], ':') != NULL);
        }
    }
    return 0;
}
