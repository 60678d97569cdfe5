/* notices.h - settings that are valid and active, and still need the operator: limits that apply
 * to no client, certificates that expire soon.
 *
 * threads  any; no disk
 */
#ifndef SERVER_LIVE_NOTICES_H
#define SERVER_LIVE_NOTICES_H

#include "server/live/repo_set.h"

/* Logs each; *said: the same sentences for mirrorctl, one a line, or NULL. */
void notices_say(struct gate *g, const struct conf *c, struct buf *said);
/* The same without the log: for a configuration that is not active. */
void notices_of_conf(struct gate *g, const struct conf *c, struct buf *said);

#endif
