/* pin.h - the pins at one moment, in memory, for eviction.
 *
 * pin_set() and the other calls that change pins are in keep.h.
 *
 * owns     pins_free() frees the table
 * threads  one at a time; pins_load() blocks
 */
#ifndef SERVER_STORE_PIN_H
#define SERVER_STORE_PIN_H

#include "common/base/arena.h"
#include "server/store/keep.h"
#include "server/store/set64.h"

struct pin_table {
    struct arena arena;
    struct slice *scope;
    size_t count;
    struct set64 keys; /* hashes: a collision only keeps a blob for longer */
};

MUST_USE int pins_load(struct store *s, struct pin_table *out, struct err *e);
bool pins_cover(const struct pin_table *p, struct slice repo, struct slice key);
void pins_free(struct pin_table *p);

#endif
