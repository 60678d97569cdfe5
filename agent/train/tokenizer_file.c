#include "agent/train/tokenizer_file.h"

#include <jansson.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/codec/jread.h"
#include "common/codec/utf8.h"

struct reading {
    struct tokenizer_parts *parts;
    json_t *vocab; /* text, in the byte alphabet -> id */
    struct err *e;
};

static int corrupt(struct reading *r, const char *what)
{
    return err_set(r->e, E_CORRUPT, "not a tokenizer.json: %s", what);
}

static int unsupported(struct reading *r, const char *what, const char *value)
{
    return err_set(r->e, E_UNSUPPORTED, "this tokenizer has %s%s%.60s, which is not supported",
                   what, value[0] != '\0' ? " " : "", value);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));

    return s != NULL ? s : "";
}

static bool is_type(const json_t *object, const char *type)
{
    return strcmp(text_of(object, "type"), type) == 0;
}

static bool is_absent_json(const json_t *v)
{
    return v == NULL || json_is_null(v);
}

static bool id_of(const json_t *v, uint32_t *id)
{
    json_int_t n = json_integer_value(v);

    if (!json_is_integer(v) || n < 0 || n > BPE_MAX_VOCAB) {
        return false;
    }
    *id = (uint32_t)n;
    return true;
}

/* --- the byte alphabet ------------------------------------------------------------------------ */

/* GPT-2 writes bytes as printable characters: those that are printable in Latin-1 stand for
 * themselves, the others for U+0100 and on. -1: c stands for no byte. */
static int byte_of(uint32_t c)
{
    static const struct {
        uint32_t first, last; /* bytes that are not printable */
    } others[] = {{0, 32}, {127, 160}, {173, 173}};
    uint32_t at = 0x100;

    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        uint32_t n = others[i].last - others[i].first + 1;

        if (c >= others[i].first && c <= others[i].last) {
            return -1;
        }
        if (c >= at && c < at + n) {
            return (int)(others[i].first + c - at);
        }
        at += n;
    }
    return c < 0x100 ? (int)c : -1;
}

/* What a text in the alphabet stands for; false when it is not in it. */
static bool bytes_of_token(struct slice text, struct buf *out)
{
    buf_clear(out);
    while (text.n > 0) {
        size_t n;
        int byte = utf8_next(text, &n) == UTF8_WHOLE ? byte_of(utf8_char(text)) : -1;

        if (byte < 0) {
            return false;
        }
        buf_byte(out, (uint8_t)byte);
        text = slice_from(text, n);
    }
    return true;
}

/* --- model ------------------------------------------------------------------------------------ */

static int check_model(struct reading *r, const json_t *model)
{
    const json_t *dropout = json_object_get(model, "dropout");

    if (!json_is_object(model)) {
        return corrupt(r, "it has no \"model\"");
    }
    /* Old files have no type: vocabulary and merges say it. */
    if (json_object_get(model, "type") != NULL && !is_type(model, "BPE")) {
        return unsupported(r, "a model", text_of(model, "type"));
    }
    if (!is_absent_json(dropout) && json_number_value(dropout) > 0) {
        return unsupported(r, "dropout", "");
    }
    if (text_of(model, "continuing_subword_prefix")[0] != '\0') {
        return unsupported(r, "a continuing_subword_prefix", "");
    }
    if (text_of(model, "end_of_word_suffix")[0] != '\0') {
        return unsupported(r, "an end_of_word_suffix", "");
    }
    if (!json_is_object(r->vocab) || !json_is_array(json_object_get(model, "merges"))) {
        return corrupt(r, "its model has no \"vocab\" or no \"merges\"");
    }
    return 0;
}

/* Ids have no gaps: the package counts added tokens on from the vocabulary's size. */
static size_t count_ids(const struct reading *r, const json_t *added)
{
    size_t n = json_object_size(r->vocab), i;
    json_t *v;

    json_array_foreach(added, i, v)
    {
        n += json_object_get(r->vocab, text_of(v, "content")) == NULL;
    }
    return n;
}

