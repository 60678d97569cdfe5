/* reading.h - indexes of a channel, read as they come in: what they tell becomes rows (told.h).
 *
 * A repodata.json in whatever packing goes to clients as it is, while it still comes. That is right as long as it names its
 * packages beside itself. One that names another place must be rewritten first: its reader notes the place and gives it up
 * (E_CHANGED), before its last bytes have left, and from then on the plan is another. The readers "elsewhere" are for those
 * that are rewritten; they give up one that needs it no more.
 *
 * threads  any, one at a time per index; pure
 */
#ifndef SERVER_REPO_CONDA_READING_H
#define SERVER_REPO_CONDA_READING_H

#include "server/cache/want.h"

/* The reader of the index `name`, or NULL: it tells nothing of files. */
const struct want_reader *reading_of(struct slice name, bool elsewhere);
/* Of a shard, whose index says that its packages lie elsewhere, or not. */
const struct want_reader *reading_of_shard(bool elsewhere);
/* Where an index's packages lie by its base_url, for whoever finds the index at `url`: made absolute, ends in '/'. E_INVALID:
 * nowhere. "" when that is beside it. */
MUST_USE int reading_base(struct slice url, struct slice base_url, struct buf *out, struct err *e);

#endif
