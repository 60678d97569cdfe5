/* companions.h - what lies beside a model's weights on the Hub and belongs to it: its tokenizer, how to generate.
 *
 * A run that starts from a model carries them into its checkpoints, so that those are as complete as the model was.
 *
 * owns     the files' bytes
 */
#ifndef AGENT_TRAIN_COMPANIONS_H
#define AGENT_TRAIN_COMPANIONS_H

#include "common/base/buf.h"

enum { COMPANIONS_MAX = 8 };

struct companions {
    const char *name[COMPANIONS_MAX];
    struct buf text[COMPANIONS_MAX];
    size_t count;
};

/* Those of them that the folder has. */
MUST_USE int companions_load(const char *dir, struct companions *out, struct err *e);
void companions_free(struct companions *c);

#endif
