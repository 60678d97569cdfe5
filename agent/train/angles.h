/* angles.h - RoPE's angles: by how much each pair of a head turns at each position.
 *
 * Pair i turns by theta^(-2i/head_dim) per position. Llama 3's scaling stretches slow
 * frequencies, to reach contexts longer than those of the first training: pairs that turn less
 * than `low` times in that context turn `factor` times slower, those that turn more than `high`
 * times are unchanged, and in between the factor changes smoothly.
 *
 * source   Su et al. 2021, arXiv:2104.09864; Llama 3's scaling as the Hub's config.json names its
 *          parts
 */
#ifndef AGENT_TRAIN_ANGLES_H
#define AGENT_TRAIN_ANGLES_H

#include "agent/train/config.h"

/* The angle of pair i, of head_dim / 2, at position 1. */
double angle_of_pair(const struct model_config *c, int64_t i);
/* cosines and sines of [seq, head_dim / 2] angles. */
void angles_fill(const struct model_config *c, int64_t seq, double *cosine, double *sine);

#endif
