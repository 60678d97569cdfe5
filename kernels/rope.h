/* rope.h - rotary positions: turns the queries and keys of a packed qkv by their token's
 * position, in place.
 *
 * With half = head_dim / 2, elements i and i + half of a head are one pair (the "rotate half"
 * order of the Hub's Llama and GPT-NeoX checkpoints). The token at position t turns each pair by
 * its own angle:
 *
 *     x[i]' = x[i] cos[t][i] - x[i + half] sin[t][i]
 *     x[i + half]' = x[i + half] cos[t][i] + x[i] sin[t][i]
 *
 * Backward turns a gradient by the opposite angles. Values are not changed. The caller knows the
 * angles (theta, Llama-3's scaling) and makes the tables once.
 *
 * shapes   qkv, dqkv as attention.h says; cos, sin [seq, head_dim / 2], of dtype_accum(dt)
 * errors   E_UNSUPPORTED: an odd head_dim
 * source   Su et al. 2021, arXiv:2104.09864
 */
#ifndef KERNELS_ROPE_H
#define KERNELS_ROPE_H

#include "kernels/attention.h"

int rope_forward_cpu(struct kstream *ks, enum dtype dt, void *qkv, const void *cos, const void *sin,
                     const struct attention_shape *s);
int rope_backward_cpu(struct kstream *ks, enum dtype dt, void *dqkv, const void *cos,
                      const void *sin, const struct attention_shape *s);

#endif
