#include "server/gate/seats.h"

#include <stdlib.h>

#include "common/base/check.h"

void seats_init(struct seats *s, unsigned count, unsigned of_one)
{
    *s = (struct seats){mem_array(count, sizeof *s->at), count, of_one};
    for (unsigned i = 0; i < count; i++) {
        atomic_init(&s->at[i], 0);
    }
}

void seats_fini(struct seats *s)
{
    free(s->at);
    *s = (struct seats){.at = NULL};
}

static unsigned taken_by(const struct seats *s, uint64_t client)
{
    unsigned n = 0;

    for (unsigned i = 0; i < s->count; i++) {
        n += atomic_load(&s->at[i]) == client;
    }
    return n;
}

unsigned seats_take(struct seats *s, uint64_t client)
{
    unsigned mine = taken_by(s, client);

    for (unsigned i = 0; mine < s->of_one && i < s->count; i++) {
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&s->at[i], &none, client)) {
            return i + 1;
        }
    }
    return 0;
}

bool seats_move(struct seats *s, unsigned seat, uint64_t client)
{
    if (atomic_load(&s->at[seat - 1]) != client && taken_by(s, client) >= s->of_one) {
        return false;
    }
    atomic_store(&s->at[seat - 1], client);
    return true;
}

void seats_leave(struct seats *s, unsigned *seat)
{
    if (*seat != 0) {
        atomic_store(&s->at[*seat - 1], 0);
        *seat = 0;
    }
}
