/* split.h - text cut into words, as the pre-tokenizers of GPT-2 and Llama-3 do it: by their own
 * patterns, through PCRE2.
 *
 * The patterns were written for Oniguruma. PCRE2 agrees but for two things: its \s takes U+180E, so
 * white space is spelled out here; and characters that Unicode added after PCRE2's tables (15.0 and
 * later for PCRE2 10.42) are neither letter nor number to it.
 *
 * Neither pattern looks back, and each matches at every character. So there are places where a word
 * ends whatever stands further left or right, and a long text may be cut there and its parts split
 * by different threads: split_cut().
 *
 * threads  a struct split is used by one at a time
 */
#ifndef AGENT_TRAIN_SPLIT_H
#define AGENT_TRAIN_SPLIT_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum split_kind { SPLIT_GPT2, SPLIT_LLAMA3 };

struct split;

/* The kind whose pattern a tokenizer.json spells like this. */
MUST_USE bool split_known(struct slice pattern, enum split_kind *out);
const char *split_name(enum split_kind kind);

struct split *split_open(enum split_kind kind);
void split_close(struct split **sp); /* NULL is fine */
/* Length of the first word of `text`: UTF-8, not empty. */
MUST_USE int split_word(struct split *s, struct slice text, size_t *n, struct err *e);

/* Whether text may be cut at `at`, 0 < at < text.n. The text need not be clean: what utf8_clean()
 * does to it changes nothing here. */
bool split_may_cut(enum split_kind kind, struct slice text, size_t at);

#endif
