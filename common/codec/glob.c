#include "common/codec/glob.h"

#include <string.h>

/* A pattern in its elements, each of which stands for one byte, but for a run of '*'. What an
 * element is, its first byte and its length say: "[" alone is that byte, "[a]" is a set. */
struct parsed {
    struct slice pattern;
    unsigned how;
    size_t count;
    size_t stars, first_star, last_star; /* so many, and where */
    uint16_t at[GLOB_PATTERN_MAX + 1];   /* of each, and of the end */
};

static bool class_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static bool class_lower(unsigned char c)
{
    return c >= 'a' && c <= 'z';
}

static bool class_upper(unsigned char c)
{
    return c >= 'A' && c <= 'Z';
}

static bool class_alpha(unsigned char c)
{
    return class_lower(c) || class_upper(c);
}

static bool class_alnum(unsigned char c)
{
    return class_alpha(c) || class_digit(c);
}

static bool class_blank(unsigned char c)
{
    return c == ' ' || c == '\t';
}

static bool class_cntrl(unsigned char c)
{
    return c < 0x20 || c == 0x7f;
}

static bool class_graph(unsigned char c)
{
    return c > 0x20 && c < 0x7f;
}

static bool class_print(unsigned char c)
{
    return c >= 0x20 && c < 0x7f;
}

static bool class_punct(unsigned char c)
{
    return class_graph(c) && !class_alnum(c);
}

