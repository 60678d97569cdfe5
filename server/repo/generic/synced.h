/* synced.h - plans of a synced repo: only from its published snapshot, never from the origin.
 *
 * "@v7/path" is that path in snapshot 7, for as long as it is kept.
 *
 * owns     nothing: everything is in the given arena
 * threads  any; no I/O
 */
#ifndef SERVER_REPO_GENERIC_SYNCED_H
#define SERVER_REPO_GENERIC_SYNCED_H

#include "server/repo/repo.h"

/* clean: canonical, below the repo. */
void synced_plan(const struct repo *r, const struct http_req *req, struct slice clean,
                 const struct results *results, struct arena *a, struct plan *p);

#endif
