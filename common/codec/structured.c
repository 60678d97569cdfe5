#include "common/codec/structured.h"

#include <string.h>

#include "common/base/ascii.h"

enum { INTEGER_DIGITS = 15, WHOLE_DIGITS = 12, FRACTION_DIGITS = 3 };

static bool is_key(char c)
{
    return ascii_is_lower(c) || ascii_is_digit(c) || (c != '\0' && strchr("_-.*", c) != NULL);
}

static bool is_structured_token_char(char c)
{
    return ascii_is_alpha(c) || ascii_is_digit(c) ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~:/", c) != NULL);
}

static bool is_base64(char c)
{
    return ascii_is_alpha(c) || ascii_is_digit(c) || (c != '\0' && strchr("+/=", c) != NULL);
}

static bool at(const struct slice *s, char c)
{
    return s->n > 0 && s->p[0] == c;
}

static bool eat(struct slice *s, char c)
{
    if (!at(s, c)) {
        return false;
    }
    *s = slice_from(*s, 1);
    return true;
}

static struct slice cut_leading_chars(struct slice *s, bool (*belongs)(char c))
{
    size_t n = 0;

    while (n < s->n && belongs(s->p[n])) {
        n++;
    }
    struct slice head = slice_first(*s, n);
    *s = slice_from(*s, n);
    return head;
}

static void skip(struct slice *s, bool tabs)
{
    while (at(s, ' ') || (tabs && at(s, '\t'))) {
        *s = slice_from(*s, 1);
    }
}

static bool read_structured_key(struct slice *s, struct slice *out)
{
    bool begins = s->n > 0 && (ascii_is_lower(s->p[0]) || s->p[0] == '*');

    *out = cut_leading_chars(s, is_key);
    return begins;
}

static bool skip_structured_number(struct slice *s, struct structured_member *m)
{
    bool minus = eat(s, '-');
    struct slice whole = cut_leading_chars(s, ascii_is_digit);
    uint64_t v;

    if (whole.n == 0 || whole.n > INTEGER_DIGITS || !slice_u64(whole, &v)) {
        return false;
    }
    if (eat(s, '.')) {
        struct slice fraction = cut_leading_chars(s, ascii_is_digit);
        m->kind = STRUCTURED_OTHER;
        return whole.n <= WHOLE_DIGITS && fraction.n > 0 && fraction.n <= FRACTION_DIGITS;
    }
    m->kind = STRUCTURED_INTEGER;
    m->integer = minus ? -(int64_t)v : (int64_t)v;
    return true;
}

static bool string(struct slice *s)
{
    while (s->n > 0) {
        char c = s->p[0];
        *s = slice_from(*s, 1);
        if (c == '"') {
            return true;
        }
        if (c < ' ' || c > '~') {
            return false;
        }
        if (c == '\\' && !eat(s, '"') && !eat(s, '\\')) {
            return false;
        }
    }
    return false;
}

static bool boolean(struct slice *s, struct structured_member *m)
{
    m->kind = STRUCTURED_BOOLEAN;
    m->boolean = at(s, '1');
    return eat(s, '1') || eat(s, '0');
}

static bool date(struct slice *s, struct structured_member *m)
{
    bool whole = skip_structured_number(s, m) && m->kind == STRUCTURED_INTEGER;

    m->kind = STRUCTURED_OTHER;
    return whole;
}

static bool bare_item(struct slice *s, struct structured_member *m)
{
    m->kind = STRUCTURED_OTHER;
    if (s->n > 0 && (s->p[0] == '-' || ascii_is_digit(s->p[0]))) {
        return skip_structured_number(s, m);
    }
    if (eat(s, '"')) {
        m->kind = STRUCTURED_STRING;
        return string(s);
    }
    if (eat(s, '?')) {
        return boolean(s, m);
    }
    if (eat(s, '@')) {
        return date(s, m);
    }
    if (eat(s, ':')) {
        (void)cut_leading_chars(s, is_base64);
        return eat(s, ':');
    }
    if (eat(s, '%')) {
        return eat(s, '"') && string(s);
    }
    if (s->n > 0 && (ascii_is_alpha(s->p[0]) || s->p[0] == '*')) {
        (void)cut_leading_chars(s, is_structured_token_char);
        return true;
    }
    return false;
}

static bool parameters(struct slice *s)
{
    struct structured_member ignored;

    while (eat(s, ';')) {
        skip(s, false);
        if (!read_structured_key(s, &ignored.key) || (eat(s, '=') && !bare_item(s, &ignored))) {
            return false;
        }
    }
    return true;
}

static bool inner_list(struct slice *s, struct structured_member *m)
{
    while (s->n > 0) {
        skip(s, false);
        if (eat(s, ')')) {
            m->kind = STRUCTURED_OTHER;
            return true;
        }
        if (!bare_item(s, m) || !parameters(s) || (!at(s, ' ') && !at(s, ')'))) {
            return false;
        }
    }
    return false;
}

int structured_next(struct slice *rest, struct structured_member *out)
{
    struct slice s = slice_trim(*rest);

    *out = (struct structured_member){.kind = STRUCTURED_BOOLEAN, .boolean = true};
    if (s.n == 0) {
        return 0;
    }
    if (!read_structured_key(&s, &out->key) ||
        (eat(&s, '=') && !(eat(&s, '(') ? inner_list(&s, out) : bare_item(&s, out))) ||
        !parameters(&s)) {
        return -1;
    }
    skip(&s, true);
    if (s.n > 0) {
        if (!eat(&s, ',')) {
            return -1;
        }
        skip(&s, true);
        if (s.n == 0) {
            return -1; /* nothing after a comma */
        }
    }
    *rest = s;
    return 1;
}
