/* disposition.h - Content-Disposition (RFC 6266): decides whether a browser shows an origin's
 * content or saves it.
 *
 * No content of an origin runs with our web origin in a browser: the sandbox of every answer
 * (REPLY_SANDBOX) prevents that. Content that could still deceive its reader, or that a sandboxed
 * browser cannot show (PDF), is saved: pages, drawings with scripts, XML that a style sheet turns
 * into a page. A folder's page is shown, because people browse them.
 *
 * threads  any; pure
 */
#ifndef SERVER_REQUEST_DISPOSITION_H
#define SERVER_REQUEST_DISPOSITION_H

#include "common/base/arena.h"
#include "common/base/slice.h"

/* type: Content-Type; p == NULL: none. said: the origin's Content-Disposition; p == NULL: none.
 * page: HTML may be shown. Returns p == NULL when no field is needed. The result is in the arena,
 * static, or `said`. */
struct slice disposition_of(struct slice type, struct slice said, bool page, struct arena *a);

#endif
