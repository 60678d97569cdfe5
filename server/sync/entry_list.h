/* entry_list.h - the entries that an engine listed: added in any order, then sorted by the bytes
 * of their paths.
 *
 * A million entries fit in some 50 MiB: each folder is stored once, and numbers take as many
 * bytes as they need.
 *
 * owns     entry_list_free() frees all; the result of entry_list_get() is borrowed until the next
 *          entry_list_get()
 * threads  one at a time
 * errors   E_TOOBIG: more than the limit; E_INVALID: an invalid path
 */
#ifndef SERVER_SYNC_ENTRY_LIST_H
#define SERVER_SYNC_ENTRY_LIST_H

#include "common/base/buf.h"
#include "server/sync/entry.h"

struct entry_list;

/* bytes_max: memory, including the names of folders. At most 4 GiB. */
struct entry_list *entry_list_new(uint64_t entries_max, uint64_t bytes_max);
void entry_list_free(struct entry_list **rp); /* NULL is fine */
MUST_USE int entry_list_add(struct entry_list *r, const struct sync_entry *en, struct err *e);
/* Sorts. Of a path that was listed twice the first stays. Entries below a file or a link are
 * removed; *left_out counts them. */
void entry_list_sort(struct entry_list *r, uint64_t *left_out);
size_t entry_list_count(const struct entry_list *r);
void entry_list_get(struct entry_list *r, size_t i, struct sync_entry *out);
/* After the sort. The index, or -1. */
ptrdiff_t entry_list_find(struct entry_list *r, struct slice path);
uint64_t entry_list_memory(const struct entry_list *r);

#endif
