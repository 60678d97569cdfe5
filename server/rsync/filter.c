#include "server/rsync/filter.h"

struct filter_rule {
    struct filter_rule *next;
    struct slice pattern; /* without its leading and trailing '/' */
    bool take;
    bool anchored;
    bool folders; /* alone */
    bool whole;   /* against the path, not its last part */
    bool negated;
    bool and_below; /* the folder too, when all that is in it matches */
};

/* --- patterns ---------------------------------------------------------------------------------------------------------- */

enum { STEPS_MAX = 100000 }; /* of one match: patterns come from strangers */

/* The set behind '['; *n: its bytes up to and with ']'. 0: no set ends here. */
static bool set_has(struct slice set, unsigned char c, size_t *n)
{
    size_t i = 0;
    bool negated = set.n > 0 && (set.p[0] == '!' || set.p[0] == '^');
    bool found = false;

    i += negated;
    for (size_t first = i; i < set.n && (set.p[i] != ']' || i == first); i++) {
        unsigned char low = (unsigned char)set.p[i];
        unsigned char high = low;
        if (low == '\\' && i + 1 < set.n) {
            low = high = (unsigned char)set.p[++i];
        }
        if (i + 2 < set.n && set.p[i + 1] == '-' && set.p[i + 2] != ']') {
            high = (unsigned char)set.p[i + 2];
            i += 2;
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

bool filter_match(struct slice pattern, struct slice text)
{
    unsigned steps = 0;
    return match(pattern, text, &steps);
}

/* --- rules ------------------------------------------------------------------------------------------------------------- */

static bool has(struct slice s, const char *what)
{
    size_t n = strlen(what);

    for (size_t i = 0; i + n <= s.n; i++) {
        if (memcmp(s.p + i, what, n) == 0) {
            return true;
        }
    }
    return false;
}

static void set_pattern(struct filter *f, struct filter_rule *r, struct slice p)
{
    if (slice_starts(p, SLICE("/"))) {
        r->anchored = true;
        p = slice_from(p, 1);
    }
    if (p.n > 1 && p.p[p.n - 1] == '/') {
        r->folders = true;
        p.n--;
    }
    if (slice_ends(p, SLICE("/***"))) {
        r->and_below = true;
        p.n--; /* "/ **", and the folder by itself */
    }
    r->whole = r->anchored || slice_find(p, '/') >= 0 || has(p, "**");
    r->pattern = arena_copy(&f->arena, p);
}

/* False: a rule that is not for us. */
static bool modifiers(struct slice m, struct filter_rule *r, bool *known)
{
    bool ours = true;

    *known = true;
    for (size_t i = 0; i < m.n; i++) {
        switch (m.p[i]) {
        case '/':
            r->anchored = r->whole = true;
            break;
        case '!':
            r->negated = true;
            break;
        case 's':
        case 'p': /* perishable: of deletions */
        case ',':
            break;
        case 'r':
        case 'x': /* names of attributes */
            ours = false;
            break;
        default:
            *known = false;
        }
    }
    return ours;
}

static int unknown(struct slice rule, struct err *e)
{
    return err_set(e, E_UNSUPPORTED, "the filter rule '" SLICE_FMT "' is not known here",
                   SLICE_ARG(slice_first(rule, rule.n < 100 ? rule.n : 100)));
}

int filter_add(struct filter *f, struct slice rule, struct err *e)
{
    struct slice rest = rule;
    struct slice head = slice_cut(&rest, ' ');
    struct filter_rule *r;
    bool known = true;
    bool anchored;

    if (rule.n > FILTER_RULE_MAX || ++f->count > FILTER_RULES_MAX) {
        return err_set(e, E_TOOBIG, "too many filter rules");
    }
    if (slice_eq(rule, SLICE("!"))) {
        f->first = f->last = NULL;
        return 0;
    }
    if (head.n > 0 && (head.p[0] == 'P' || head.p[0] == 'R')) {
        return 0; /* what the receiver protects */
    }
    if (head.n == 0 || rest.n == 0 || strchr("+-HS", head.p[0]) == NULL) {
        return unknown(rule, e);
    }
    r = ARENA_NEW(&f->arena, struct filter_rule);
    r->take = head.p[0] == '+' || head.p[0] == 'S';
    if (!modifiers(slice_from(head, 1), r, &known) && known) {
        return 0;
    }
    if (!known) {
        return unknown(rule, e);
    }
    anchored = r->anchored;
    set_pattern(f, r, rest);
    r->anchored = r->anchored || anchored;
    r->whole = r->whole || anchored;
    if (f->last != NULL) {
        f->last->next = r;
    } else {
        f->first = r;
    }
    f->last = r;
    return 0;
}

static struct slice last_part(struct slice path)
{
    size_t at = path.n;

    while (at > 0 && path.p[at - 1] != '/') {
        at--;
    }
    return slice_from(path, at);
}

/* Against the path's end, at every part's beginning. */
static bool match_end(struct slice pattern, struct slice path)
{
    for (;;) {
        ptrdiff_t slash;
        if (filter_match(pattern, path)) {
            return true;
        }
        slash = slice_find(path, '/');
        if (slash < 0) {
            return false;
        }
        path = slice_from(path, (size_t)slash + 1);
    }
}

static bool matches(const struct filter_rule *r, struct slice path, bool is_folder)
{
    struct slice below = r->pattern;
    bool yes;

    if (r->folders && !is_folder) {
        return r->negated;
    }
    yes = r->anchored ? filter_match(r->pattern, path)
          : r->whole  ? match_end(r->pattern, path)
                      : filter_match(r->pattern, last_part(path));
    if (!yes && r->and_below && is_folder) {
        below.n -= strlen("/**");
        yes = r->anchored ? filter_match(below, path) : match_end(below, path);
    }
    return yes != r->negated;
}

bool filter_takes(const struct filter *f, struct slice path, bool is_folder)
{
    for (const struct filter_rule *r = f->first; r != NULL; r = r->next) {
        if (matches(r, path, is_folder)) {
            return r->take;
        }
    }
    return true;
}

void filter_fini(struct filter *f)
{
    arena_fini(&f->arena);
    *f = (struct filter){.count = 0};
}
