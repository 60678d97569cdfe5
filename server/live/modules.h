/* modules.h - the repositories as rsync clients see them: which are modules, and who may read
 * them; and the statistics of sessions.
 *
 * threads  the site's calls come on sessions' threads; modules_sum() on any
 */
#ifndef SERVER_LIVE_MODULES_H
#define SERVER_LIVE_MODULES_H

#include "server/live/repo_set.h"

struct access_log;
struct modules;
struct modules_deps { /* what it uses */
    struct store *store;
    struct gate *gate;
    struct access_log *access;
    struct repos *repos;
};
/* Opens a door for each `rsync` section. NULL on failure. */
MUST_USE int modules_open(const struct modules_deps *p, const struct conf *c, struct modules **out,
                          struct err *e);
void modules_start(struct modules *m);
const char *modules_address(const struct modules *m); /* of the first door; NULL: there is none */
void modules_sum(const struct modules *m, struct door_stats *out); /* of all doors */
void modules_close(struct modules **mp);                           /* NULL is fine */

#endif