static bool class_space(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool class_xdigit(unsigned char c)
{
    return class_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* "[:alpha:]" at the beginning of what is left of a set: in the C locale, whatever ours is. 0:
 * there is none. */
static size_t class_has(struct slice set, unsigned char c, bool *found)
{
    static const struct {
        const char *name;
        bool (*has)(unsigned char c);
    } classes[] = {
        {"alnum", class_alnum}, {"alpha", class_alpha}, {"blank", class_blank},
        {"cntrl", class_cntrl}, {"digit", class_digit}, {"graph", class_graph},
        {"lower", class_lower}, {"print", class_print}, {"punct", class_punct},
        {"space", class_space}, {"upper", class_upper}, {"xdigit", class_xdigit},
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

/* One byte, range or class of a set; returns the bytes it has. */
static size_t item_has(struct slice set, unsigned char c, bool *found)
{
    size_t i = 0, class = class_has(set, c, found);
    unsigned char low, high;

    if (class != 0) {
        return class;
    }
    i += set.p[0] == '\\' && set.n > 1;
    low = high = (unsigned char)set.p[i];
    if (i + 2 < set.n && set.p[i + 1] == '-' && set.p[i + 2] != ']') {
        i += 2;
        i += set.p[i] == '\\' && i + 1 < set.n;
        high = (unsigned char)set.p[i];
    }
    *found = *found || (c >= low && c <= high);
    return i + 1;
}

/* What stands between the brackets. */
static bool set_has(struct slice set, unsigned char c)
{
    bool negated = set.p[0] == '!' || set.p[0] == '^';
    bool found = false;

    for (size_t i = negated; i < set.n;) {
        i += item_has(slice_from(set, i), c, &found);
    }
    return found != negated;
}

/* --- a pattern's elements --------------------------------------------------------------------- */

/* The bytes of the set that begins at `from` with its '['; 0: it has no end. `seen` has a bit for
 * each place at which an item of a set was looked for: a set that comes to one again ends as the
 * one before did, that is nowhere, so all sets of a pattern together cost no more than its
 * length. */
static size_t set_bytes(struct slice p, size_t from, uint64_t *seen)
{
    size_t i = from + 1;
    size_t first;
    bool found = false;

    i += i < p.n && (p.p[i] == '!' || p.p[i] == '^');
    for (first = i; i < p.n && (p.p[i] != ']' || i == first);) {
        uint64_t bit = (uint64_t)1 << i % 64;
        if ((seen[i / 64] & bit) != 0) {
            return 0;
        }
        seen[i / 64] |= i != first ? bit : 0;
        i += item_has(slice_from(p, i), 0, &found);
    }
    return i < p.n ? i + 1 - from : 0;
}

static void parse_glob(struct parsed *g, struct slice p, unsigned how)
{
    uint64_t seen[GLOB_PATTERN_MAX / 64 + 1];
    bool sets = (how & GLOB_STARS) == 0;
    size_t n;

    g->pattern = p;
    g->how = how;
    g->count = g->stars = 0;
    if (sets && slice_find(p, '[') >= 0) {
        memset(seen, 0, sizeof seen);
    }
    for (size_t i = 0; i < p.n; i += n) {
        n = 1;
        if (p.p[i] == '*') {
            while (i + n < p.n && p.p[i + n] == '*') {
                n++;
            }
            g->first_star = g->stars++ == 0 ? g->count : g->first_star;
            g->last_star = g->count;
        } else if (sets && p.p[i] == '[') {
            n = set_bytes(p, i, seen);
            n = n != 0 ? n : 1;
        } else if (sets && p.p[i] == '\\' && i + 1 < p.n) {
            n = 2;
        }
        g->at[g->count++] = (uint16_t)i;
    }
    g->at[g->count] = (uint16_t)p.n;
}

static struct slice element(const struct parsed *g, size_t i)
{
    return slice_of(g->pattern.p + g->at[i], (size_t)(g->at[i + 1] - g->at[i]));
}

static bool is_star(const struct parsed *g, size_t i)
{
    return g->pattern.p[g->at[i]] == '*';
}

/* Does the star at `i` stand for a '/' too? */
static bool crosses(const struct parsed *g, size_t i)
{
    return (g->how & (GLOB_FLAT | GLOB_STARS)) != 0 || element(g, i).n > 1;
}

/* Does the element at `i`, which is no star, stand for this byte? */
static bool accepts(const struct parsed *g, size_t i, unsigned char c, uint64_t *steps)
{
    struct slice s = element(g, i);
    bool slash = c == '/' && (g->how & GLOB_FLAT) == 0;

    *steps += s.n;
    if (s.n == 1) {
        return s.p[0] == '?' && (g->how & GLOB_STARS) == 0 ? !slash : (unsigned char)s.p[0] == c;
    }
    return s.p[0] == '\\' ? (unsigned char)s.p[1] == c
                          : !slash && set_has(slice_of(s.p + 1, s.n - 2), c);
}

static bool accept_all(const struct parsed *g, size_t from, size_t n, struct slice text,
                       uint64_t *steps)
{
    for (size_t i = n; i-- > 0;) { /* from the end: names of a folder begin alike */
        if (!accepts(g, from + i, (unsigned char)text.p[i], steps)) {
            return false;
        }
    }
    return true;
}

/* --- stars ------------------------------------------------------------------------------------ */

/* Places in a pattern up to which it may have matched what was read of the text, ascending, each
 * once. */
struct places {
    size_t n;
    uint16_t at[GLOB_PATTERN_MAX + 2];
};

static void add_place(const struct parsed *g, struct places *ps, size_t place, size_t end)
{
    if (ps->n > 0 && ps->at[ps->n - 1] >= place) {
        return;
    }
    if (place < end && is_star(g, place)) {
        if (crosses(g, place)) {
            ps->n = 0; /* it stands for whatever comes: nothing before it can bring more */
        }
        ps->at[ps->n++] = (uint16_t)place;
        place++;
    }
    ps->at[ps->n++] = (uint16_t)place;
}

/* How many bytes of the text change nothing: all that is open is a star, and it goes on with a byte
 * that none of them is. */
static size_t idle_bytes(const struct parsed *g, const struct places *now, size_t end,
                         struct slice text)
{
    size_t n = 0;
    char c;

    if (now->n != 2 || now->at[1] == end || !is_star(g, now->at[0]) ||
        element(g, now->at[1]).n != 1) {
        return 0;
    }
    c = element(g, now->at[1]).p[0];
    if (c == '?' && (g->how & GLOB_STARS) == 0) {
        return 0;
    }
    while (n < text.n && text.p[n] != c && text.p[n] != '/') {
        n++;
    }
    return n;
}

/* The elements [from, end) against all of the text, at once in all ways (Thompson 1968): a byte of
 * the text costs no more than the pattern has elements, and nothing is tried twice. */
static bool match_stars(const struct parsed *g, size_t from, size_t end, struct slice text,
                        uint64_t *steps)
{
    struct places room[2];
    struct places *now = &room[0], *next = &room[1];

    now->n = 0;
    add_place(g, now, from, end);
    for (size_t i = 0; i < text.n && (now->n > 0 || (g->how & GLOB_TAIL) != 0); i++) {
        struct places *was = now;
        size_t idle = idle_bytes(g, now, end, slice_from(text, i));
        unsigned char c;
        *steps += 1 + now->n + idle / 4;
        i += idle;
        if (i == text.n) {
            break;
        }
        c = (unsigned char)text.p[i];
        next->n = 0;
        if (c == '/' && (g->how & GLOB_TAIL) != 0) {
            add_place(g, next, from, end);
        }
        for (size_t k = 0; k < now->n; k++) {
            size_t place = now->at[k];
            if (place == end) {
                continue;
            }
            if (is_star(g, place)) {
                if (c != '/' || crosses(g, place)) {
                    add_place(g, next, place, end);
                }
            } else if (accepts(g, place, c, steps)) {
                add_place(g, next, place + 1, end);
            }
        }
        now = next;
        next = was;
    }
    return now->n > 0 && now->at[now->n - 1] == end;
}

/* The first or the last byte decides for most patterns and texts. */
static bool ends_differ(struct slice p, struct slice t, unsigned how)
{
    const char *special = (how & GLOB_STARS) != 0 ? "*" : "*?[]\\";
    char first, last;

    if (p.n == 0) {
        return false;
    }
    first = p.p[0];
    last = p.p[p.n - 1];
    return ((how & GLOB_TAIL) == 0 && strchr(special, first) == NULL &&
            (t.n == 0 || t.p[0] != first)) ||
           (strchr(special, last) == NULL && (p.n == 1 || p.p[p.n - 2] != '\\') &&
            (t.n == 0 || t.p[t.n - 1] != last));
}

bool glob_match_how(struct slice pattern, struct slice text, unsigned how, uint64_t *steps)
{
    uint64_t ignored = 0;
    struct parsed g;
    size_t before = 0, end;

    steps = steps != NULL ? steps : &ignored;
    if (pattern.n > GLOB_PATTERN_MAX || ends_differ(pattern, text, how)) {
        *steps += 1;
        return false;
    }
    parse_glob(&g, pattern, how);
    *steps += g.count + 1;
    end = g.count;
    if (g.stars == 0 && (how & GLOB_TAIL) == 0) {
        return text.n == end && accept_all(&g, 0, end, text, steps);
    }
    /* What stands before the first star, and after the last, has its place. */
    if (g.stars > 0) {
        size_t after = g.count - g.last_star - 1;
        end = g.last_star + 1;
        if (text.n < after ||
            !accept_all(&g, end, after, slice_from(text, text.n - after), steps)) {
            return false;
        }
        text.n -= after;
    }
    if ((how & GLOB_TAIL) == 0) {
        before = g.first_star;
        if (text.n < before || !accept_all(&g, 0, before, text, steps)) {
            return false;
        }
        text = slice_from(text, before);
    }
    if (before + 1 == end && (how & GLOB_TAIL) == 0) {
        *steps += text.n / 16;
        return crosses(&g, before) || slice_find(text, '/') < 0;
    }
    return match_stars(&g, before, end, text, steps);
}

bool glob_match(struct slice pattern, struct slice text)
{
    return glob_match_how(pattern, text, GLOB_PATH, NULL);
}
