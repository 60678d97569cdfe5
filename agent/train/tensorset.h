/* tensorset.h - the tensors of a folder: <base>.safetensors, or the files that
 * <base>.safetensors.index.json names.
 *
 * An index comes from strangers, as the files do: its file names must be plain names in the same
 * folder, and each tensor is read only from the file that the index names.
 *
 * owns     the open files; what tensorset_find() gives is borrowed until tensorset_close()
 * threads  any number may read
 * errors   E_NOTFOUND when the folder has neither; E_CORRUPT for a malformed index or file
 */
#ifndef AGENT_TRAIN_TENSORSET_H
#define AGENT_TRAIN_TENSORSET_H

#include "agent/train/integrity.h"
#include "common/codec/safetensors.h"

struct tensorset;

MUST_USE int tensorset_open(const char *dir, const char *base, struct tensorset **out,
                            struct err *e);
void tensorset_close(struct tensorset **sp); /* NULL is fine */
/* NULL when there is none; *in is the file that has it. */
const struct st_tensor *tensorset_find(const struct tensorset *s, struct slice name,
                                       const struct safetensors **in);
/* Verifies the files' headers, and from now on everything that is read; `i` must outlive the set.
 */
MUST_USE int tensorset_verify(struct tensorset *s, struct integrity *i, struct err *e);
/* n bytes, from offset `from`, of a tensor that tensorset_find() returned. */
MUST_USE int tensorset_read(const struct tensorset *s, const struct safetensors *in,
                            const struct st_tensor *t, uint64_t from, void *to, size_t n,
                            struct err *e);
/* All of them, file by file: NULL if the index names another file for it. */
size_t tensorset_count(const struct tensorset *s);
const struct st_tensor *tensorset_at(const struct tensorset *s, size_t i);
size_t tensorset_files(const struct tensorset *s);

/* Parses only an index, for tests: opens nothing. */
MUST_USE int tensorset_parse_index(struct slice json, struct err *e);

#endif
