/* modules.h - what rsync clients see of the repos: which are modules, who may read them; and what a session leaves behind.
 *
 * threads  the sites' calls come on sessions' threads; modules_sum() on any
 */
#ifndef SERVER_LIVE_MODULES_H
#define SERVER_LIVE_MODULES_H

#include "server/live/repo_set.h"

struct daemon;
MUST_USE int modules_open(struct daemon *d, const struct conf *c, struct err *e);
void modules_start(struct daemon *d);
void modules_sum(const struct daemon *d, struct door_stats *out); /* of all doors */
void modules_close(struct daemon *d);

#endif
