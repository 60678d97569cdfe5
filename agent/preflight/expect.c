#include "agent/preflight/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/preflight/finding.h"
#include "common/codec/nearest.h"
#include "common/codec/units.h"

_Static_assert(CHECKS <= 64, "checks are told as bits of 64");

enum kind { COUNT, VERSION, SIZE, SPAN, YES, LEVEL, NAMES };

static const struct {
    const char *name;
    enum kind kind;
    const char *by_itself;
} keys[EXPECT_KEYS] = {
#define EXPECT(key, kind, by_itself, what) [EXPECT_##key] = {#key, kind, by_itself},
#include "agent/preflight/expect.def"
#undef EXPECT
    [EXPECT_ONLY] = {"only", NAMES, ""},
    [EXPECT_SKIP] = {"skip", NAMES, ""},
    [EXPECT_WARN] = {"warn", NAMES, ""},
};

const struct settings_key expect_keys[EXPECT_KEYS] = {
#define EXPECT(key, kind, by_itself, what) [EXPECT_##key] = {#key, false},
#include "agent/preflight/expect.def"
#undef EXPECT
    [EXPECT_ONLY] = {"only", true},
    [EXPECT_SKIP] = {"skip", true},
    [EXPECT_WARN] = {"warn", true},
};

static const struct {
    const char *name;
    const char *what;
} checks[CHECKS] = {
#define LOOK(name, text, group, cost, severity, limit_s, what) [CHECK_##name] = {text, what},
#include "agent/preflight/checks.def"
#undef LOOK
};

const char *check_name(enum check c)
{
    return checks[c].name;
}

const char *check_what(enum check c)
{
    return checks[c].what;
}

/* --- values ----------------------------------------------------------------------------------- */

static bool version_ok(struct slice s)
{
    uint64_t part;

    do {
        if (!slice_u64(slice_cut(&s, '.'), &part)) {
            return false;
        }
    } while (s.n > 0);
    return true;
}

/* "5-1": what stands behind the number is not compared. */
static uint64_t part_of(struct slice s)
{
    size_t digits = 0;
    uint64_t n;

    while (digits < s.n && s.p[digits] >= '0' && s.p[digits] <= '9') {
        digits++;
    }
    return slice_u64(slice_first(s, digits), &n) ? n : 0;
}

int version_cmp(const char *have, const char *want)
{
    struct slice a = slice_str(have), b = slice_str(want);

    while (b.n > 0) {
        uint64_t x = part_of(slice_cut(&a, '.')), y = part_of(slice_cut(&b, '.'));

        if (x != y) {
            return x < y ? -1 : 1;
        }
    }
    return 0;
}