static int read_vocab(struct reading *r)
{
    struct buf bytes = BUF_INIT(BPE_MAX_TOKEN);
    struct bpe *b = r->parts->bpe;
    const char *key;
    json_t *v;
    int rc = 0;

    json_object_foreach(r->vocab, key, v)
    {
        struct slice text = slice_str(key);
        uint32_t id;

        if (text.n == 0 || text.n > BPE_MAX_TOKEN) {
            rc = corrupt(r, "a token is empty or too long");
            break;
        }
        if (!id_of(v, &id) || id >= json_object_size(r->vocab)) {
            rc = corrupt(r, "the ids of the vocabulary are not consecutive from 0");
            break;
        }
        if (bpe_bytes(b, id).p != NULL) {
            rc = corrupt(r, "two tokens have the same id");
            break;
        }
        /* A token with a character outside of the alphabet is text; no word is ever joined to
         * it. */
        if (bytes_of_token(text, &bytes)) {
            bpe_token(b, id, buf_slice(&bytes), true);
        } else {
            bpe_token(b, id, text, false);
        }
    }
    buf_free(&bytes);
    return rc;
}

static bool lookup(const struct reading *r, struct slice text, uint32_t *id)
{
    return id_of(json_object_getn(r->vocab, text.p, text.n), id);
}

/* A merge is "left right" or ["left", "right"]. */
static bool sides_of(const json_t *merge, struct slice side[2])
{
    if (json_is_array(merge)) {
        for (size_t i = 0; i < 2; i++) {
            if (!json_is_string(json_array_get(merge, i))) {
                return false;
            }
            side[i] = jread_slice(json_array_get(merge, i));
        }
        return json_array_size(merge) == 2;
    }
    if (!json_is_string(merge)) {
        return false;
    }
    side[1] = jread_slice(merge);
    side[0] = slice_cut(&side[1], ' ');
    return slice_find(side[1], ' ') < 0;
}

static int read_merges(struct reading *r, const json_t *merges)
{
    struct buf whole = BUF_INIT(2 * BPE_MAX_TOKEN);
    struct slice side[2];
    json_t *merge;
    size_t i;
    int rc = 0;

    json_array_foreach(merges, i, merge)
    {
        uint32_t left, right, into;

        if (!sides_of(merge, side) || !lookup(r, side[0], &left) || !lookup(r, side[1], &right)) {
            rc = err_set(r->e, E_CORRUPT,
                         "not a tokenizer.json: merge %zu does not name two tokens", i);
            break;
        }
        buf_clear(&whole);
        buf_adds(&whole, side[0]);
        buf_adds(&whole, side[1]);
        if (!lookup(r, buf_slice(&whole), &into)) {
            rc = err_set(r->e, E_CORRUPT,
                         "not a tokenizer.json: the result of merge %zu is not a token", i);
            break;
        }
        bpe_merge(r->parts->bpe, left, right, into);
    }
    buf_free(&whole);
    return rc;
}

static int read_model(struct reading *r, const json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *merges = json_object_get(model, "merges");
    size_t ids;
    int rc;

    r->vocab = json_object_get(model, "vocab");
    rc = check_model(r, model);
    if (rc != 0) {
        return rc;
    }
    ids = count_ids(r, json_object_get(root, "added_tokens"));
    if (ids > BPE_MAX_VOCAB || json_array_size(merges) > BPE_MAX_VOCAB) {
        return unsupported(r, "a vocabulary of this many tokens", "");
    }
    r->parts->whole_words = json_is_true(json_object_get(model, "ignore_merges"));
    r->parts->bpe =
        bpe_new((uint32_t)ids, (uint32_t)json_array_size(merges), r->parts->whole_words);
    rc = read_vocab(r);
    return rc != 0 ? rc : read_merges(r, merges);
}

/* --- what stands before the model ------------------------------------------------------------- */

static int check_normalizer(struct reading *r, const json_t *n)
{
    if (is_absent_json(n) ||
        (is_type(n, "Sequence") && json_array_size(json_object_get(n, "normalizers")) == 0)) {
        return 0;
    }
    return unsupported(r, "a normalizer", text_of(n, "type"));
}

static int check_byte_level(struct reading *r, const json_t *p, bool use_regex)
{
    const json_t *regex = json_object_get(p, "use_regex");

    if (!is_type(p, "ByteLevel")) {
        return unsupported(r, is_absent_json(p) ? "no pre-tokenizer" : "a pre-tokenizer",
                           text_of(p, "type"));
    }
    if (!json_is_false(json_object_get(p, "add_prefix_space"))) {
        return unsupported(r, "add_prefix_space", "");
    }
    if ((regex == NULL || json_is_true(regex)) != use_regex) {
        return unsupported(r, use_regex ? "no use_regex" : "a second use_regex", "");
    }
    return 0;
}

