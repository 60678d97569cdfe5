#include "common/codec/filter.h"

#include <string.h>

#include "common/codec/glob.h"

/* --- rules ------------------------------------------------------------------------------------ */

static bool rule_contains(struct slice s, const char *what)
{
    size_t n = strlen(what);

    for (size_t i = 0; i + n <= s.n; i++) {
        if (memcmp(s.p + i, what, n) == 0) {
            return true;
        }
    }
    return false;
}

static int count_filter_char(struct slice s, char c)
{
    int n = 0;

    for (size_t i = 0; i < s.n; i++) {
        n += s.p[i] == c;
    }
    return n;
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
    while (slice_ends(p, SLICE("****"))) {
        p.n--;
    }
    if (slice_ends(p, SLICE("/***"))) {
        r->and_below = true;
        p.n--; /* "/ **", and the folder by itself */
    }
    r->literal = !rule_contains(p, "*") && !rule_contains(p, "?") && !rule_contains(p, "[");
    r->slashes = rule_contains(p, "**") ? -1 : count_filter_char(p, '/');
    r->pattern = arena_copy(&f->arena, p);
}

static void append_filter_rule(struct filter *f, struct filter_rule *r)
{
    if (f->last != NULL) {
        f->last->next = r;
    } else {
        f->first = r;
    }
    f->last = r;
}

