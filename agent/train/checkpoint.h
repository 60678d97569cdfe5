/* checkpoint.h - all that a run needs to go on, in one folder that appears whole:
 * `checkpoint-<step>/`.
 *
 *     model.safetensors, config.json   as on the Hub: any program that reads the family loads the folder
 *     tokenizer.json and the like      of the model that the run began with, else of the data (companions.h)
 *     optimizer.safetensors            both moments: exp_avg.<tensor>, exp_avg_sq.<tensor> (moments.h)
 *     *.chunks                         digests of each 8 MiB of the tensor files (tensorfiles.h)
 *     powersgd-*.safetensors           with --compress, once it has begun: what each rank has left out (powersgd_state.h)
 *     trainer.json                     where the run stands (state.h)
 *     algorithms.txt                   with --deterministic on a GPU: those of its products (products.h)
 *     manifest.sha256                  of all others, as sha256sum -c reads it
 *
 * Tensor files beyond 5 GB are several with an index, as the Hub has them. Several ranks share the
 * writing: each writes some of the model's files, and its own slices of the moments.
 *
 * It goes like this:
 *     first rank   begin: makes checkpoint-<step>.<attempt>.partial
 *     every rank   part:  writes and syncs its files
 *     first rank   commit, when all have: the small files, the manifest of all, sync, rename to checkpoint-<step>
 *                  drop, when one could not: removes the folder
 * It is removed, or replaced by one of the same step, by renaming it to checkpoint-<step>.partial
 * first. So a folder called checkpoint-<number> is complete, and what a crash leaves ends in
 * .partial and is swept. Each attempt of a run has a number of its own, so a rank of an earlier one
 * that wakes up late finds its folder gone, and cannot write into another's.
 *
 * errors   E_CORRUPT when a file differs from the manifest, E_NOTFOUND when there is no checkpoint
 */
#ifndef AGENT_TRAIN_CHECKPOINT_H
#define AGENT_TRAIN_CHECKPOINT_H

#include <limits.h>

#include "agent/train/companions.h"
#include "agent/train/optim.h"
#include "agent/train/state.h"
#include "agent/train/tensorfiles.h"

/* What is to be written, and by how many. */
struct checkpoint {
    const struct model_config *config;
    const struct companions *companions;
    const struct buf *products; /* empty: none */
    const struct tensor_files *model;
    const struct tensor_files *moments; /* with several ranks: this one's slices */
    uint64_t attempt;                   /* the same on all ranks, and on no others */
    int rank;
    int ranks;
    int left_out; /* ranks that write a file of powersgd_state.h into the folder; 0: none do */
    struct train_state state;
};

MUST_USE int checkpoint_begin(const char *out, const struct checkpoint *c, struct err *e);
/* Where the files are until then. */
void checkpoint_folder(const char *out, const struct checkpoint *c, char dir[PATH_MAX]);
/* The rank's own files. */
MUST_USE int checkpoint_part(const char *out, const struct checkpoint *c, struct err *e);
/* Whether all ranks have written theirs, by what lies in the folder. */
bool checkpoint_parts_there(const char *out, const struct checkpoint *c);
/* Leaves nothing behind when it fails. */
MUST_USE int checkpoint_commit(const char *out, const struct checkpoint *c, struct err *e);
void checkpoint_drop(const char *out, const struct checkpoint *c, struct err *e);

/* The tensors that this rank holds, with compression what it has left out as well; the model's
 * shape came from the folder's config.json. Verified as they are read. */
MUST_USE int checkpoint_load(const char *dir, struct model *m, struct optim *o, struct err *e);
/* Checks every file against the manifest. */
MUST_USE int checkpoint_verify(const char *dir, struct err *e);
MUST_USE int checkpoint_state(const char *dir, struct train_state *s, struct err *e);

/* Checks what checkpoint_load() does not: that all files are there, and those that are not tensors
 * against the manifest. */
MUST_USE int checkpoint_check(const char *dir, struct err *e);

/* Path of the newest checkpoint that verifies, to be freed; damaged ones are logged and passed
 * over. */
MUST_USE int checkpoint_newest(const char *out, char **dir, struct err *e);
/* Step of the newest one before step `below` that passes checkpoint_check(). */
MUST_USE int checkpoint_newest_below(const char *out, int64_t below, int64_t *step, struct err *e);
/* Its path, to be freed. */
char *checkpoint_path(const char *out, int64_t step);
size_t checkpoint_count(const char *out);
int64_t checkpoint_last_step(const char *out); /* of the newest, whole or not; -1: none */
/* Removes what crashes of this attempt and of earlier ones left behind, but for the folder of c
 * while that is being written, and, of the checkpoints up to step `good`, which is known to be
 * whole, all but the newest `keep` (0: none). Later ones stay: they were passed over as damaged,
 * and the run writes them again. All that can be is removed; the error is of the first that
 * cannot. */
MUST_USE int checkpoint_prune(const char *out, const struct checkpoint *c, bool writing,
                              int64_t good, int64_t keep, struct err *e);

#endif
