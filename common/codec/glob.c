#include "common/codec/glob.h"

#include <string.h>

enum { STEPS_MAX = 100000 }; /* of one match: patterns come from strangers */

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static bool is_lower(unsigned char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_upper(unsigned char c)
{
    return c >= 'A' && c <= 'Z';
}

static bool is_alpha(unsigned char c)
{
    return is_lower(c) || is_upper(c);
}

static bool is_alnum(unsigned char c)
{
    return is_alpha(c) || is_digit(c);
}

static bool is_blank(unsigned char c)
{
    return c == ' ' || c == '\t';
}

static bool is_cntrl(unsigned char c)
{
    return c < 0x20 || c == 0x7f;
}

static bool is_graph(unsigned char c)
{
    return c > 0x20 && c < 0x7f;
}

static bool is_print(unsigned char c)
{
    return c >= 0x20 && c < 0x7f;
}

static bool is_punct(unsigned char c)
{
    return is_graph(c) && !is_alnum(c);
}

static bool is_space(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_xdigit(unsigned char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* "[:alpha:]" at the beginning of what is left of a set: in the C locale, whatever ours is. 0: there is none. */
static size_t class_has(struct slice set, unsigned char c, bool *found)
{
    static const struct {
        const char *name;
        bool (*has)(unsigned char c);
    } classes[] = {
        {"alnum", is_alnum}, {"alpha", is_alpha}, {"blank", is_blank}, {"cntrl", is_cntrl},
        {"digit", is_digit}, {"graph", is_graph}, {"lower", is_lower}, {"print", is_print},
        {"punct", is_punct}, {"space", is_space}, {"upper", is_upper}, {"xdigit", is_xdigit},
    };

    for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
        size_t n = strlen(classes[i].name);
        if (set.n >= n + 4 && memcmp(set.p, "[:", 2) == 0 &&
            memcmp(set.p + 2, classes[i].name, n) == 0 && memcmp(set.p + 2 + n, ":]", 2) == 0) {
            *found = *found || classes[i].has(c);
            return n + 4;
        }
    }
    return 0;
}

/* The set behind '['; *n: its bytes up to and with ']'. 0: no set ends here. */
static bool set_has(struct slice set, unsigned char c, size_t *n)
{
    size_t i = 0;
    bool negated = set.n > 0 && (set.p[0] == '!' || set.p[0] == '^');
    bool found = false;

    i += negated;
    for (size_t first = i; i < set.n && (set.p[i] != ']' || i == first); i++) {
        unsigned char low = (unsigned char)set.p[i];
        unsigned char high;
        size_t class = class_has(slice_from(set, i), c, &found);
        if (class != 0) {
            i += class - 1;
            continue;
        }
        if (low == '\\' && i + 1 < set.n) {
            low = (unsigned char)set.p[++i];
        }
        high = low;
        if (i + 2 < set.n && set.p[i + 1] == '-' && set.p[i + 2] != ']') {
            i += 2;
            if (set.p[i] == '\\' && i + 1 < set.n) {
                i++;
            }
            high = (unsigned char)set.p[i];
        }
        found = found || (c >= low && c <= high);
    }
    *n = i < set.n ? i + 1 : 0;
    return found != negated && c != '/';
}

static bool match(struct slice p, struct slice t, unsigned *steps)
{
    while (p.n > 0) {
        size_t n;
        if (++*steps > STEPS_MAX) {
            return false;
        }
        if (p.p[0] == '*') {
            bool any = p.n > 1 && p.p[1] == '*';
            while (p.n > 0 && p.p[0] == '*') {
                p = slice_from(p, 1);
            }
            for (;; t = slice_from(t, 1)) {
                if (match(p, t, steps)) {
                    return true;
                }
                if (t.n == 0 || (t.p[0] == '/' && !any) || *steps > STEPS_MAX) {
                    return false;
                }
            }
        }
        if (t.n == 0) {
            return false;
        }
        if (p.p[0] == '[') {
            bool has = set_has(slice_from(p, 1), (unsigned char)t.p[0], &n);
            if (n != 0) {
                if (!has) {
                    return false;
                }
                p = slice_from(p, n + 1);
                t = slice_from(t, 1);
                continue;
            }
        }
        if (p.p[0] == '\\' && p.n > 1) {
            p = slice_from(p, 1);
        } else if (p.p[0] == '?') {
            if (t.p[0] == '/') {
                return false;
            }
            p = slice_from(p, 1);
            t = slice_from(t, 1);
            continue;
        }
        if (p.p[0] != t.p[0]) {
            return false;
        }
        p = slice_from(p, 1);
        t = slice_from(t, 1);
    }
    return t.n == 0;
}

bool glob_match(struct slice pattern, struct slice text)
{
    unsigned steps = 0;
    return match(pattern, text, &steps);
}
