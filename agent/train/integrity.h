/* integrity.h - verifies the bytes of a checkpoint's files, as far as they are read.
 *
 * The manifest names all files and their digests. A large file has a chunk list next to it
 * (tensorfiles.h), which the manifest covers as well; with it a part of the file can be verified
 * alone. Old checkpoints have no lists; their files can only be verified whole.
 *
 * owns     the lists, and a descriptor of each file that was read from
 * threads  one at a time
 * errors   E_CORRUPT when bytes differ, or the manifest or a list is invalid; E_NOTFOUND when a
 *          file that it names is missing
 */
#ifndef AGENT_TRAIN_INTEGRITY_H
#define AGENT_TRAIN_INTEGRITY_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct integrity;

/* Reads the manifest and the chunk lists; files with a list must be there and have their size. */
MUST_USE int integrity_open(const char *dir, struct integrity **out, struct err *e);
void integrity_close(struct integrity **ip); /* NULL is fine */
/* Verifies all files without a chunk list. */
MUST_USE int integrity_rest(struct integrity *i, struct err *e);
/* Verifies n bytes of a file from offset `from`, unless that was done. A file without a list
 * passes, because integrity_rest() is for it. One that the manifest does not name is E_CORRUPT. */
MUST_USE int integrity_range(struct integrity *i, const char *name, uint64_t from, uint64_t n,
                             struct err *e);
/* The manifest's files in its order; NULL after the last. */
const char *integrity_file(const struct integrity *i, size_t at);
bool integrity_has(const struct integrity *i, const char *name);
/* Bytes that were read only to verify others. */
uint64_t integrity_read_bytes(const struct integrity *i);

#endif
