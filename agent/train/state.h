/* state.h - the state of a run other than its tensors: trainer.json in a checkpoint.
 *
 * The counts of steps and of updates differ by the skipped steps: those with a gradient that was
 * not finite, or an outlier. The data advance by steps, AdamW and the learning rate by updates.
 *
 * errors   E_CORRUPT: not this program's state, or of another version
 */
#ifndef AGENT_TRAIN_STATE_H
#define AGENT_TRAIN_STATE_H

#include "agent/train/outlier.h"
#include "agent/train/scaler.h"
#include "agent/train/schedule.h"
#include "common/hash/digest.h"

struct train_state {
    int64_t step;
    int64_t updates;
    uint64_t samples; /* used so far, by all ranks */
    uint64_t tokens;
    uint64_t seed;
    int64_t seq;
    uint64_t windows;        /* in the data: with other data the order would differ */
    char dtype[8];           /* of the weights used for computing */
    struct digest data;      /* identity of the shards (data.h); zero: not known */
    struct digest tokenizer; /* identity of what made the data; zero: not known */
    struct recipe recipe;    /* the recipe of the run up to here */
    struct scaler scaler;
    struct outlier loss;
    struct outlier norm;
};

void state_format(const struct train_state *s, struct buf *out);
MUST_USE int state_parse(struct slice json, struct train_state *out, struct err *e);

#endif
