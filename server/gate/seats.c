#include "server/gate/seats.h"

#include <string.h>

#include "common/base/endian.h"
#include "server/http/msg.h"

static uint64_t client_of(const struct sockaddr_storage *peer)
{
    static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};
    uint8_t address[16];
    uint64_t id;

    address_of(peer, address);
    id = memcmp(address, v4_prefix, sizeof v4_prefix) == 0
             ? (uint64_t)1 << 32 | be_get(address + 12, 4)
             : be_get(address, 8);
    return id != 0 ? id : 1;
}

unsigned seats_take(struct seats *s, const struct sockaddr_storage *peer)
{
    uint64_t client = client_of(peer);
    unsigned mine = 0;

    for (unsigned i = 0; i < SEATS; i++) {
        mine += atomic_load(&s->at[i]) == client;
    }
    for (unsigned i = 0; mine < SEATS_OF_ONE && i < SEATS; i++) {
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&s->at[i], &none, client)) {
            return i + 1;
        }
    }
    return 0;
}

void seats_leave(struct seats *s, unsigned *seat)
{
    if (*seat != 0) {
        atomic_store(&s->at[*seat - 1], 0);
        *seat = 0;
    }
}