/* False: a rule that is not for us. */
static bool modifiers(struct slice m, struct filter_rule *r, bool *known)
{
    bool ours = true;

    *known = true;
    for (size_t i = 0; i < m.n; i++) {
        switch (m.p[i]) {
        case '/':
            r->anchored = true;
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

static int unknown_filter_rule(struct slice rule, struct err *e)
{
    return err_set(e, E_UNSUPPORTED, "the filter rule '" SLICE_FMT "' is not supported",
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
        return unknown_filter_rule(rule, e);
    }
    r = ARENA_NEW(&f->arena, struct filter_rule);
    r->take = head.p[0] == '+' || head.p[0] == 'S';
    if (!modifiers(slice_from(head, 1), r, &known) && known) {
        return 0;
    }
    if (!known) {
        return unknown_filter_rule(rule, e);
    }
    anchored = r->anchored;
    set_pattern(f, r, rest);
    r->anchored = r->anchored || anchored;
    r->text = arena_fmt(&f->arena, SLICE_FMT, SLICE_ARG(rule));
    append_filter_rule(f, r);
    return 0;
}

/* --- those of settings ------------------------------------------------------------------------ */

struct word { /* how a rule may begin */
    const char *word;
    const char *means; /* for a peer; or NULL */
    const char *why;   /* it is refused */
};

static const char no_merge[] = "rules cannot be read from files, write them here";
static const char no_side[] = "protect and risk rules have no effect in a sync, remove the rule";

static const struct word words[] = {
    {"+", "+", NULL},      {"include", "+", NULL},
    {"show", "+", NULL},   {"S", "+", NULL},
    {"-", "-", NULL},      {"exclude", "-", NULL},
    {"hide", "-", NULL},   {"H", "-", NULL},
    {"P", NULL, no_side},  {"protect", NULL, no_side},
    {"R", NULL, no_side},  {"risk", NULL, no_side},
    {".", NULL, no_merge}, {"merge", NULL, no_merge},
    {":", NULL, no_merge}, {"dir-merge", NULL, no_merge},
};

static int no_rule(struct slice rule, const char *why, struct err *e)
{
    return err_set(e, E_UNSUPPORTED, "\"" SLICE_FMT "\", %s",
                   SLICE_ARG(slice_first(rule, rule.n < 100 ? rule.n : 100)), why);
}

/* The word before its modifiers: long ones have a comma between, short ones need none. */
static const struct word *filter_word(struct slice head, struct slice *modifiers)
{
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        size_t n = strlen(words[i].word);
        if (!slice_starts(head, slice_str(words[i].word))) {
            continue;
        }
        *modifiers = slice_from(head, n);
        if (n == 1 && (modifiers->n == 0 || strchr(",!/srpxCenw-+", modifiers->p[0]) != NULL)) {
            return &words[i];
        }
        if (n > 1 && (modifiers->n == 0 || modifiers->p[0] == ',')) {
            return &words[i];
        }
    }
    return NULL;
}

int filter_add_own(struct filter *f, struct slice rule, struct err *e)
{
    struct slice rest, head, mods;
    size_t at = 0;
    const struct word *w;
    bool negated = false;
    struct arena a = {0};
    int rc;

    if (slice_eq(rule, SLICE("!")) || slice_eq(rule, SLICE("clear"))) {
        return filter_add(f, SLICE("!"), e);
    }
    while (at < rule.n && rule.p[at] != ' ' && rule.p[at] != '_') {
        at++;
    }
    head = slice_first(rule, at);
    rest = slice_from(rule, at < rule.n ? at + 1 : at);
    w = filter_word(head, &mods);
    if (w == NULL) {
        return no_rule(rule, "a rule must begin with \"+ \" or \"- \"", e);
    }
    if (w->means == NULL) {
        return no_rule(rule, w->why, e);
    }
    for (size_t i = 0; i < mods.n; i++) {
        if (mods.p[i] == '!') {
            negated = true;
        } else if (mods.p[i] != 's' && mods.p[i] != ',') {
            return no_rule(rule, "the only modifier supported here is '!'", e);
        }
    }
    if (rest.n == 0 || memchr(rest.p, '\0', rest.n) != NULL) {
        return no_rule(rule, "the pattern is missing", e);
    }
    rc = filter_add(
        f, arena_fmt(&a, "%s%s " SLICE_FMT, w->means, negated ? "!" : "", SLICE_ARG(rest)), e);
    arena_fini(&a);
    return rc;
}

/* One rule's pattern against a text. */
static bool match_one(const struct filter_rule *r, struct slice pattern, struct slice text,
                      unsigned how, uint64_t *steps)
{
    return r->literal ? slice_eq(pattern, text) : glob_match_how(pattern, text, how, steps);
}

/* The last n + 1 parts; false: it has fewer. */
static bool last_parts(struct slice path, int n, struct slice *out, uint64_t *steps)
{
    size_t at = path.n;

    while (at > 0 && (path.p[at - 1] != '/' || n-- > 0)) {
        at--;
    }
    *out = slice_from(path, at);
    *steps += out->n / 4;
    return n <= 0;
}

/* Against the path's end: as many parts as the pattern has, or with "**" at every part's
 * beginning. */
static bool match_end(const struct filter_rule *r, struct slice pattern, struct slice path,
                      uint64_t *steps)
{
    struct slice top = pattern;

    if (r->slashes >= 0) {
        return last_parts(path, r->slashes, &top, steps) &&
               match_one(r, pattern, top, GLOB_PATH, steps);
    }
    /* What "**" stands for may be nothing before the first '/', as if the path had one. */
    while (slice_starts(top, SLICE("*"))) {
        top = slice_from(top, 1);
    }
    if (slice_starts(pattern, SLICE("**")) && slice_starts(top, SLICE("/")) &&
        match_one(r, slice_from(top, 1), path, GLOB_PATH, steps)) {
        return true;
    }
    return match_one(r, pattern, path, GLOB_TAIL, steps);
}

static bool match_where(const struct filter_rule *r, struct slice pattern, struct slice path,
                        uint64_t *steps)
{
    return r->anchored ? match_one(r, pattern, path, GLOB_PATH, steps)
                       : match_end(r, pattern, path, steps);
}

static bool filter_rule_matches(const struct filter_rule *r, struct slice path, bool is_folder,
                                uint64_t *steps)
{
    bool yes;

    *steps += 4;
    if (r->folders && !is_folder) {
        return r->negated;
    }
    yes = match_where(r, r->pattern, path, steps);
    if (!yes && r->and_below && is_folder) {
        yes = match_where(r, slice_first(r->pattern, r->pattern.n - strlen("/**")), path, steps);
    }
    return yes != r->negated;
}

bool filter_takes_while(const struct filter *f, struct slice path, bool is_folder,
                        bool (*goes_on)(void *arg, uint64_t steps), void *arg)
{
    for (const struct filter_rule *r = f->first; r != NULL; r = r->next) {
        uint64_t steps = 0;
        bool yes = filter_rule_matches(r, path, is_folder, &steps);
        if (!goes_on(arg, steps)) {
            return false;
        }
        if (yes) {
            return r->take;
        }
    }
    return true;
}

static bool always(void *arg, uint64_t steps)
{
    (void)arg;
    (void)steps;
    return true;
}

bool filter_takes(const struct filter *f, struct slice path, bool is_folder)
{
    return filter_takes_while(f, path, is_folder, always, NULL);
}

static bool is_wild(struct slice part)
{
    return rule_contains(part, "*") || rule_contains(part, "?") || rule_contains(part, "[") ||
           rule_contains(part, "\\");
}

/* The folders above what a rule names, as far as it says their names. */
static int check_reach(const struct filter *f, const struct filter_rule *r, struct err *e)
{
    struct slice p = r->pattern;

    for (size_t i = 0; i < p.n; i++) {
        struct slice above = slice_first(p, i);
        if (p.p[i] != '/') {
            continue;
        }
        if (is_wild(above) || (r->and_below && i + strlen("/**") == p.n)) {
            break;
        }
        if (!filter_takes(f, above, true)) {
            return err_set(e, E_INVALID,
                           "\"%s\" matches nothing, because the folder /" SLICE_FMT
                           " above it is excluded, put \"+ /" SLICE_FMT "/\" before it",
                           r->text.p, SLICE_ARG(above), SLICE_ARG(above));
        }
    }
    return 0;
}

int filter_check(const struct filter *f, const struct filter_rule **bad, struct err *e)
{
    int rc = 0;

    for (const struct filter_rule *r = f->first; r != NULL && rc == 0; r = r->next) {
        *bad = r;
        rc = r->take && r->anchored && !r->negated ? check_reach(f, r, e) : 0;
    }
    return rc;
}

void filter_fini(struct filter *f)
{
    arena_fini(&f->arena);
    *f = (struct filter){.count = 0};
}
