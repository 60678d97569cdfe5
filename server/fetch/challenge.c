#include "server/fetch/challenge.h"

enum { VALUE_MAX = 4096 };

static bool is_challenge_token_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static void skip(struct slice *s, const char *these)
{
    while (s->n != 0 && s->p[0] != '\0' && strchr(these, s->p[0]) != NULL) {
        *s = slice_from(*s, 1);
    }
}

static struct slice take_token(struct slice *s)
{
    size_t n = 0;
    struct slice out;

    while (n < s->n && is_challenge_token_char(s->p[n])) {
        n++;
    }
    out = slice_first(*s, n);
    *s = slice_from(*s, n);
    return out;
}

/* A quoted string without its quotes and escapes; p == NULL: it does not end. */
static struct slice take_quoted(struct slice *s, struct arena *a)
{
    char *out = arena_alloc(a, s->n);
    size_t n = 0;

    for (size_t i = 1; i < s->n; i++) {
        if (s->p[i] == '"') {
            *s = slice_from(*s, i + 1);
            return n <= VALUE_MAX ? slice_of(out, n) : SLICE_NONE;
        }
        i += s->p[i] == '\\' && i + 1 < s->n;
        out[n++] = s->p[i];
    }
    *s = slice_from(*s, s->n);
    return SLICE_NONE;
}

static void take_parameter(struct slice name, struct slice *s, struct arena *a,
                           struct challenge *out)
{
    struct slice *to = slice_ieq(name, SLICE("realm"))     ? &out->realm
                       : slice_ieq(name, SLICE("service")) ? &out->service
                       : slice_ieq(name, SLICE("scope"))   ? &out->scope
                                                           : NULL;
    struct slice value;

    skip(s, " \t");
    value = s->n != 0 && s->p[0] == '"' ? take_quoted(s, a) : take_token(s);
    if (to != NULL && to->p == NULL && value.p != NULL) {
        *to = arena_copy(a, value);
    }
}

bool challenge_parse(struct slice field, struct arena *a, struct challenge *out)
{
    bool bearer = false;

    *out = (struct challenge){0};
    for (;;) {
        struct slice word;
        skip(&field, " \t,");
        if (field.n == 0) {
            break;
        }
        word = take_token(&field);
        skip(&field, " \t");
        if (word.n == 0) {
            (void)slice_cut(&field, ',');
        } else if (field.n != 0 && field.p[0] == '=') {
            struct challenge other = {0};
            field = slice_from(field, 1);
            take_parameter(word, &field, a, bearer ? out : &other);
        } else { /* the next scheme: the one before is complete */
            if (bearer && out->realm.n != 0) {
                return true;
            }
            bearer = slice_ieq(word, SLICE("bearer"));
            *out = (struct challenge){0};
        }
    }
    return bearer && out->realm.n != 0;
}
