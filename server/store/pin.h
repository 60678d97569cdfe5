/* pin.h - the pins at one moment, in memory, for eviction. pin_set and its brothers are in
 * keep.h. */
#ifndef SERVER_STORE_PIN_H
#define SERVER_STORE_PIN_H

#include "common/base/arena.h"
#include "server/store/keep.h"
#include "server/store/set64.h"

struct pin_table {
    struct arena arena;
    struct slice *scope;
    size_t count;
    struct set64 keys; /* hashes: one too many keeps something for longer */
};

MUST_USE int pins_load(struct store *s, struct pin_table *out, struct err *e);
bool pins_cover(const struct pin_table *p, struct slice repo, struct slice key);
void pins_free(struct pin_table *p);

#endif
