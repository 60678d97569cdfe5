/* tokenizer.h - between text and tokens: bytes as they are, or the byte-level BPE of a Hub's
 * tokenizer.json.
 *
 * Read are GPT-2's and Llama-3's kind: model BPE (merges as "a b" or ["a", "b"], ignore_merges),
 * the ByteLevel pre-tokenizer alone or behind Llama-3's Split, added tokens, and a template's
 * tokens before and behind a text. Anything else that would change tokens (a normalizer, another
 * model, dropout, stripping tokens) is refused by name, never approximated. Truncation and padding
 * are for batches and are not applied.
 *
 * Text is UTF-8; bytes that are none are cleaned first (utf8.h), but for the bytes tokenizer, which
 * takes anything.
 *
 * Its identity is a SHA-256 of what it does: split, vocabulary, merges, added tokens; files that
 * are spelled differently and mean the same have the same.
 *
 * threads  any number may share a struct tokenizer; an encoder or decoder is used by one at a time
 * errors   E_CORRUPT: not a tokenizer.json; E_UNSUPPORTED: one whose meaning we do not have
 */
#ifndef AGENT_TRAIN_TOKENIZER_H
#define AGENT_TRAIN_TOKENIZER_H

#include "common/hash/digest.h"

enum { TOKENIZER_MAX_FILE = 64 << 20, TOKENIZER_NAME_BYTES = 32 };

struct tokenizer;
struct encoder;

/* `path`: a tokenizer.json, or the folder that holds one. NULL: bytes. */
MUST_USE int tokenizer_open(const char *path, struct tokenizer **out, struct err *e);
MUST_USE int tokenizer_parse(struct slice json, struct tokenizer **out, struct err *e);
void tokenizer_close(struct tokenizer **tp); /* NULL is fine */

uint32_t tokenizer_vocab(const struct tokenizer *t);   /* ids are below */
const char *tokenizer_name(const struct tokenizer *t); /* "bytes", "gpt2", "llama3" */
const struct digest *tokenizer_identity(const struct tokenizer *t);
bool tokenizer_is_bytes(const struct tokenizer *t);
/* The bytes that a token stands for; p NULL for an id that nobody has. */
struct slice tokenizer_text(const struct tokenizer *t, uint32_t id);
/* The id of an added token, -1 when there is none of that text. */
int64_t tokenizer_added(const struct tokenizer *t, struct slice text);
/* The added token that usually ends a text, -1: none is known. */
int64_t tokenizer_end_of_text(const struct tokenizer *t);
/* What the template puts before a text, or behind it; borrowed. */
const uint32_t *tokenizer_before(const struct tokenizer *t, size_t *n);
const uint32_t *tokenizer_behind(const struct tokenizer *t, size_t *n);

/* The last place beyond `from` where a text that goes on behind text.n may be cut, its parts to be
 * encoded apart; 0 when there is none. It need not be clean yet. */
size_t tokenizer_cut(const struct tokenizer *t, struct slice text, size_t from);

/* `ordinary`: special tokens in a text are text, so that it cannot forge them. */
struct encoder *encoder_open(const struct tokenizer *t, bool ordinary);
void encoder_close(struct encoder **ep); /* NULL is fine */
/* Writes the tokens of a text, no template around them: at most text.n. */
MUST_USE int encoder_add(struct encoder *x, struct slice text, uint32_t *out, size_t *n,
                         struct err *e);

#endif
