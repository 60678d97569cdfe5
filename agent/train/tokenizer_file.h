/* tokenizer_file.h - parses and checks a Hub's tokenizer.json, for tokenizer.c; tokenizer.h says
 * what is supported.
 *
 * The file comes from strangers: every string, id and number is checked, and everything that we
 * would do differently from the `tokenizers` package is refused.
 *
 * source   github.com/huggingface/tokenizers, the serde of models/bpe, pre_tokenizers, processors,
 *          added_vocabulary
 */
#ifndef AGENT_TRAIN_TOKENIZER_FILE_H
#define AGENT_TRAIN_TOKENIZER_FILE_H

#include "agent/train/added.h"
#include "agent/train/bpe.h"
#include "agent/train/split.h"

enum { ADDED_GROUPS = 2, TEMPLATE_MAX = 16 };

struct template_side {
    uint32_t token[TEMPLATE_MAX];
    size_t n;
};

struct tokenizer_parts {
    enum split_kind split;
    bool whole_words;
    struct bpe *bpe;
    /* Searched in the text as it is, then in the rest of it in normalised form: for us the same
     * text, later. */
    struct added *added[ADDED_GROUPS];
    struct added_token *token; /* all of them, in the order of ids; texts live in `bpe` */
    size_t tokens;
    struct template_side before;
    struct template_side behind;
};

MUST_USE int tokenizer_file_parse(struct slice json, struct tokenizer_parts *out, struct err *e);
void tokenizer_parts_free(struct tokenizer_parts *p);

#endif
