/* encode.h - turns a block of text into the tokens of its documents, ready for a shard.
 *
 * A document is the template's tokens before the text, the text, the template's tokens after it,
 * and the end-of-text token, unless it already ends with that. An end-of-text token inside a text
 * (its mark is in the text) ends a document too. Documents without text are left out. The bytes
 * tokenizer adds nothing around a text.
 *
 * threads  a struct encoding is used by one at a time
 * errors   E_CORRUPT names file and line
 */
#ifndef AGENT_TRAIN_ENCODE_H
#define AGENT_TRAIN_ENCODE_H

#include "agent/train/feed.h"

struct encode_document {
    size_t at;     /* position of its first byte among the tokens' */
    uint64_t hash; /* of its tokens; of a longer one those in its first block */
};

struct encoded {
    struct buf tokens; /* in a shard's form */
    /* those that begin here; tokens before the first belong to the previous one */
    struct encode_document *document;
    size_t documents;
    size_t room;
    uint64_t replaced; /* bytes that were not UTF-8 */
};

struct encode_options {
    const struct tokenizer *tokenizer;
    int64_t end_of_text; /* -1: none */
    bool ordinary;       /* marks of special tokens in a text are text */
    struct slice field;  /* of JSON lines */
};

struct encoding;

struct encoding *encoding_open(const struct encode_options *o); /* its pointers are borrowed */
void encoding_close(struct encoding **ep);                      /* NULL is fine */
/* Replaces what `out` holds. */
MUST_USE int encode_block(struct encoding *x, const struct block *b, struct encoded *out,
                          struct err *e);
/* Frees memory that only an unusual block needed. */
void encoded_trim(struct encoded *x);
void encoded_free(struct encoded *x);

#endif
