#include "agent/train/tokenizer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "agent/train/config.h"
#include "agent/train/tokenizer_file.h"
#include "common/base/endian.h"

struct tokenizer {
    struct tokenizer_parts parts; /* bpe NULL: bytes */
    struct digest identity;
    char byte[256];
};

/* --- opening ---------------------------------------------------------------------------------- */

static void hash_u32(struct hasher *h, uint32_t v)
{
    uint8_t le[4];

    le_put(le, sizeof le, v);
    hasher_add(h, le, sizeof le);
}

static void hash_bytes(struct hasher *h, struct slice s)
{
    hash_u32(h, (uint32_t)s.n);
    hasher_add(h, s.p, s.n);
}

/* Everything that decides which text becomes which token, in one order. */
static void identify(struct tokenizer *t)
{
    const struct tokenizer_parts *p = &t->parts;
    struct hasher *h = hasher_new_whole();
    uint32_t pair[2];

    hash_bytes(h, slice_str(split_name(p->split)));
    hash_u32(h, p->whole_words);
    hash_u32(h, bpe_vocab(p->bpe));
    for (uint32_t id = 0; id < bpe_vocab(p->bpe); id++) {
        hash_bytes(h, bpe_bytes(p->bpe, id));
    }
    for (uint32_t rank = 0; bpe_rank(p->bpe, rank, pair); rank++) {
        hash_u32(h, pair[0]);
        hash_u32(h, pair[1]);
    }
    hash_u32(h, UINT32_MAX); /* the merges' end */
    for (size_t i = 0; i < p->tokens; i++) {
        hash_u32(h, p->token[i].id);
        hash_u32(h, p->token[i].special);
    }
    hasher_final(h, &t->identity);
    hasher_free(&h);
}

static struct tokenizer *of_bytes(void)
{
    struct tokenizer *t = NEW(struct tokenizer);

    for (int i = 0; i < 256; i++) {
        t->byte[i] = (char)i;
    }
    digest_of(SLICE("bytes"), &t->identity);
    return t;
}

int tokenizer_parse(struct slice json, struct tokenizer **out, struct err *e)
{
    struct tokenizer *t = NEW(struct tokenizer);
    int rc = tokenizer_file_parse(json, &t->parts, e);

    if (rc == 0) {
        identify(t);
        *out = t;
        t = NULL;
    }
    tokenizer_close(&t);
    return rc;
}

int tokenizer_open(const char *path, struct tokenizer **out, struct err *e)
{
    struct buf text = BUF_INIT(TOKENIZER_MAX_FILE);
    char file[PATH_MAX];
    struct stat st;
    int rc;

    *out = NULL;
    if (path == NULL) {
        *out = of_bytes();
        return 0;
    }
    snprintf(file, sizeof file, "%s%s", path,
             stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? "/tokenizer.json" : "");
    rc = buf_read_file(&text, file, e);
    if (rc == 0) {
        rc = tokenizer_parse(buf_slice(&text), out, e);
        if (rc != 0) {
            err_prefix(e, "%s", file);
        }
    }
    buf_free(&text);
    return rc;
}

void tokenizer_close(struct tokenizer **tp)
{
    struct tokenizer *t = *tp;

    if (t != NULL) {
        *tp = NULL;
        tokenizer_parts_free(&t->parts);
        free(t);
    }
}

/* --- what it knows ---------------------------------------------------------------------------- */

bool tokenizer_is_bytes(const struct tokenizer *t)
{
    return t->parts.bpe == NULL;
}

uint32_t tokenizer_vocab(const struct tokenizer *t)
{
    return tokenizer_is_bytes(t) ? VOCAB_BYTES : bpe_vocab(t->parts.bpe);
}

const char *tokenizer_name(const struct tokenizer *t)
{
    return tokenizer_is_bytes(t) ? "bytes" : split_name(t->parts.split);
}

const struct digest *tokenizer_identity(const struct tokenizer *t)
{
    return &t->identity;
}

struct slice tokenizer_text(const struct tokenizer *t, uint32_t id)
{
    if (tokenizer_is_bytes(t)) {
        return id < VOCAB_BYTES ? slice_of(&t->byte[id], 1) : SLICE_NONE;
    }
    return bpe_bytes(t->parts.bpe, id);
}

