/* powersgd_state.h - E and Q of compressed gradients (powersgd.h) in a checkpoint, so that a run
 * goes on to the same bits.
 *
 * Each rank writes its own E and Q into powersgd-<rank>-of-<ranks>.safetensors, whole:
 * error.<tensor> [rows, cols] as the layout has it, factor.<tensor> [cols, rank], with a chunk list
 * (tensorfiles.h). They are of use to the same rank of as many ranks alone. Where there is no such
 * file, or one of other factors, E and Q begin as zeros.
 *
 * threads  the model's; waits for the device
 * errors   E_CORRUPT: no safetensors file, or not as it was written
 */
#ifndef AGENT_TRAIN_POWERSGD_STATE_H
#define AGENT_TRAIN_POWERSGD_STATE_H

#include <limits.h>

#include "agent/train/integrity.h"
#include "agent/train/powersgd.h"

void powersgd_file_name(int rank, int ranks, char out[NAME_MAX]);
/* Writes and syncs this rank's, in a folder that nobody looks into yet. */
MUST_USE int powersgd_save(const char *dir, struct model *m, struct err *e);
/* Verified as they are read. *found: they were there. */
MUST_USE int powersgd_load(const char *dir, struct model *m, struct integrity *i, bool *found,
                           struct err *e);

/* Whether the checkpoint has any of these files. */
bool powersgd_is_saved(const char *dir);

#endif
