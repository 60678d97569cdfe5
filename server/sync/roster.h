/* roster.h - what an upstream has, as its engine listed it: added in any order, then sorted by the bytes of the paths.
 *
 * A million entries fit in some 50 MiB: folders are kept once, numbers in as many bytes as they need.
 *
 * owns     roster_free() frees all; what roster_get() gives is borrowed until the next roster_get()
 * threads  one at a time
 * errors   E_TOOBIG: more than was agreed; E_INVALID: a path that cannot be
 */
#ifndef SERVER_SYNC_ROSTER_H
#define SERVER_SYNC_ROSTER_H

#include "common/base/buf.h"
#include "server/sync/entry.h"

struct roster;

/* bytes_max: of memory, folders' names and all. At most 4 GiB. */
struct roster *roster_new(uint64_t entries_max, uint64_t bytes_max);
void roster_free(struct roster **rp); /* NULL is fine */
MUST_USE int roster_add(struct roster *r, const struct sync_entry *en, struct err *e);
/* Sorts; of a path that was listed twice the first stays. What stands below a file or a link goes: *left_out counts it. */
void roster_sort(struct roster *r, uint64_t *left_out);
size_t roster_count(const struct roster *r);
void roster_get(struct roster *r, size_t i, struct sync_entry *out);
/* Sorted ones. Index, or -1. */
ptrdiff_t roster_find(struct roster *r, struct slice path);
uint64_t roster_memory(const struct roster *r);

#endif
