/* powersgd.h - gradients as products of two thin matrices, for links that are slower than the model
 * is large (PowerSGD).
 *
 * Of each matrix M [rows, cols] of a block, as the Hub has them (Llama's q, k and v apart), the
 * ranks sum two factors of r columns instead of M itself:
 *
 *     E += M                what earlier steps left out is made up for (error feedback)
 *     Q orthonormal         the last step's (warm start); at first directions that are drawn
 *     P = E Q               summed over the ranks, then made orthonormal
 *     Q = E' P              E -= P Q'; then Q is summed over the ranks
 *     M = P Q'              the same on all ranks
 *
 * E is each rank's own, P, Q and M have the same bits on all. E loses P Q' before Q is summed: the
 * sum of all ranks' E is what the paper's is (there each loses an equal share of M), but none keeps
 * what the others' gradients would cancel. All P of a group are one message, all Q another. What is
 * not worth it, (rows + cols) * r * 2 >= rows * cols, the vectors, the embeddings and the head are
 * summed as they are. All sums are of the accumulation type, once a step.
 *
 * The first `start` steps are summed whole: early gradients are not of low rank. E and Q begin when
 * these have passed; a step that is not taken, or another loss scale, drops E and Q, for what is
 * not finite would stay in them.
 *
 * Each rank makes M, and Q and P orthonormal, by itself from the same numbers. Processors of
 * different kinds do not round alike: in stage 0, where each rank updates all weights, copies would
 * drift apart. The ranks compare what they have made from time to time; in stage 1 every weight
 * comes from one rank.
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

/* Of a model with compress.rank. Plans first; powersgd_reserve() takes the memory, zeroed. */
struct powersgd *powersgd_new(const struct model *m);
size_t powersgd_bytes(const struct model *m);
MUST_USE int powersgd_reserve(struct model *m, struct err *e);
void powersgd_free(struct model *m); /* NULL is fine */

/* The next pass belongs to this step, 1, 2, ...: whether it is compressed, and what is drawn in
 * it. */
void powersgd_begin(struct model *m, int64_t step);
/* Whether there has been one that was: until then E and Q are zeros. */
bool powersgd_begun(const struct model *m);
void powersgd_clear(struct model *m); /* they become zeros again */
/* Whether E and Q came from a checkpoint. */
void powersgd_set_resumed(struct model *m, bool resumed);
bool powersgd_resumed(const struct model *m);
/* 16 bits of what this rank has made of the step's gradients, the same on all ranks. Most often 0:
 * nothing is compared in this step. */
MUST_USE int powersgd_mark(struct model *m, uint16_t *mark, struct err *e);
/* The step was not taken, or gradients will be of another scale. */
void powersgd_forget(struct model *m);

/* Whether the step's gradients of the group are summed here; then powersgd_sum() does, on that
 * stream. */
bool powersgd_takes(const struct model *m, int group);
void powersgd_sum(struct model *m, struct kstream *ks, int group);
/* Whether a compressed step has factors of the group, and the elements that the ranks then sum. */
bool powersgd_has(const struct model *m, int group);
int64_t powersgd_elements(const struct model *m, int group);
/* What a rank has to keep for a run that goes on to the same bits (powersgd_state.h): all E, and
 * all Q, which are the same on all ranks. In device memory, of the accumulation type. */
enum powersgd_set { POWERSGD_ERRORS, POWERSGD_FACTORS, POWERSGD_SETS };
char *powersgd_set(const struct model *m, enum powersgd_set set, int64_t *elements);
/* One of them; numbers from 0, false: there are no more. */
struct powersgd_tensor {
    char name[96]; /* "error." or "factor.", and the Hub's */
    enum powersgd_set set;
    int64_t offset; /* in the set */
    int64_t rows, cols;
    char *at;
};
bool powersgd_tensor(const struct model *m, int number, struct powersgd_tensor *out);

/* Before the first step: runs every product once, on zeros, so that its algorithm is known. All
 * ranks must multiply by the same ones (products.h). */
void powersgd_rehearse(struct model *m, struct kstream *ks);

#endif
