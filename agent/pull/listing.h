/* listing.h - what a folder of the mirror consists of: {"root", "entries": [{"path", "size", "sha256"}]} (docs/protocols/hosted.md).
 *
 * threads  any; pure
 * errors   E_PROTOCOL, E_INVALID (a name that leads elsewhere), E_NOTFOUND (no file, or none that the patterns let in)
 */
#ifndef AGENT_PULL_LISTING_H
#define AGENT_PULL_LISTING_H

#include "agent/pull/artifact.h"

enum { LISTING_FILES_MAX = 4 << 20 };

/* Sets the artifact's files and root. */
MUST_USE int listing_read(struct artifact *a, struct slice text, struct err *e);

#endif
