/* moved.h - where each repo's files came from when it was last seen: a change of its origin is said
 * once, with what to do.
 *
 * That objects of another origin are not served is the cache's business (freshness.h): here is only
 * the word about it.
 *
 * threads  one at a time; blocks
 */
#ifndef SERVER_LIVE_MOVED_H
#define SERVER_LIVE_MOVED_H

#include "server/live/repo_set.h"

/* Logs each change and notes it; *said: the same sentences for mirrorctl, one a line, or NULL. */
void moved_note(struct store *s, const struct repo_set *rs, struct buf *said);

#endif
