/* checkpoint.h - everything that a run needs to resume, in one folder that appears whole:
 * `checkpoint-<step>/`.
 *
 *     model.safetensors, config.json   as on the Hub: every program that reads the family loads it
 *     tokenizer.json and others        of the model from which the run began, else of the data
 *                                      (companions.h)
 *     optimizer.safetensors            both moments: exp_avg.<tensor>, exp_avg_sq.<tensor>
 *                                      (moments.h)
 *     *.chunks                         digests of each 8 MiB of the tensor files (tensorfiles.h)
 *     powersgd-*.safetensors           with --compress, once it has begun: what each rank has left
 *                                      out (powersgd_state.h)
 *     trainer.json                     the state of the run (state.h)
 *     algorithms.txt                   with --deterministic on a GPU: those of its products
 *                                      (products.h)
 *     manifest.sha256                  of all others, as sha256sum -c reads it
 *
 * Tensor files beyond 5 GB are several with an index, as the Hub has them. Several ranks share
 * the writing: each writes some of the model's files, and its own slices of the moments.
 *
 * The steps are:
 *     first rank   begin: makes checkpoint-<step>.<attempt>.partial
 *     every rank   part:  writes and syncs its files
 *     first rank   commit, when all have: the small files, the manifest of all, sync, rename to
 *                  checkpoint-<step>
 *                  drop, when one could not: removes the folder
 * A checkpoint is removed, or replaced by one of the same step, by first renaming it to
 * checkpoint-<step>.partial. So a folder called checkpoint-<number> is complete; what a crash
 * leaves ends in .partial and is removed later. Each attempt of a run has its own number, so a
 * late rank of an earlier attempt finds its folder gone, and cannot write into another's.
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

/* What is written, and by how many ranks. */
struct checkpoint {
    const struct model_config *config;
    const struct companions *companions;
    const struct buf *products; /* empty: none */
    const struct tensor_files *model;
    const struct tensor_files *moments; /* with several ranks: this one's slices */
    uint64_t attempt;                   /* the same on all ranks, and on no others */
    int rank;
    int ranks;
    /* the number of ranks that write a file of powersgd_state.h into the folder; 0: none */
    int left_out;
    struct train_state state;
};

MUST_USE int checkpoint_begin(const char *out, const struct checkpoint *c, struct err *e);
/* The folder of the files until then. */
void checkpoint_folder(const char *out, const struct checkpoint *c, char dir[PATH_MAX]);
/* The rank's own files. */
MUST_USE int checkpoint_part(const char *out, const struct checkpoint *c, struct err *e);
/* Have all ranks written theirs? Judged by the files in the folder. */
bool checkpoint_parts_there(const char *out, const struct checkpoint *c);
/* Leaves no folder when it fails. */
MUST_USE int checkpoint_commit(const char *out, const struct checkpoint *c, struct err *e);
void checkpoint_drop(const char *out, const struct checkpoint *c, struct err *e);

/* Loads the tensors that this rank holds, and with compression what it has left out; the model's
 * shape came from the folder's config.json. Verifies them as they are read. */
MUST_USE int checkpoint_load(const char *dir, struct model *m, struct optim *o, struct err *e);
/* Checks every file against the manifest. */
MUST_USE int checkpoint_verify(const char *dir, struct err *e);
MUST_USE int checkpoint_state(const char *dir, struct train_state *s, struct err *e);

/* Checks what checkpoint_load() does not: that all files are there, and the digests of those that
 * are not tensors. */
MUST_USE int checkpoint_check(const char *dir, struct err *e);

/* Path of the newest checkpoint that verifies, to be freed; damaged ones are logged and skipped. */
MUST_USE int checkpoint_newest(const char *out, char **dir, struct err *e);
/* Step of the newest one before step `below` that passes checkpoint_check(). */
MUST_USE int checkpoint_newest_below(const char *out, int64_t below, int64_t *step, struct err *e);
/* Its path, to be freed. */
char *checkpoint_path(const char *out, int64_t step);
size_t checkpoint_count(const char *out);
int64_t checkpoint_last_step(const char *out); /* of the newest, whole or not; -1: none */
/* Removes the remains of crashes of this attempt and of earlier ones, except the folder of c
 * while that is being written; and, of the checkpoints up to step `good`, which is known to be
 * whole, all but the newest `keep` (0: removes none). Later ones stay: they were skipped as
 * damaged, and the run writes them again. Removes as much as it can; the error is of the first
 * failure. */
MUST_USE int checkpoint_prune(const char *out, const struct checkpoint *c, bool writing,
                              int64_t good, int64_t keep, struct err *e);

#endif
