/* stage_row.h - bytes that are here and not yet published: the row that tells of them, and the holder that keeps them.
 *
 * threads  any
 */
#ifndef SERVER_SYNC_STAGE_ROW_H
#define SERVER_SYNC_STAGE_ROW_H

#include "server/sync/seen.h"

/* Adds to b: the stage row of a path and its blob's holder. */
void stage_row_put(struct batch *b, struct slice repo, struct slice path, const struct seen *s);
/* Adds to b: both go. */
void stage_row_del(struct batch *b, struct slice repo, struct slice path, const struct digest *d);

#endif
