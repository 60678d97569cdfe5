/* carried.h - the files of a tokenizer, read once, to lie beside what was made with it: shards, checkpoints.
 *
 * With them a checkpoint is a folder that other programs load by its name alone.
 *
 * owns     struct carried holds the files' bytes: the originals may go away
 */
#ifndef AGENT_TRAIN_CARRIED_H
#define AGENT_TRAIN_CARRIED_H

#include "common/base/buf.h"

struct carried;

/* `path`: a tokenizer.json, or the folder that holds one and its companions (tokenizer_config.json, ...). */
MUST_USE int carried_load(const char *path, struct carried **out, struct err *e);
void carried_free(struct carried **cp); /* NULL is fine */
/* Writes them into a folder that nobody looks into yet. `manifest`, which may be NULL, gets a line for each
 * (manifest.h); no files (c NULL) are fine. */
MUST_USE int carried_save(const struct carried *c, const char *dir, struct buf *manifest,
                          struct err *e);

#endif
