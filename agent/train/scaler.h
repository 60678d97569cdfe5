/* scaler.h - the factor by which the loss is multiplied, so that the small gradients of f16 do
 * not become zeros.
 *
 * When a gradient has overflowed, the step is skipped and the scale halves; after many good steps
 * in a row it doubles. Types with the range of f32 need none: their scale stays 1.
 *
 * source   Micikevicius et al. 2018, arXiv:1710.03740; the numbers are PyTorch's
 */
#ifndef AGENT_TRAIN_SCALER_H
#define AGENT_TRAIN_SCALER_H

#include <stdbool.h>
#include <stdint.h>

enum { SCALER_GROWTH_STEPS = 2000 };

struct scaler {
    bool on;
    double scale;
    int64_t good; /* consecutive good steps since the scale last changed */
};

void scaler_init(struct scaler *s, bool on, double scale);
/* After each step: were its gradients finite? */
void scaler_step(struct scaler *s, bool finite);

#endif
