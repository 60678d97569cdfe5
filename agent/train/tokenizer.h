/* tokenizer.h - converts between text and tokens: bytes as they are, or the byte-level BPE of a
 * Hub's tokenizer.json.
 *
 * It supports GPT-2's and Llama-3's kind: model BPE (merges as "a b" or ["a", "b"],
 * ignore_merges), the ByteLevel pre-tokenizer alone or after Llama-3's Split, added tokens, and a
 * template's tokens before and after a text. Anything else that would change tokens (a
 * normalizer, another model, dropout, stripping tokens) is refused by name, never approximated.
 * Truncation and padding are for batches and are not applied.
 *
 * Text is UTF-8; invalid bytes are replaced first (utf8.h), except for the bytes tokenizer, which
 * accepts anything.
 *
 * Its identity is a SHA-256 of what it does: split, vocabulary, merges, added tokens. Files that
 * are written differently and mean the same have the same identity.
 *
 * threads  any number may share a struct tokenizer; an encoder or decoder is used by one at a time
 * errors   E_CORRUPT: not a tokenizer.json; E_UNSUPPORTED: a feature that is not supported
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
/* The bytes of a token; p NULL for an unused id. */
struct slice tokenizer_text(const struct tokenizer *t, uint32_t id);
/* The id of an added token, -1 if none has that text. */
int64_t tokenizer_added(const struct tokenizer *t, struct slice text);
/* The added token that usually ends a text, -1: unknown. */
int64_t tokenizer_end_of_text(const struct tokenizer *t);
/* The template's tokens before a text, or after it; borrowed. */
const uint32_t *tokenizer_before(const struct tokenizer *t, size_t *n);
const uint32_t *tokenizer_behind(const struct tokenizer *t, size_t *n);

/* The last position after `from` at which a text that continues after text.n may be cut, so that
 * its parts can be encoded separately; 0 if there is none. The text need not be clean yet. */
size_t tokenizer_cut(const struct tokenizer *t, struct slice text, size_t from);

/* `ordinary`: special tokens in a text are text, so that it cannot forge them. */
struct encoder *encoder_open(const struct tokenizer *t, bool ordinary);
void encoder_close(struct encoder **ep); /* NULL is fine */
/* Writes the tokens of a text, without a template: at most text.n. */
MUST_USE int encoder_add(struct encoder *x, struct slice text, uint32_t *out, size_t *n,
                         struct err *e);

#endif