static int read_pre_tokenizer(struct reading *r, const json_t *p)
{
    const json_t *list = json_object_get(p, "pretokenizers"), *split = json_array_get(list, 0);
    const json_t *pattern = json_object_get(json_object_get(split, "pattern"), "Regex");

    if (!is_type(p, "Sequence")) {
        r->parts->split = SPLIT_GPT2;
        return check_byte_level(r, p, true);
    }
    if (json_array_size(list) != 2 || !is_type(split, "Split")) {
        return unsupported(r, "a pre-tokenizer that is not one Split and ByteLevel", "");
    }
    if (!json_is_string(pattern) || !split_known(jread_slice(pattern), &r->parts->split)) {
        return unsupported(r, "a Split with a pattern other than GPT-2's or Llama-3's", "");
    }
    if (strcmp(text_of(split, "behavior"), "Isolated") != 0 ||
        json_is_true(json_object_get(split, "invert"))) {
        return unsupported(r, "a Split that is not \"Isolated\"", "");
    }
    return check_byte_level(r, json_array_get(list, 1), false);
}

static int check_decoder(struct reading *r, const json_t *d)
{
    return is_absent_json(d) || is_type(d, "ByteLevel")
               ? 0
               : unsupported(r, "a decoder", text_of(d, "type"));
}

/* --- added tokens ----------------------------------------------------------------------------- */

static int read_added_token(struct reading *r, const json_t *v, uint32_t next,
                            struct added_token *out)
{
    static const char *const options[] = {"single_word", "lstrip", "rstrip"};
    struct bpe *b = r->parts->bpe;
    struct slice text = jread_text(v, "content"), there;
    uint32_t id, same;

    if (text.n == 0 || text.n > ADDED_MAX_BYTES || !id_of(json_object_get(v, "id"), &id)) {
        return corrupt(r, "an added token's content is not a text, empty or too long");
    }
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        if (json_is_true(json_object_get(v, options[i]))) {
            return unsupported(r, "added tokens with", options[i]);
        }
    }
    /* It may be in the vocabulary too (GPT-2's is); else the package counts on from there, whatever
     * the file says. */
    if (id != (lookup(r, text, &same) ? same : next)) {
        return err_set(
            r->e, E_UNSUPPORTED,
            "the id %u of this tokenizer's added token %zu is not the next free id, which is not "
            "supported",
            id, r->parts->tokens);
    }
    there = bpe_bytes(b, id);
    if (there.p == NULL) {
        bpe_token(b, id, text, false);
    } else if (!slice_eq(there, text)) {
        return unsupported(r, "an added token that is spelled in the byte alphabet", "");
    }
    *out = (struct added_token){
        .text = bpe_bytes(b, id), .id = id, .special = json_is_true(json_object_get(v, "special"))};
    return 0;
}

