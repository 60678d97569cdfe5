/* zero.h - distributes a model's tensors over the ranks that train it: data parallel training,
 * and the three stages of ZeRO.
 *
 *     stage   parameters   gradients   masters and moments
 *     0       all          all         all
 *     1       all          all         own
 *     2       all          own         own
 *     3       own          own         own
 *
 * "Own" is the rank's partition (layout.h). When a pass reads or writes a group of which only a
 * piece is kept, the whole group is in a buffer for that time: the embeddings and the model's end
 * have one each; the blocks alternate between two for parameters and three for gradients.
 *
 * Gradients are reduced over the ranks group by group, each as soon as the backward pass has
 * finished it. Stages 0 and 1 add up all passes of a step and reduce once; stages 2 and 3 reduce
 * after each pass and add up their own pieces. In an `ordered` model all stages do the latter, by
 * reduce-scatter: then all four give the same bits.
 *
 * With narrow_sums a group's gradients are rounded to bf16 for the transfer: each rank's before
 * they are summed, and the sums. What a rank adds up by itself stays of the accumulation type.
 *
 * With replicas, several groups of ranks hold a divided model each: pieces are summed inside a
 * group, then over the groups. Parameters are only exchanged inside a group.
 *
 * The gradient bytes that a rank sends are counted, and can be computed beforehand: of N ranks
 * each sends (N - 1) / N of what is scattered or gathered, and twice that of an all-reduce, as
 * rings do.
 *
 * Collectives have their own stream, so that on a GPU one group is transferred while others are
 * computed:
 *
 *     backward   block g | sum of g beside block g - 1 | the optimizer waits for all sums
 *     stage 3    block g | parameters of g + 1 (back: g - 1) beside it
 *     update     group g | its parameters to the others beside the update of g + 1
 *
 * threads  the model's
 * errors   kept in the model, as those of its operations; E_NETWORK: the ranks lost each other
 * source   Rajbhandari et al. 2020, arXiv:1910.02054
 */
#ifndef AGENT_TRAIN_ZERO_H
#define AGENT_TRAIN_ZERO_H

#include "agent/train/model.h"

enum { ZERO_STAGES = 4 };

/* The memory of parameters, gradients and the optimizer, including the stream of collectives. */
void zero_plan(const struct model *m, struct model_memory *out);
/* Allocates memory for parameters and gradients, zeroed. */
MUST_USE int zero_reserve(struct model *m, struct err *e);
void zero_release(struct model *m);

/* Before a group's parameters are read: makes them whole. `next` is the group that is needed
 * after it, which is fetched in the meantime; -1: unknown. */
void zero_need(struct model *m, int group, int next);
/* Before a pass writes to a group's gradients; the first pass of a step finds zeros where it
 * adds. */
void zero_open_gradients(struct model *m, int group);
/* The pass has finished them: reduces them over the ranks when it is time. */
void zero_sum_gradients(struct model *m, int group);

/* Sums a run of a group's gradients, or of their factors, over the ranks: on the stream of
 * collectives. */
void zero_sum_run(struct model *m, char *at, int64_t n);
/* The gradient bytes that a rank sends in a step: before compression begins, and from then on. */
double zero_gradient_bytes(const struct model *m, bool compressed);
/* The stream of collectives, in addition to the model's own; NULL: a single rank. */
struct kstream *zero_stream(const struct model *m);

/* Does the step's next pass overwrite the gradients? */
bool zero_starts_anew(const struct model *m);

/* This rank's share of the step's gradients of a group, and its place; and the share with which
 * it updates the state, which is everything in stage 0. */
struct piece zero_gradients(const struct model *m, int group, char **at);
struct piece zero_updates(const struct model *m, int group, char **at);
/* What is queued on the model's stream from now on runs after all transfers in progress. */
void zero_settle(struct model *m);
/* Sums over the ranks of a comm, on the model's stream; an error is the model's too. */
int zero_allreduce(struct model *m, struct comm *c, enum dtype dt, void *buf, int64_t n);
/* Sums an f64 in device memory over the ranks that divide the model, or have another part of it. */
void zero_sum(struct model *m, double *x);
/* The owners have changed a group's parameters: the others get them now, or when they need them. */
void zero_publish(struct model *m, int group);

/* A group of masters or moments, whole, in device memory: in its place in `set`, or collected
 * into the buffer of the group's gradients. Between steps; if it is in pieces all ranks call it
 * together. */
char *zero_collect(struct model *m, char *set, struct partition held, int group);

#endif
