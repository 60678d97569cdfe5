#include "server/gate/client_slots.h"

#include <stdlib.h>

#include "common/base/check.h"

void client_slots_init(struct client_slots *s, unsigned count, unsigned of_one)
{
    *s = (struct client_slots){mem_array(count, sizeof *s->at), count, of_one};
    for (unsigned i = 0; i < count; i++) {
        atomic_init(&s->at[i], 0);
    }
}

void client_slots_fini(struct client_slots *s)
{
    free(s->at);
    *s = (struct client_slots){.at = NULL};
}

static unsigned taken_by(const struct client_slots *s, uint64_t client)
{
    unsigned n = 0;

    for (unsigned i = 0; i < s->count; i++) {
        n += atomic_load(&s->at[i]) == client;
    }
    return n;
}

unsigned client_slots_take(struct client_slots *s, uint64_t client)
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

bool client_slots_move(struct client_slots *s, unsigned slot, uint64_t client)
{
    if (atomic_load(&s->at[slot - 1]) != client && taken_by(s, client) >= s->of_one) {
        return false;
    }
    atomic_store(&s->at[slot - 1], client);
    return true;
}

void client_slots_leave(struct client_slots *s, unsigned *slot)
{
    if (*slot != 0) {
        atomic_store(&s->at[*slot - 1], 0);
        *slot = 0;
    }
}
