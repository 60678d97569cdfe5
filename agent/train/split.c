#include "agent/train/split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#include "common/base/ascii.h"
#include "common/codec/utf8.h"

/* Unicode's White_Space, for use between brackets. */
#define WS                                                                                         \
    "\\t-\\r \\x{85}\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

static const struct {
    const char *name;
    const char *pattern; /* as tokenizer.json has it */
    const char *ours;    /* the same, white space spelled out */
} kinds[] = {
    [SPLIT_GPT2] =
        {"gpt2",
         "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
         "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+"
         "|[" WS "]+(?![^" WS "])|[" WS "]+"},
    [SPLIT_LLAMA3] = {"llama3",
                      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                      "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
                      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                      "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+"
                      "|[" WS "]+(?![^" WS "])|[" WS "]+"},
};

struct split {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
};

bool split_known(struct slice pattern, enum split_kind *out)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (slice_eqs(pattern, kinds[i].pattern)) {
            *out = (enum split_kind)i;
            return true;
        }
    }
    return false;
}

const char *split_name(enum split_kind kind)
{
    return kinds[kind].name;
}

struct split *split_open(enum split_kind kind)
{
    struct split *s = NEW(struct split);
    PCRE2_SIZE at;
    int why;

    s->code = pcre2_compile((PCRE2_SPTR)kinds[kind].ours, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &why, &at, NULL);
    CHECK(s->code != NULL);
    (void)pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE); /* without JIT it is slower, not wrong */
    s->match = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    CHECK(s->match != NULL && s->context != NULL);
    /* Going back over a run of blanks is linear in its length, and runs may be long. */
    pcre2_set_match_limit(s->context, UINT32_MAX);
    return s;
}

void split_close(struct split **sp)
{
    struct split *s = *sp;

    if (s != NULL) {
        *sp = NULL;
        pcre2_match_context_free(s->context);
        pcre2_match_data_free(s->match);
        pcre2_code_free(s->code);
        free(s);
    }
}

int split_word(struct split *s, struct slice text, size_t *n, struct err *e)
{
    int rc = pcre2_match(s->code, (PCRE2_SPTR)text.p, text.n, 0, PCRE2_NO_UTF_CHECK, s->match,
                         s->context);
    char why[120] = "";

    if (rc < 0) {
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(e, E_INTERNAL, "PCRE2: %s", why);
    }
    *n = pcre2_get_ovector_pointer(s->match)[1];
    return 0;
}

/* --- cutting ---------------------------------------------------------------------------------- */

static bool is_unicode_space(uint32_t c)
{
    return (c >= '\t' && c <= '\r') || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

static bool space_before(struct slice text, size_t at)
{
    for (size_t back = 1; back <= 3 && back <= at; back++) {
        struct slice last = slice_of(text.p + at - back, back);
        size_t n;

        if (utf8_next(last, &n) == UTF8_WHOLE && n == back && is_unicode_space(utf8_char(last))) {
            return true;
        }
    }
    return false;
}

/* False also when that is unknown yet. */
static bool no_space_at(struct slice text, size_t at)
{
    struct slice rest = slice_from(text, at);
    size_t n;

    switch (utf8_next(rest, &n)) {
    case UTF8_WHOLE:
        return !is_unicode_space(utf8_char(rest));
    case UTF8_NONE:
        return true;
    case UTF8_CUT:
        break;
    }
    return false;
}

bool split_may_cut(enum split_kind kind, struct slice text, size_t at)
{
    char left = text.p[at - 1], right = text.p[at];

    if (right == ' ' || right == '\t') { /* no word holds white space behind something else ... */
        return !space_before(text, at);
    }
    if (right == '\n' ||
        right == '\r') { /* ... but for Llama-3's marks, which take newlines with them */
        return kind == SPLIT_GPT2 ? !space_before(text, at) : ascii_is_alnum(left);
    }
    /* Llama-3's words with a newline end with the last one of a run; GPT-2's (?!\S) would see the
     * cut. */
    return kind == SPLIT_LLAMA3 && left == '\n' && no_space_at(text, at);
}
