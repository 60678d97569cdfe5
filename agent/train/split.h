/* split.h - splits text into words as the pre-tokenizers of GPT-2 and Llama-3 do: by their own
 * patterns, with PCRE2.
 *
 * The patterns were written for Oniguruma. PCRE2 agrees except in two points: its \s matches
 * U+180E, so white space is spelled out here; and characters that Unicode added after PCRE2's
 * tables (15.0 and later for PCRE2 10.42) are neither letter nor number to it.
 *
 * Neither pattern looks back, and each matches at every character. So there are places where a
 * word ends whatever comes further left or right. A long text may be cut there, and different
 * threads may split its parts: split_may_cut().
 *
 * threads  a struct split is used by one at a time
 */
#ifndef AGENT_TRAIN_SPLIT_H
#define AGENT_TRAIN_SPLIT_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum split_kind { SPLIT_GPT2, SPLIT_LLAMA3 };

struct split;

/* The kind whose pattern a tokenizer.json writes in this form. */
MUST_USE bool split_known(struct slice pattern, enum split_kind *out);
const char *split_name(enum split_kind kind);

struct split *split_open(enum split_kind kind);
void split_close(struct split **sp); /* NULL is fine */
/* Length of the first word of `text`: UTF-8, not empty. */
MUST_USE int split_word(struct split *s, struct slice text, size_t *n, struct err *e);

/* May text be cut at `at`, 0 < at < text.n? The text need not be clean: utf8_clean() does not
 * change the result. */
bool split_may_cut(enum split_kind kind, struct slice text, size_t at);

#endif
