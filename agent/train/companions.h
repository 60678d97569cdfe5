/* companions.h - what lies beside a model's weights on the Hub and belongs to it: its tokenizer,
 * how to generate.
 *
 * A run carries them into its checkpoints, so that those are as complete as the model was; shards
 * carry their tokenizer's to the run that starts from nothing.
 *
 * owns     the files' bytes: the originals may go away
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

/* Adds those that the folder has and `c`, which may be zeroed, has not yet; of a path that is a
 * file that one, as the tokenizer. */
MUST_USE int companions_add(struct companions *c, const char *path, struct err *e);
void companions_free(struct companions *c);
bool companions_have(const struct companions *c, const char *name);
/* Into a folder that nobody looks into yet; `manifest`, which may be NULL, gets their lines
 * (manifest.h). */
MUST_USE int companions_save(const struct companions *c, const char *dir, struct buf *manifest,
                             struct err *e);

#endif
