/* bpe.h - byte pair encoding: joins a word's bytes pair by pair, the pair of lowest rank first,
 * the leftmost of equals.
 *
 * struct bpe is the vocabulary and the merges: filled once, then only read. struct bpe_coder is
 * the state of one thread: it holds the current word, and remembers short words, because text
 * repeats them. A word of n bytes takes O(n log n) time and 32 n bytes of memory; the memory for
 * a long one is freed.
 *
 * threads  any number may read one struct bpe; a coder is used by one at a time
 * source   Sennrich, Haddow and Birch 2016, arXiv:1508.07909; the order of merges is the
 *          `tokenizers` package's
 */
#ifndef AGENT_TRAIN_BPE_H
#define AGENT_TRAIN_BPE_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum {
    BPE_MAX_VOCAB = 1 << 22,
    BPE_MAX_TOKEN = 1 << 16,
    BPE_MAX_WORD = 1 << 26
}; /* ids, bytes, bytes */

struct bpe;
struct bpe_coder;

/* Ids are 0 to vocab - 1. `whole_words`: a word that is a token needs no merges (ignore_merges). */
struct bpe *bpe_new(uint32_t vocab, uint32_t merges, bool whole_words);
void bpe_free(struct bpe **bp); /* NULL is fine */
/* The bytes of a token, copied. `joins`: words are made of it; else it is a separate text that
 * only has an id here. */
void bpe_token(struct bpe *b, uint32_t id, struct slice bytes, bool joins);
/* Merges come in the order of their rank; a repeated one takes its later rank. */
void bpe_merge(struct bpe *b, uint32_t left, uint32_t right, uint32_t into);
/* E_UNSUPPORTED when a byte has no token: then some words could not be encoded. */
MUST_USE int bpe_check(const struct bpe *b, struct err *e);

uint32_t bpe_vocab(const struct bpe *b);
struct slice bpe_bytes(const struct bpe *b, uint32_t id); /* p NULL: an unused id */
/* In the order of ranks; false after the last. */
bool bpe_rank(const struct bpe *b, uint32_t rank, uint32_t pair[2]);

struct bpe_coder *bpe_coder_open(const struct bpe *b);
void bpe_coder_close(struct bpe_coder **cp); /* NULL is fine */
/* Writes the word's tokens, at most word.n of them, and returns their number. */
size_t bpe_word(struct bpe_coder *c, struct slice word, uint32_t *out);

#endif
