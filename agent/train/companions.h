/* companions.h - the files next to a model's weights on the Hub that belong to it: its tokenizer,
 * generation settings.
 *
 * A run copies them into its checkpoints, so that those are as complete as the model was. Shards
 * carry their tokenizer's files for a run that starts without a model.
 *
 * owns     the files' bytes: the originals may be removed
 */
#ifndef AGENT_TRAIN_COMPANIONS_H
#define AGENT_TRAIN_COMPANIONS_H

#include "common/base/buf.h"

#define COMPANION_TOKENIZER "tokenizer.json"

enum { COMPANIONS_MAX = 8 };

struct companions {
    const char *name[COMPANIONS_MAX];
    struct buf text[COMPANIONS_MAX];
    size_t count;
};

/* Adds the files that the folder has and `c`, which may be zeroed, has not yet; if path is a
 * file, that one, as the tokenizer. */
MUST_USE int companions_add(struct companions *c, const char *path, struct err *e);
void companions_free(struct companions *c);
bool companions_have(const struct companions *c, const char *name);
/* Writes them into a folder that no reader sees yet; `manifest`, which may be NULL, gets their
 * lines (manifest.h). */
MUST_USE int companions_save(const struct companions *c, const char *dir, struct buf *manifest,
                             struct err *e);

#endif
