/* part.h - what is done for a plan that needs a fact (repo.h): rows; and a gathering part by part (NEED_GATHER): what its parts
 * are called, where the next one is, what a no says.
 *
 * Two go this way, serve/gather.c on a loop for clients, and hub/errand.c on a thread for a prefetch: what one of them brought,
 * and only what is called the same, the other finds.
 *
 * threads  any; pure, but for need_read()
 */
#ifndef SERVER_REPO_PART_H
#define SERVER_REPO_PART_H

#include "server/repo/repo.h"

enum { GATHER_PARTS_MAX = 2000 };

/* Of what the store knows: NEED_ROW, NEED_ROWS, NEED_HEAD, NEED_ENTRY, NEED_PUT. */
bool need_is_stored(enum need_kind k);
/* Learns f->need, one of these; that there is nothing, or that it has changed, is a fact, too. f->bytes are in *bytes, the
 * entry's strings in *a. Blocks. */
MUST_USE int need_read(struct store *s, struct slice repo, struct fact *f, struct buf *bytes,
                       struct arena *a, struct err *e);

/* The key of a part: the gathering's own, "key+1", "key+2" ...; "key?query +1" behind a query. */
struct slice part_key(struct slice key, unsigned part, struct arena *a);
bool part_is_of(struct slice part, struct slice key);

/* Where the part behind number `part` is, in the arena; p == NULL: that was the last. E_TOOBIG: the list never ends. */
MUST_USE int part_next(const struct answer *a, unsigned part, struct arena *arena,
                       struct slice *next, struct err *e);
/* How long what a part says is good, and whether it is old. */
void part_note(const struct answer *a, struct fact *f);
/* Of a gathering that asks by HEAD: nothing is made, that the origin shows an object of this size is the fact. */
MUST_USE int part_of_head(const struct answer *a, const struct want *w, uint64_t now_unix_s,
                          struct fact *f, struct err *e);
/* What the origin said instead of a part, or what became of asking it: rc, status, code, message; texts in the arena. */
void part_refused(const struct answer *a, struct arena *arena, struct fact *f);

#endif
