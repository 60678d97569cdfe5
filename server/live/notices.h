/* notices.h - what is valid and in force, and still needs the operator: limits that hold for
 * nobody, certificates that expire soon.
 *
 * threads  any; no disk
 */
#ifndef SERVER_LIVE_NOTICES_H
#define SERVER_LIVE_NOTICES_H

#include "server/live/repo_set.h"

/* Logs each; *said: the same sentences for mirrorctl, one a line, or NULL. */
void notices_say(struct gate *g, const struct conf *c, struct buf *said);
/* The same without the log: for a configuration that is not in force. */
void notices_of_conf(struct gate *g, const struct conf *c, struct buf *said);

#endif