static bool level_parse(struct slice s, uint64_t *out)
{
    static const char *const names[] = {"ok", "warn", "crit"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (slice_eqs(s, names[i])) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* NULL: taken; else what it should have been. */
static const char *take_expected_value(struct expected *x, enum kind kind, const char *text)
{
    struct slice s = slice_str(text);
    struct expected got = {.set = true};
    bool yes = false;

    if (s.n >= sizeof got.text) {
        return "is too long";
    }
    memcpy(got.text, text, s.n);
    switch (kind) {
    case COUNT:
        if (!slice_u64(s, &got.n)) {
            return "is not a number; write one such as 8";
        }
        break;
    case VERSION:
        if (!version_ok(s)) {
            return "is not a version; write one such as 550.54";
        }
        break;
    case SIZE:
        if (!size_parse(s, &got.n)) {
            return "is not a size; write one such as 100g";
        }
        break;
    case SPAN:
        if (!span_parse(s, &got.n)) {
            return "is not a time span; write one such as 5s";
        }
        break;
    case YES:
        if (!settings_truth(text, &yes)) {
            return "is neither yes nor no; write one of them";
        }
        got.n = yes;
        break;
    case LEVEL:
        if (!level_parse(s, &got.n)) {
            return "is not a verdict; write ok, warn or crit";
        }
        break;
    case NAMES:
        break;
    }
    *x = got;
    return NULL;
}

void expect_init(struct expect *x)
{
    *x = (struct expect){0};
    for (size_t i = 0; i < EXPECT_KEYS; i++) {
        if (keys[i].by_itself[0] != '\0') {
            CHECK(take_expected_value(&x->is[i], keys[i].kind, keys[i].by_itself) == NULL);
        }
    }
}

/* --- names of checks -------------------------------------------------------------------------- */

static bool find_check(struct slice name, uint64_t *bits)
{
    for (size_t i = 0; i < CHECKS; i++) {
        if (slice_eqs(name, checks[i].name)) {
            *bits |= UINT64_C(1) << i;
            return true;
        }
    }
    return false;
}

static const char *near_check(struct slice name)
{
    const char *names[CHECKS];

    for (size_t i = 0; i < CHECKS; i++) {
        names[i] = checks[i].name;
    }
    return nearest_word(names, CHECKS, name);
}

int expect_names(const char *text, uint64_t *bits, struct err *e)
{
    struct slice rest = slice_str(text);

    *bits = 0;
    while (rest.n > 0) {
        struct slice name = slice_cut(&rest, ',');
        const char *near;

        if (find_check(name, bits)) {
            continue;
        }
        near = near_check(name);
        return err_set(e, E_USAGE, "%.*s is not a check%s%s%s", (int)min_u64(name.n, 40), name.p,
                       near != NULL ? "; did you mean "
                                    : "; `trainagent preflight --list` lists them",
                       near != NULL ? near : "", near != NULL ? "?" : "");
    }
    return *bits != 0 ? 0 : err_set(e, E_USAGE, "no check is given; write NAME,NAME");
}

/* --- sections --------------------------------------------------------------------------------- */

static uint64_t *bits_of(struct expect *x, size_t key)
{
    return key == EXPECT_ONLY ? &x->only : key == EXPECT_SKIP ? &x->skip : &x->warn;
}

static int take_expected_names(struct expect *x, size_t key, const struct settings_given *g,
                               struct err *e)
{
    for (; g != NULL; g = g->next) {
        const char *near = near_check(slice_str(g->text));

        if (!find_check(slice_str(g->text), bits_of(x, key))) {
            return settings_wrong(
                g->at, e, "%s = \"%.40s\": there is no such check; %s%s%s", keys[key].name, g->text,
                near != NULL ? "did you mean \"" : "`trainagent preflight --list` lists them",
                near != NULL ? near : "", near != NULL ? "\"?" : "");
        }
    }
    x->is[key].set = true;
    return 0;
}

int expect_section(const struct settings_node *nd, struct expect *x, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < EXPECT_KEYS; i++) {
        const struct settings_given *g = settings_given(nd, keys[i].name);
        const char *wrong;

        if (g == NULL) {
            continue;
        }
        if (keys[i].kind == NAMES) {
            rc = take_expected_names(x, i, g, e);
            continue;
        }
        wrong = take_expected_value(&x->is[i], keys[i].kind, g->text);
        if (wrong != NULL) {
            rc = settings_wrong(g->at, e, "%s = \"%.40s\": it %s", keys[i].name, g->text, wrong);
        }
    }
    return rc;
}

int expect_file(const char *path, struct expect *x, struct err *e)
{
    static const struct settings_section sections[] = {
        {"", 0, SETTINGS_ONCE, NULL, 0}, {"preflight", 0, SETTINGS_ONCE, expect_keys, EXPECT_KEYS}};
    static const struct settings_grammar grammar = {
        .sections = sections,
        .nsections = ARRAY_LEN(sections),
        .manual = "trainagent(1)",
        .absent = "name another",
        .includes = true,
    };
    struct arena arena = {0};
    struct settings_node *root;
    int rc;

    if (access(path, R_OK) == -1) {
        return err_sys(e, "%s", path); /* not found is not wrong */
    }
    rc = settings_read(&grammar, path, &arena, &root, e);
    if (rc == 0 && root->child == NULL) {
        rc = settings_wrong(
            root->at, e,
            "the file sets no expectation and would have no effect; write one such as preflight "
            "{ gpus = 8 }");
    }
    rc = rc != 0 ? rc : expect_section(root->child, x, e);
    arena_fini(&arena);
    return rc;
}

int expect_word(const char *text, struct expect *x, struct err *e)
{
    struct slice value = slice_str(text);
    struct slice key = slice_cut(&value, '=');
    const char *names[EXPECT_ONLY];
    const char *near;

    for (size_t i = 0; i < EXPECT_ONLY; i++) {
        const char *wrong;

        names[i] = keys[i].name;
        if (!slice_eqs(key, keys[i].name)) {
            continue;
        }
        wrong = value.n > 0 ? take_expected_value(&x->is[i], keys[i].kind, value.p) : "is empty";
        return wrong == NULL ? 0
                             : err_set(e, E_USAGE, "--expect %s=%.40s: it %s", keys[i].name,
                                       value.n > 0 ? value.p : "", wrong);
    }
    near = nearest_word(names, EXPECT_ONLY, key);
    return err_set(e, E_USAGE, "--expect %.60s: write KEY=VALUE%s%s%s", text,
                   near != NULL ? "; did you mean "
                                : "; `trainagent preflight --list` lists the keys",
                   near != NULL ? near : "", near != NULL ? "?" : "");
}

void expect_lay(struct expect *x, const struct expect *over)
{
    for (size_t i = 0; i < EXPECT_KEYS; i++) {
        if (over->is[i].set) {
            x->is[i] = over->is[i];
        }
    }
    if (over->is[EXPECT_ONLY].set) {
        x->only = over->only;
        x->skip &= ~over->only; /* who names a check wants it */
    }
    x->skip |= over->skip;
    x->warn |= over->warn;
}

bool expect_u64(const struct expect *x, enum expect_key key, uint64_t *out)
{
    if (x->is[key].set) {
        *out = x->is[key].n;
    }
    return x->is[key].set;
}
