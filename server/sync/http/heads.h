/* heads.h - the few documents at the top of an archive's indexes. Their state when the archive
 * was listed is the cursor, and one conditional request for each finds out whether anything has
 * changed since.
 *
 * owns     heads_free() frees, cancels
 * threads  the run's
 */
#ifndef SERVER_SYNC_HTTP_HEADS_H
#define SERVER_SYNC_HTTP_HEADS_H

#include "common/base/slice.h"

struct http_engine;
struct heads;

/* A cursor of another lister, or for other subdirs, does not count. When a document has no
 * validator, or there are too many documents, there is no cursor, and the next run lists. */
void heads_begin(struct http_engine *g);
/* A document was read. validator "": the upstream sent none, so there is no cursor. */
void heads_note(struct http_engine *g, struct slice path, const char *validator);
/* A lister's probe: calls on_probe() once, never inside this call. */
void heads_probe(struct http_engine *g, struct slice cursor);
void heads_free(struct heads **hp); /* NULL is fine */

#endif
