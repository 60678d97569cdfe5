/* texts.h - metrics and status: texts that are made on the spot, and at most once in `status_age` for all who ask.
 *
 * A text depends on the path, on its form and on the base URL that its links begin with; so many different ones are kept as
 * fit into TEXTS_MAX, and a new one waits until the oldest is as old as `status_age`. That bounds what the making costs.
 *
 * threads  any loop; a short lock, not held while a text is made
 */
#ifndef SERVER_SERVE_TEXTS_H
#define SERVER_SERVE_TEXTS_H

#include "server/serve/desk.h"

enum { TEXTS_MAX = 16 };

struct texts *texts_open(void);
void texts_close(struct texts **tp);
/* /metrics, /-/status.json, /-/tunasync.json or /: answers x. */
void texts_answer(struct desk *d, struct exchange *x);

#endif
