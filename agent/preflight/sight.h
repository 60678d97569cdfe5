/* sight.h - reads a node's /proc, /sys and /dev, at their usual places or below a folder.
 *
 * A container that checks its host has them below /host, a test below a folder of its own.
 *
 * errors   E_NOTFOUND is ordinary: another kernel, a driver that is not loaded
 */
#ifndef AGENT_PREFLIGHT_SIGHT_H
#define AGENT_PREFLIGHT_SIGHT_H

#include <dirent.h>
#include <limits.h>

#include "common/base/err.h"
#include "common/base/slice.h"

struct sight {
    const char *root; /* "": this machine's own */
};

enum { SIGHT_TEXT = 8 << 10 };

/* False: too long for a path. */
MUST_USE bool sight_path(const struct sight *s, char out[PATH_MAX], const char *fmt, ...)
    PRINTF_LIKE(3, 4);
/* A small file, without surrounding blanks and newlines; bytes after SIGHT_TEXT - 1 are dropped. */
MUST_USE int sight_read(const struct sight *s, const char *path, char out[SIGHT_TEXT],
                        struct err *e);
/* The number at its beginning: decimal, or hex after 0x. False: there is none, or no such file. */
MUST_USE bool sight_u64(const struct sight *s, const char *path, uint64_t *out);
bool sight_is(const struct sight *s, const char *path); /* it is there */
/* The last part of a link's target; false: not a link. */
MUST_USE bool sight_link(const struct sight *s, const char *path, char out[NAME_MAX + 1]);
DIR *sight_dir(const struct sight *s, const char *path); /* NULL: none */

/* "0-3,8,10-11": does it contain this number; do both share one? */
bool list_has(struct slice list, uint64_t n);

#endif
