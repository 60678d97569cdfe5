/* added.h - finds tokens that stand for a whole text, such as <|endoftext|>, before the text is
 * split into words.
 *
 * Of several that begin at one place the longest counts; of overlapping ones, the leftmost.
 *
 * owns     struct added copies the texts
 * threads  any number may search
 */
#ifndef AGENT_TRAIN_ADDED_H
#define AGENT_TRAIN_ADDED_H

#include "common/base/slice.h"

enum { ADDED_MAX_BYTES = 1024 }; /* of one text */

struct added_token {
    struct slice text;
    uint32_t id;
    bool special; /* a mark, not text: it stays text where marks may not be forged */
};

struct added;

/* The texts are 1 to ADDED_MAX_BYTES long; false when one is repeated. */
MUST_USE bool added_open(const struct added_token *token, size_t n, struct added **out);
void added_close(struct added **ap); /* NULL is fine */

/* The first one in `text` from `from` on, NULL when there is none; *at is its place. With
 * `ordinary` special ones are ignored. */
const struct added_token *added_find(const struct added *a, struct slice text, size_t from,
                                     bool ordinary, size_t *at);
size_t added_longest(const struct added *a); /* bytes; 0: there are none */
/* Does one in `text` extend over `at`, from its left to its right? */
bool added_spans(const struct added *a, struct slice text, size_t at);

#endif
