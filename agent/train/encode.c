#include "agent/train/encode.h"

#include <stdlib.h>
#include <xxhash.h>

#include "agent/train/jsonline.h"
#include "agent/train/shard.h"
#include "common/base/endian.h"
#include "common/codec/utf8.h"

enum {
    TOKENS_MAX = 4 * (3 * FEED_MAX_LINE) + FEED_BLOCK, /* a bad byte becomes three, each a token */
    USUAL_BYTES = 8 * FEED_BLOCK,
};

struct encoding {
    struct encode_options o;
    struct encoder *encoder;
    uint32_t token_bytes;
    struct buf line;  /* a document out of its line */
    struct buf clean; /* text without bad bytes */
    uint32_t *token;
    size_t room;
    struct encoded *out;
    bool open; /* a document was begun and has not ended */
};

struct encoding *encoding_open(const struct encode_options *o)
{
    struct encoding *x = NEW(struct encoding);

    x->o = *o;
    x->encoder = encoder_open(o->tokenizer, o->ordinary);
    x->token_bytes = shard_token_bytes(tokenizer_vocab(o->tokenizer));
    x->line = BUF_INIT(FEED_MAX_LINE);
    x->clean = BUF_INIT(3 * FEED_MAX_LINE);
    return x;
}

void encoding_close(struct encoding **xp)
{
    struct encoding *x = *xp;

    if (x != NULL) {
        *xp = NULL;
        encoder_close(&x->encoder);
        buf_free(&x->line);
        buf_free(&x->clean);
        free(x->token);
        free(x);
    }
}

/* --- documents -------------------------------------------------------------------------------- */

static void put_tokens(struct encoding *x, const uint32_t *token, size_t n)
{
    char *to = buf_room(&x->out->tokens, n * x->token_bytes);

    CHECK(to != NULL);
    for (size_t i = 0; i < n; i++) {
        le_put(to, x->token_bytes, token[i]);
        to += x->token_bytes;
    }
    buf_grew(&x->out->tokens, n * x->token_bytes);
}

static void hash_last(struct encoded *out)
{
    if (out->documents > 0) {
        struct encode_document *d = &out->document[out->documents - 1];

        d->hash = XXH3_64bits(out->tokens.p + d->at, out->tokens.n - d->at);
    }
}

static void begin_document(struct encoding *x)
{
    struct encoded *out = x->out;
    const uint32_t *before;
    size_t n;

    hash_last(out);
    if (out->documents == out->room) {
        out->room = 2 * out->room + 64;
        out->document = realloc(out->document, out->room * sizeof *out->document);
        CHECK(out->document != NULL);
    }
    out->document[out->documents++] = (struct encode_document){.at = out->tokens.n};
    before = tokenizer_before(x->o.tokenizer, &n);
    put_tokens(x, before, n);
    x->open = true;
}

static void end_document(struct encoding *x)
{
    uint32_t end = (uint32_t)x->o.end_of_text;
    const uint32_t *behind;
    size_t n;

    behind = tokenizer_behind(x->o.tokenizer, &n);
    put_tokens(x, behind, n);
    if (x->o.end_of_text >= 0 && (n == 0 || behind[n - 1] != end)) {
        put_tokens(x, &end, 1);
    }
    x->open = false;
}

/* The tokens of a text; those that end a document are followed by what begins the next. */
static void put_encoded_text(struct encoding *x, const uint32_t *token, size_t n)
{
    while (n > 0) {
        size_t some = 0;
        bool ended = false;

        while (some < n && !ended) {
            ended = token[some++] == x->o.end_of_text;
        }
        if (!x->open) {
            begin_document(x);
        }
        put_tokens(x, token, ended ? some - 1 : some);
        if (ended) {
            end_document(x);
        }
        token += some;
        n -= some;
    }
}

static int add_text(struct encoding *x, struct slice text, struct err *e)
{
    size_t n, used;
    int rc;

    if (!tokenizer_is_bytes(x->o.tokenizer) && utf8_valid(text) < text.n) {
        buf_clear(&x->clean);
        x->out->replaced += utf8_clean(text, false, &x->clean, &used);
        CHECK(x->clean.rc == 0);
        text = buf_slice(&x->clean);
    }
    if (text.n > x->room) {
        x->room = text.n > FEED_BLOCK ? text.n : FEED_BLOCK;
        free(x->token);
        x->token = mem_array(x->room, sizeof *x->token);
    }
    rc = encoder_add(x->encoder, text, x->token, &n, e);
    if (rc == 0) {
        put_encoded_text(x, x->token, n);
    }
    return rc;
}

/* --- blocks ----------------------------------------------------------------------------------- */

static int add_lines(struct encoding *x, const struct block *b, struct err *e)
{
    struct slice rest = buf_slice(&b->text);
    int rc = 0;

    for (uint64_t number = b->line; rc == 0 && rest.n > 0; number++) {
        struct slice line = slice_cut(&rest, '\n');

        if (line.n > 0 && line.p[line.n - 1] == '\r') {
            line.n--;
        }
        if (slice_trim(line).n == 0) {
            continue;
        }
        rc = jsonline_text(line, x->o.field, &x->line, e);
        rc = rc != 0 ? rc : add_text(x, buf_slice(&x->line), e);
        if (rc == 0 && x->open) {
            end_document(x);
        }
        if (rc != 0) {
            err_prefix(e, "%s:%llu", b->path, (unsigned long long)number);
        }
    }
    return rc;
}

static int add_encoded_part(struct encoding *x, const struct block *b, struct err *e)
{
    int rc;

    x->open = !b->first;
    rc = add_text(x, buf_slice(&b->text), e);
    if (rc != 0) {
        return err_prefix(e, "%s", b->path);
    }
    if (b->last && x->open) {
        end_document(x);
    }
    return 0;
}

/* What only an unusual block needed is not kept. */
static void trim_buf(struct buf *b)
{
    if (b->cap > USUAL_BYTES) {
        buf_free(b);
    }
}

int encode_block(struct encoding *x, const struct block *b, struct encoded *out, struct err *e)
{
    int rc;

    out->tokens.max = TOKENS_MAX;
    buf_clear(&out->tokens);
    out->documents = 0;
    out->replaced = 0;
    x->out = out;
    x->open = false;
    rc = b->lines ? add_lines(x, b, e) : add_encoded_part(x, b, e);
    hash_last(out);
    trim_buf(&x->line);
    trim_buf(&x->clean);
    if (x->room * sizeof *x->token > USUAL_BYTES) {
        free(x->token);
        x->token = NULL;
        x->room = 0;
    }
    return rc;
}

void encoded_trim(struct encoded *x)
{
    trim_buf(&x->tokens);
}

void encoded_free(struct encoded *x)
{
    buf_free(&x->tokens);
    free(x->document);
    *x = (struct encoded){0};
}
