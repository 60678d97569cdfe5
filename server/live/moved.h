/* moved.h - remembers the origin from which each repository's files came, and reports a change of
 * the origin once, with what to do.
 *
 * The cache decides that objects of another origin are not served (freshness.h). This module only
 * reports the change.
 *
 * threads  one at a time; blocks
 */
#ifndef SERVER_LIVE_MOVED_H
#define SERVER_LIVE_MOVED_H

#include "server/live/repo_set.h"

/* Logs and stores each change; *said: the same sentences for mirrorctl, one a line, or NULL. */
void moved_note(struct store *s, const struct repo_set *rs, struct buf *said);

#endif
