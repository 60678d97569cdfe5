/* parked.h - stages that nobody has open, but whose files stay under partial/ for somebody to resume: their bytes are on the
 * store's account all the same.
 *
 * owns     a node an id, in struct store
 * threads  any; under space.lock where it says so
 */
#ifndef SERVER_STORE_PARKED_H
#define SERVER_STORE_PARKED_H

#include "server/store/store.h"

struct parked;
struct stat;

/* What a file takes on disk: it may be sparse. */
uint64_t parked_size(const struct stat *st);
void parked_add(struct store *s, uint64_t id, uint64_t bytes);
void parked_take(struct store *s, uint64_t id); /* somebody has it open now, or it is gone */
void parked_fini(struct store *s);

#endif
