/* powersgd_state.h - E and Q of compressed gradients (powersgd.h) in a checkpoint, so that a
 * resumed run gives the same bits.
 *
 * Each rank writes its own E and Q into powersgd-<rank>-of-<ranks>.safetensors, whole:
 * error.<tensor> [rows, cols] in the layout's form, factor.<tensor> [cols, rank], with a chunk
 * list (tensorfiles.h). Only the same rank of as many ranks can use them. If there is no such
 * file, or one of other factors, E and Q begin as zeros.
 *
 * threads  the model's; waits for the device
 * errors   E_CORRUPT: not a safetensors file, or its contents have changed
 */
#ifndef AGENT_TRAIN_POWERSGD_STATE_H
#define AGENT_TRAIN_POWERSGD_STATE_H

#include <limits.h>

#include "agent/train/integrity.h"
#include "agent/train/powersgd.h"

void powersgd_file_name(int rank, int ranks, char out[NAME_MAX]);
/* Writes and syncs this rank's, in a folder that no reader sees yet. */
MUST_USE int powersgd_save(const char *dir, struct model *m, struct err *e);
/* Verified as they are read. *found: they were there. */
MUST_USE int powersgd_load(const char *dir, struct model *m, struct integrity *i, bool *found,
                           struct err *e);

/* Does the checkpoint have any of these files? */
bool powersgd_is_saved(const char *dir);

#endif
