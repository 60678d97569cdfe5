/* known.h - what a FROM was found to consist of: not asked again where it cannot change, and not sent again where it has not.
 *
 *   known/<key>   {"from", "etag", "root", "files": [{"name", "sha256", "size", "etag"}]}; key: of the mirror, the FROM, and
 *                 whether a token was shown
 *
 * A repository of a Hub at a commit, and a folder of a hosted tree at a root (`models/me/gpt@<64 hex digits>/`), are fixed: nobody is asked. Of a
 * branch its commit is asked for, and then the commit's list is this one. Any other folder is asked for with the ETag of its last listing.
 * The list is of a pull that ended well, whole, each file checked against what the mirror calls it. It is a hint: one that is lost or torn
 * costs a question. Its mtime is its last use, and that of all files in it (gc); those that nobody used for 90 days are removed by gc.
 *
 * threads  one; blocks
 */
#ifndef AGENT_PULL_KNOWN_H
#define AGENT_PULL_KNOWN_H

#include "agent/pull/artifact.h"

/* Can it not change? Of a Hub's, sets its commit. */
MUST_USE bool known_is_fixed(struct artifact *a);
/* Fills in the artifact's files when it is known; its patterns count. A Hub's commit must be set. */
MUST_USE bool known_read(const struct agent *ag, struct artifact *a);
/* After a pull of all of it. Failing is no trouble. */
void known_write(const struct agent *ag, const struct artifact *a);

#endif
