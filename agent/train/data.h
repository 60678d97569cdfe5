/* data.h - the training set: windows of tokens from many shards, in a shuffled order that is a
 * function of the seed.
 *
 * A sample is a window of seq + 1 tokens; windows follow one another in a shard and never cross
 * into the next. Sample number n of a run is permute(n mod count) of epoch n / count. So the
 * position in the data is one integer, and any rank can find any sample. The permutation is a
 * Feistel network: no table, no state.
 *
 * owns     struct data holds the shards' open files
 * threads  data_sample() from any
 * errors   E_NOTFOUND when the pattern matches nothing; E_INVALID when shards do not fit together
 */
#ifndef AGENT_TRAIN_DATA_H
#define AGENT_TRAIN_DATA_H

#include "agent/train/shard.h"

struct data;

/* `pattern` as for glob(7); the files are taken in sorted order. All must share one tokenizer and
 * vocabulary. */
MUST_USE int data_open(const char *pattern, int64_t seq, uint64_t seed, struct data **out,
                       struct err *e);
void data_close(struct data **dp); /* NULL is fine */

uint64_t data_count(const struct data *d); /* samples an epoch; at least 1 */
uint32_t data_vocab(const struct data *d);
/* Identity of the tokenizer that made the shards (tokenizer.h); zero: unknown. */
const struct digest *data_tokenizer(const struct data *d);
/* Identity of the tokens in their order, from the shards' headers: distinguishes data that
 * differ. */
void data_identity(const struct data *d, struct digest *out);
/* The folder of the first shard, to be freed: its tokenizer may be there. */
char *data_folder(const struct data *d);
/* Sample `number` of the run: seq inputs, and the seq tokens that follow each. */
MUST_USE int data_sample(const struct data *d, uint64_t number, int32_t *token, int32_t *target,
                         struct err *e);
/* Announces that this sample will be requested soon. */
void data_expect(const struct data *d, uint64_t number);
/* Window `index` in the files' order, for evaluation. */
MUST_USE int data_window(const struct data *d, uint64_t index, int32_t *token, int32_t *target,
                         struct err *e);

/* Maps i of 0..n-1 under a key: a bijection for every key. */
uint64_t permute(uint64_t i, uint64_t n, uint64_t key);

#endif
