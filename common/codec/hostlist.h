/* hostlist.h - lists of hosts as Slurm writes them: "gpu[01-04,07],login2", "rack[1-2]n[3-4]". */
#ifndef COMMON_CODEC_HOSTLIST_H
#define COMMON_CODEC_HOSTLIST_H

#include "common/base/slice.h"

enum { HOSTLIST_NAME = 256 };

/* The first host of the list; false when the list is empty or malformed, or the name is too
 * long. */
MUST_USE bool hostlist_first(struct slice list, char out[HOSTLIST_NAME]);

#endif
