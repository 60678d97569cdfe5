#include "server/cache/forgotten.h"

#include <stdlib.h>

#include "server/cache/object.h"

void forgotten_add(struct forgotten_keys *f, struct slice object_key, bool below,
                   enum forgetting how, uint64_t now_unix_s)
{
    unsigned i = f->next++ % FORGOTTEN_MAX;

    free(f->of[i].key);
    f->of[i].key = mem_new(object_key.n + 1);
    memcpy(f->of[i].key, object_key.p, object_key.n);
    f->of[i].n = object_key.n;
    f->of[i].below = below;
    f->of[i].how = how;
    f->of[i].unix_s = now_unix_s;
}

enum forgetting forgotten_since(const struct forgotten_keys *f, struct slice object_key,
                                uint64_t arrived_unix_s, uint64_t now_unix_s)
{
    enum forgetting most = FORGOT_NOTHING;

    for (size_t i = 0; i < FORGOTTEN_MAX; i++) {
        if (f->of[i].key != NULL && now_unix_s < f->of[i].unix_s + FORGOTTEN_S &&
            arrived_unix_s < f->of[i].unix_s && f->of[i].how > most &&
            object_key_is(object_key, slice_of(f->of[i].key, f->of[i].n), f->of[i].below)) {
            most = f->of[i].how;
        }
    }
    return most;
}

void forgotten_free(struct forgotten_keys *f)
{
    for (size_t i = 0; i < FORGOTTEN_MAX; i++) {
        free(f->of[i].key);
    }
}