static int by_id(const void *a, const void *b)
{
    const struct added_token *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

static int read_added(struct reading *r, const json_t *list)
{
    struct tokenizer_parts *p = r->parts;
    size_t room = json_array_size(list), n[ADDED_GROUPS] = {0}, i;
    uint32_t next = (uint32_t)json_object_size(r->vocab);
    struct added_token *group[ADDED_GROUPS] = {NULL};
    json_t *v;
    int rc = 0;

    p->token = mem_array(room + 1, sizeof *p->token);
    for (size_t g = 0; g < ADDED_GROUPS; g++) {
        group[g] = mem_array(room + 1, sizeof *group[g]);
    }
    json_array_foreach(list, i, v)
    {
        size_t g = json_is_true(json_object_get(v, "normalized"));

        rc = read_added_token(r, v, next, &p->token[p->tokens]);
        if (rc != 0) {
            break;
        }
        next = p->token[p->tokens].id >= next ? p->token[p->tokens].id + 1 : next;
        group[g][n[g]++] = p->token[p->tokens++];
    }
    for (size_t g = 0; rc == 0 && g < ADDED_GROUPS; g++) {
        if (!added_open(group[g], n[g], &p->added[g])) {
            rc = corrupt(r, "an added token is listed twice");
        }
    }
    qsort(p->token, p->tokens, sizeof *p->token, by_id);
    for (size_t g = 0; g < ADDED_GROUPS; g++) {
        free(group[g]);
    }
    return rc;
}

/* --- what is put around a text ---------------------------------------------------------------- */

static int add_special(struct reading *r, const json_t *ids, struct template_side *side)
{
    json_t *v;
    size_t i;

    if (json_array_size(ids) == 0) {
        return corrupt(r, "its template names a token that is not in special_tokens");
    }
    json_array_foreach(ids, i, v)
    {
        uint32_t id;

        if (!id_of(v, &id) || bpe_bytes(r->parts->bpe, id).p == NULL) {
            return corrupt(r, "its template has an id that is not in the vocabulary");
        }
        if (side->n == TEMPLATE_MAX) {
            return unsupported(r, "a template of this many tokens", "");
        }
        side->token[side->n++] = id;
    }
    return 0;
}

static int read_template(struct reading *r, const json_t *p)
{
    const json_t *single = json_object_get(p, "single");
    const json_t *explained = json_object_get(p, "special_tokens");
    struct template_side *side = &r->parts->before;
    json_t *item;
    size_t i;
    int rc = 0;

    json_array_foreach(single, i, item)
    {
        const json_t *special = json_object_get(item, "SpecialToken");
        const json_t *about = json_object_get(explained, text_of(special, "id"));

        if (special != NULL) {
            rc = add_special(r, json_object_get(about, "ids"), side);
        } else if (side == &r->parts->before &&
                   strcmp(text_of(json_object_get(item, "Sequence"), "id"), "A") == 0) {
            side = &r->parts->behind;
        } else {
            rc = corrupt(r, "its template for a single text has an unknown item or two texts");
        }
        if (rc != 0) {
            return rc;
        }
    }
    return side == &r->parts->behind ? 0 : corrupt(r, "its template has no place for the text");
}

static int read_post_processor(struct reading *r, const json_t *p)
{
    const json_t *list = json_object_get(p, "processors");
    int templates = 0, rc = 0;

    if (is_absent_json(p) || is_type(p, "ByteLevel")) {
        return 0; /* ByteLevel's moves offsets, not tokens */
    }
    if (is_type(p, "TemplateProcessing")) {
        return read_template(r, p);
    }
    if (!is_type(p, "Sequence")) {
        return unsupported(r, "a post-processor", text_of(p, "type"));
    }
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);

        templates += is_type(item, "TemplateProcessing");
        rc = is_type(item, "Sequence") || templates > 1
                 ? unsupported(r, "nested post-processors", "")
                 : read_post_processor(r, item);
    }
    return rc;
}

/* --- all -------------------------------------------------------------------------------------- */

int tokenizer_file_parse(struct slice json, struct tokenizer_parts *out, struct err *e)
{
    struct reading r = {.parts = out, .e = e};
    json_error_t why;
    json_t *root = json_loadb(json.p == NULL ? "" : json.p, json.n, JSON_REJECT_DUPLICATES, &why);
    int rc;

    *out = (struct tokenizer_parts){0};
    if (!json_is_object(root)) {
        rc = err_set(e, E_CORRUPT, "not a tokenizer.json: line %d: %.120s", root ? 1 : why.line,
                     root ? "not a JSON object" : why.text);
        goto out;
    }
    rc = read_model(&r, root);
    rc = rc != 0 ? rc : check_normalizer(&r, json_object_get(root, "normalizer"));
    rc = rc != 0 ? rc : read_pre_tokenizer(&r, json_object_get(root, "pre_tokenizer"));
    rc = rc != 0 ? rc : check_decoder(&r, json_object_get(root, "decoder"));
    rc = rc != 0 ? rc : bpe_check(out->bpe, e);
    rc = rc != 0 ? rc : read_added(&r, json_object_get(root, "added_tokens"));
    rc = rc != 0 ? rc : read_post_processor(&r, json_object_get(root, "post_processor"));
out:
    json_decref(root);
    if (rc != 0) {
        tokenizer_parts_free(out);
    }
    return rc;
}

void tokenizer_parts_free(struct tokenizer_parts *p)
{
    bpe_free(&p->bpe);
    for (size_t g = 0; g < ADDED_GROUPS; g++) {
        added_close(&p->added[g]);
    }
    free(p->token);
    *p = (struct tokenizer_parts){0};
}
