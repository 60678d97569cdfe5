/* checkpoint.h - all that a run needs to go on, in one folder that appears whole: `checkpoint-<step>/`.
 *
 *     model.safetensors, config.json   as on the Hub: any program that reads the family loads the folder
 *     tokenizer.json and the like      of the model that the run began with, else of the data (companions.h)
 *     optimizer.safetensors            both moments: exp_avg.<tensor>, exp_avg_sq.<tensor>
 *     powersgd-*.safetensors           with --compress, once it has begun: what each rank has left out (powersgd_state.h)
 *     trainer.json                     where the run stands (state.h)
 *     algorithms.txt                   with --deterministic on a GPU: those of its products (products.h)
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

#include <limits.h>

#include "agent/train/companions.h"
#include "agent/train/optim.h"
#include "agent/train/state.h"
#include "agent/train/weights.h"

/* What is to be written; the prefixes of the sources are checkpoint_write()'s. */
struct checkpoint {
    const struct model_config *config;
    const struct layout *layout;
    const struct companions *companions;
    struct weights_source param, m, v;
    struct train_state state;
    const struct buf *products; /* empty: none */
    int left_out; /* ranks whose files are in the folder of checkpoint_begin() already; 0: it was not called */
};

/* For files that the ranks write themselves: makes the folder, and says where. */
MUST_USE int checkpoint_begin(const char *out, int64_t step, struct err *e);
void checkpoint_folder(const char *out, int64_t step, char dir[PATH_MAX]);
/* Leaves nothing behind when it fails. */
MUST_USE int checkpoint_write(const char *out, const struct checkpoint *c, struct err *e);
/* The tensors, with compression what this rank has left out as well; the model's shape came from the folder's config.json. */
MUST_USE int checkpoint_load(const char *dir, struct model *m, struct optim *o, struct err *e);
/* Checks every file against the manifest. */
MUST_USE int checkpoint_verify(const char *dir, struct err *e);
MUST_USE int checkpoint_state(const char *dir, struct train_state *s, struct err *e);

/* Path of the newest checkpoint that verifies, to be freed; damaged ones are logged and passed over. */
MUST_USE int checkpoint_newest(const char *out, char **dir, struct err *e);
size_t checkpoint_count(const char *out);
int64_t checkpoint_last_step(const char *out); /* of the newest, whole or not; -1: none */
/* Removes what crashes left behind and, of the checkpoints up to step `good`, which is known to be whole, all but the newest
 * `keep` (0: none). Later ones stay: they were passed over as damaged, and the run writes them again.
 * All that can be is removed; the error is of the first that cannot. */
MUST_USE int checkpoint_prune(const char *out, int64_t good, int64_t keep, struct err *e);

#endif
