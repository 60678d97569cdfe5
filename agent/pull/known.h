/* known.h - what a FROM that cannot change was found to consist of: asked once, and then nobody.
 *
 *   known/<key>   {"from", "files": [{"name", "sha256", "size", "etag"}]}; key: of the mirror and the FROM
 *
 * That is a repository of a Hub at a commit. The list is of a pull that ended well, whole, each file checked against the Hub's name for it. It is a
 * hint: one that is lost or torn costs two questions. Those that nobody used for 90 days are removed by gc.
 *
 * threads  one; blocks
 */
#ifndef AGENT_PULL_KNOWN_H
#define AGENT_PULL_KNOWN_H

#include "agent/pull/artifact.h"

/* Fills in the artifact's files when it is known; its patterns count. */
MUST_USE bool known_read(const struct agent *ag, struct artifact *a);
/* After a pull of all of it. Failing is no trouble. */
void known_write(const struct agent *ag, const struct artifact *a);

#endif
