/* texts.h - metrics and status: texts that are made at most once in `status_age`, for all who ask.
 *
 * A text depends on its path and form, on whether the client uses TLS and has logged in: nine texts in all. The client's host,
 * which links begin with, is filled in when the text is sent, so that no Host header makes one anew.
 *
 * threads  any loop; a short lock, not held while a text is made
 */
#ifndef SERVER_OWN_TEXTS_H
#define SERVER_OWN_TEXTS_H

#include "server/serve/desk.h"

struct texts *texts_open(void);
void texts_close(struct texts **tp);
/* /metrics, /-/status.json, /-/tunasync.json or /: answers x. */
void texts_answer(struct desk *d, struct exchange *x);

#endif