int64_t tokenizer_added(const struct tokenizer *t, struct slice text)
{
    for (size_t i = 0; i < t->parts.tokens; i++) {
        if (slice_eq(t->parts.token[i].text, text)) {
            return t->parts.token[i].id;
        }
    }
    return -1;
}

int64_t tokenizer_end_of_text(const struct tokenizer *t)
{
    static const struct slice usual[] = {SLICE("<|endoftext|>"), SLICE("<|end_of_text|>")};

    for (size_t i = 0; i < ARRAY_LEN(usual); i++) {
        int64_t id = tokenizer_added(t, usual[i]);

        if (id >= 0) {
            return id;
        }
    }
    return -1;
}

const uint32_t *tokenizer_before(const struct tokenizer *t, size_t *n)
{
    *n = t->parts.before.n;
    return t->parts.before.token;
}

const uint32_t *tokenizer_behind(const struct tokenizer *t, size_t *n)
{
    *n = t->parts.behind.n;
    return t->parts.behind.token;
}

static bool added_tokens_span(const struct tokenizer_parts *p, struct slice text, size_t at)
{
    for (size_t g = 0; g < ADDED_GROUPS; g++) {
        if (added_spans(p->added[g], text, at)) {
            return true;
        }
    }
    return false;
}

size_t tokenizer_cut(const struct tokenizer *t, struct slice text, size_t from)
{
    const struct tokenizer_parts *p = &t->parts;
    size_t longest = 1, at;

    if (tokenizer_is_bytes(t)) {
        return text.n > from ? text.n : 0;
    }
    for (size_t g = 0; g < ADDED_GROUPS; g++) {
        longest = added_longest(p->added[g]) > longest ? added_longest(p->added[g]) : longest;
    }
    /* Nearer to the end an added token may go on behind it. */
    for (at = text.n >= longest ? text.n - longest : 0; at > from; at--) {
        if (split_may_cut(p->split, text, at) && !added_tokens_span(p, text, at)) {
            return at;
        }
    }
    return 0;
}

/* --- encoding --------------------------------------------------------------------------------- */

struct encoder {
    const struct tokenizer *t;
    bool ordinary;
    struct split *split;
    struct bpe_coder *coder;
    uint32_t *out;
    size_t n;
};

struct encoder *encoder_open(const struct tokenizer *t, bool ordinary)
{
    struct encoder *x = NEW(struct encoder);

    x->t = t;
    x->ordinary = ordinary;
    if (!tokenizer_is_bytes(t)) {
        x->split = split_open(t->parts.split);
        x->coder = bpe_coder_open(t->parts.bpe);
    }
    return x;
}

void encoder_close(struct encoder **xp)
{
    struct encoder *x = *xp;

    if (x != NULL) {
        *xp = NULL;
        split_close(&x->split);
        bpe_coder_close(&x->coder);
        free(x);
    }
}

static int add_words(struct encoder *x, struct slice text, struct err *e)
{
    while (text.n > 0) {
        size_t n;
        int rc = split_word(x->split, text, &n, e);

        if (rc != 0) {
            return rc;
        }
        x->n += bpe_word(x->coder, slice_first(text, n), x->out + x->n);
        text = slice_from(text, n);
    }
    return 0;
}

/* What stands between the added tokens of one group is searched for those of the next, then split
 * into words. */
static int add_piece(struct encoder *x, struct slice text, size_t group, struct err *e)
{
    const struct added_token *found;
    size_t at;
    int rc = 0;

    if (group == ADDED_GROUPS) {
        return add_words(x, text, e);
    }
    while (rc == 0 && (found = added_find(x->t->parts.added[group], text, 0, x->ordinary, &at))) {
        rc = add_piece(x, slice_first(text, at), group + 1, e);
        x->out[x->n++] = found->id;
        text = slice_from(text, at + found->text.n);
    }
    return rc != 0 ? rc : add_piece(x, text, group + 1, e);
}

int encoder_add(struct encoder *x, struct slice text, uint32_t *out, size_t *n, struct err *e)
{
    int rc = 0;

    x->out = out;
    x->n = 0;
    if (tokenizer_is_bytes(x->t)) {
        for (; x->n < text.n; x->n++) {
            out[x->n] = (uint8_t)text.p[x->n];
        }
    } else {
        rc = add_piece(x, text, 0, e);
    }
    *n = x->n;
    return rc;
}
