/* suite.h - which of the files that a suite's Release names are wanted: the indexes of the settings' components and architectures.
 *
 * threads  any; pure
 */
#ifndef SERVER_SYNC_DEBIAN_SUITE_H
#define SERVER_SYNC_DEBIAN_SUITE_H

#include "server/repo/sync_conf.h"
#include "server/sync/debian/release.h"

/* path: as in the Release, below the suite's folder. Other installers' and diffs of indexes are not. */
bool suite_wants(const struct sync_conf *c, const struct release *r, struct slice path);

#endif
