/* disposition.h - Content-Disposition (RFC 6266): is what an origin gave shown by a browser, or
 * saved?
 *
 * Nothing of an origin runs as ours in a browser: the sandbox of every answer (REPLY_SANDBOX) sees
 * to that. What could still deceive its reader, or what a sandboxed browser cannot show (PDF), is
 * saved: pages, drawings with scripts, XML that a style sheet turns into a page. A folder's page is
 * shown: people walk through them.
 */
#ifndef SERVER_REQUEST_DISPOSITION_H
#define SERVER_REQUEST_DISPOSITION_H

#include "common/base/arena.h"
#include "common/base/slice.h"

/* type: Content-Type; p == NULL: none. said: the origin's Content-Disposition; p == NULL: none.
 * page: HTML may be shown. p == NULL: none is needed. What is returned is in the arena, static, or
 * `said`. */
struct slice disposition_of(struct slice type, struct slice said, bool page, struct arena *a);

#endif
