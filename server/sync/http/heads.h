/* heads.h - the few documents at the top of an archive's indexes: what they were when it was listed
 * is the cursor, and one conditional question each tells whether anything has changed since.
 *
 * owns     heads_free() frees, cancels
 * threads  the run's
 */
#ifndef SERVER_SYNC_HTTP_HEADS_H
#define SERVER_SYNC_HTTP_HEADS_H

#include "common/base/slice.h"

struct http_engine;
struct heads;

/* A cursor of another lister, or of other subdirs, is none. When a document has no validator, or
 * they are too many, there is no cursor, and the next run lists. */
void heads_begin(struct http_engine *g);
/* A document that was read. validator "": the upstream gives none, so there is no cursor. */
void heads_note(struct http_engine *g, struct slice path, const char *validator);
/* A lister's probe: answers on_probe(), once, never inside. */
void heads_probe(struct http_engine *g, struct slice cursor);
void heads_free(struct heads **hp); /* NULL is fine */

#endif
