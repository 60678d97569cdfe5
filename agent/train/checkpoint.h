/* checkpoint.h - all that a run needs to go on, in one folder that appears whole: `checkpoint-<step>/`.
 *
 *     model.safetensors, config.json   as on the Hub: any program that reads the family loads the folder
 *     optimizer.safetensors            both moments: exp_avg.<tensor>, exp_avg_sq.<tensor>
 *     trainer.json                     step, position in the data, seed
 *     manifest.sha256                  of all others, as sha256sum -c reads it
 *
 * Tensor files beyond 5 GB are several with an index, as the Hub has them.
 *
 * A checkpoint is written as checkpoint-<step>.partial, synced, then renamed; it is removed by renaming it back first. So
 * a folder called checkpoint-<number> is complete, and what a crash leaves ends in .partial and is swept.
 *
 * errors   E_CORRUPT when a file differs from the manifest, E_NOTFOUND when there is no checkpoint
 */
#ifndef AGENT_TRAIN_CHECKPOINT_H
#define AGENT_TRAIN_CHECKPOINT_H

#include "agent/train/optim.h"

struct train_state {
    int64_t step;
    uint64_t samples; /* taken from the data so far, by all ranks */
    uint64_t tokens;
    uint64_t seed;
    int64_t seq;
    uint64_t windows; /* in the data: other data would be another order */
};

MUST_USE int checkpoint_save(const char *out, struct model *m, struct optim *o,
                             const struct train_state *s, struct err *e);
/* Everything but the model's shape, which came from the folder's config.json. */
MUST_USE int checkpoint_load(const char *dir, struct model *m, struct optim *o,
                             struct train_state *s, struct err *e);
/* Checks every file against the manifest. */
MUST_USE int checkpoint_verify(const char *dir, struct err *e);
MUST_USE int checkpoint_state(const char *dir, struct train_state *s, struct err *e);

/* Path of the newest checkpoint that verifies, to be freed; damaged ones are logged and passed over. */
MUST_USE int checkpoint_newest(const char *out, char **dir, struct err *e);
size_t checkpoint_count(const char *out);
/* Removes all but the newest `keep`, and what crashes left behind. */
MUST_USE int checkpoint_prune(const char *out, int64_t keep, struct err *e);

#endif
