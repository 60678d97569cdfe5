/* powersgd.h - compresses gradients into products of two thin matrices, for links that are slow
 * in relation to the model's size (PowerSGD).
 *
 * For each matrix M [rows, cols] of a block, as the Hub has them (Llama's q, k and v apart), the
 * ranks sum two factors of r columns instead of M itself:
 *
 *     E += M                adds what earlier steps left out (error feedback)
 *     Q orthonormal         the last step's (warm start); random directions in the first
 *     P = E Q               summed over the ranks, then made orthonormal
 *     Q = E' P              E -= P Q'; then Q is summed over the ranks
 *     M = P Q'              the same on all ranks
 *
 * Each rank has its own E; P, Q and M have the same bits on all. E loses P Q' before Q is summed:
 * the sum of all ranks' E is the paper's (there each loses an equal share of M), but no rank
 * keeps what the others' gradients would cancel. All P of a group are one message, all Q another.
 * These are summed as they are: matrices that are too small, (rows + cols) * r * 2 >= rows *
 * cols, the vectors, the embeddings and the head. All sums are of the accumulation type, once a
 * step.
 *
 * The first `start` steps are summed whole, because early gradients are not of low rank. E and Q
 * begin after them. A step that is skipped, or another loss scale, drops E and Q, because values
 * that are not finite would stay in them.
 *
 * Each rank computes M, and makes Q and P orthonormal, from the same numbers. Processors of
 * different kinds do not round alike: in stage 0, where each rank updates all weights, copies
 * would drift apart. So the ranks compare their results from time to time; in stage 1 every
 * weight comes from one rank.
 *
 * owns     struct powersgd, of a model
 * threads  the model's; on the stream of collectives (zero.h)
 * errors   kept in the model
 * source   Vogels, Karimireddy, Jaggi 2019, arXiv:1905.13727, algorithm 1
 */
#ifndef AGENT_TRAIN_POWERSGD_H
#define AGENT_TRAIN_POWERSGD_H

#include "agent/train/model.h"

struct powersgd;

enum { POWERSGD_RANK_MAX = 256 };

/* For a model with compress.rank. Only plans; powersgd_reserve() allocates the memory, zeroed. */
struct powersgd *powersgd_new(const struct model *m);
size_t powersgd_bytes(const struct model *m);
MUST_USE int powersgd_reserve(struct model *m, struct err *e);
void powersgd_free(struct model *m); /* NULL is fine */

/* The next pass belongs to this step, 1, 2, ...: decides whether it is compressed, and seeds its
 * random directions. */
void powersgd_begin(struct model *m, int64_t step);
/* Has there been a compressed step? Until then E and Q are zeros. */
bool powersgd_begun(const struct model *m);
void powersgd_clear(struct model *m); /* they become zeros again */
/* Did E and Q come from a checkpoint? */
void powersgd_set_resumed(struct model *m, bool resumed);
bool powersgd_resumed(const struct model *m);
/* 16 bits of this rank's results of the step, which must be the same on all ranks. Most often 0:
 * nothing is compared in this step. */
MUST_USE int powersgd_mark(struct model *m, uint16_t *mark, struct err *e);
/* The step was skipped, or the gradients will have another scale. */
void powersgd_forget(struct model *m);

/* Are the step's gradients of the group summed here? Then call powersgd_sum(), on that stream. */
bool powersgd_takes(const struct model *m, int group);
void powersgd_sum(struct model *m, struct kstream *ks, int group);
/* Does a compressed step have factors of the group? And the elements that the ranks then sum. */
bool powersgd_has(const struct model *m, int group);
int64_t powersgd_elements(const struct model *m, int group);
/* What a rank must keep so that a resumed run gives the same bits (powersgd_state.h): all E, and
 * all Q, which are the same on all ranks. In device memory, of the accumulation type. */
enum powersgd_set { POWERSGD_ERRORS, POWERSGD_FACTORS, POWERSGD_SETS };
char *powersgd_set(const struct model *m, enum powersgd_set set, int64_t *elements);
/* One of them; numbered from 0; false: there are no more. */
struct powersgd_tensor {
    char name[96]; /* "error." or "factor.", and the Hub's name */
    enum powersgd_set set;
    int64_t offset; /* in the set */
    int64_t rows, cols;
    char *at;
};
bool powersgd_tensor(const struct model *m, int number, struct powersgd_tensor *out);

/* Before the first step: runs every product once, on zeros, so that its algorithm is chosen. All
 * ranks must use the same ones (products.h). */
void powersgd_rehearse(struct model *m, struct kstream *ks);

#endif
