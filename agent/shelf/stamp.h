/* stamp.h - an unpacked archive is left alone, or it is no longer what was unpacked: how that is seen.
 *
 * stamp_seal() takes the write bits off the folders (the files have none already) and writes trees/<key>.stamp: how many
 * entries, how many bytes, and a sum over each entry's name, kind, size, mtime and ctime. One lstat() an entry, nothing is
 * read. Modes do not bind root, and an owner can give himself the bit back; a ctime nobody can set. It finds accidents:
 * who writes on the shelf on purpose can write a stamp as well (decision 0009).
 *
 * threads  any; blocks
 * errors   E_CHANGED: not as it was, or never sealed
 */
#ifndef AGENT_SHELF_STAMP_H
#define AGENT_SHELF_STAMP_H

#include "common/base/err.h"

/* `tree` is the folder as it is now, `path` as it will be called; the stamp is durable when it returns. */
MUST_USE int stamp_seal(const char *tree, const char *path, struct err *e);
MUST_USE int stamp_check(const char *path, struct err *e);
void stamp_remove(const char *path);

#endif
