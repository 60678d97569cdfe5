#include "server/store/set64.h"

#include <stdlib.h>

static uint64_t *find_set64_slot(const struct set64 *x, uint64_t hash)
{
    size_t at = (size_t)(hash * 0x9e3779b97f4a7c15u >> 20);

    while (x->slot[at & (x->room - 1)] != 0 && x->slot[at & (x->room - 1)] != hash) {
        at++;
    }
    return &x->slot[at & (x->room - 1)];
}

static void grow(struct set64 *x)
{
    struct set64 more = {.room = x->room != 0 ? 2 * x->room : 1024, .count = x->count};

    more.slot = mem_array(more.room, sizeof more.slot[0]);
    for (size_t i = 0; i < x->room; i++) {
        if (x->slot[i] != 0) {
            *find_set64_slot(&more, x->slot[i]) = x->slot[i];
        }
    }
    free(x->slot);
    *x = more;
}

bool set64_add(struct set64 *x, uint64_t hash)
{
    uint64_t *slot;

    hash += hash == 0;
    if (x->count * 5 >= x->room * 3) {
        grow(x);
    }
    slot = find_set64_slot(x, hash);
    if (*slot == hash) {
        return false;
    }
    *slot = hash;
    x->count++;
    return true;
}

bool set64_has(const struct set64 *x, uint64_t hash)
{
    hash += hash == 0;
    return x->room != 0 && *find_set64_slot(x, hash) == hash;
}

void set64_free(struct set64 *x)
{
    free(x->slot);
    *x = (struct set64){0};
}
