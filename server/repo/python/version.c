#include "server/repo/python/version.h"

#include <inttypes.h>

#include "common/base/ascii.h"
#include "server/repo/python/name.h"

enum { SPECS_MAX = 64 };

/* --- reading ---------------------------------------------------------------------------------- */

static bool take_separator(struct slice *s)
{
    if (s->n > 0 && (s->p[0] == '.' || s->p[0] == '-' || s->p[0] == '_')) {
        *s = slice_from(*s, 1);
        return true;
    }
    return false;
}

/* Digits in front; without any *out is 0, and *ok false. */
static bool take_version_number(struct slice *s, uint64_t *out, bool *ok)
{
    size_t n = 0;

    while (n < s->n && ascii_is_digit(s->p[n])) {
        n++;
    }
    *out = 0;
    *ok = n != 0;
    if (n != 0 && !slice_u64(slice_first(*s, n), out)) {
        return false; /* too large */
    }
    *s = slice_from(*s, n);
    return true;
}

static bool take_version_word(struct slice *s, const char *word)
{
    size_t n = strlen(word);

    if (s->n < n || !slice_ieq(slice_first(*s, n), slice_str(word))) {
        return false;
    }
    *s = slice_from(*s, n);
    return true;
}

/* "a", "-beta.2", ".RC3": letters, and a number that may lack. */
static bool take_tagged(struct slice *s, const char *const *words, const char *letters, char *which,
                        uint64_t *number)
{
    struct slice try = *s;
    bool some;

    (void)take_separator(&try);
    for (size_t i = 0; words[i] != NULL; i++) {
        if (take_version_word(&try, words[i])) {
            *which = letters[i];
            (void)take_separator(&try);
            *s = try;
            return take_version_number(s, number, &some);
        }
    }
    *which = 0;
    return true;
}

static bool take_release(struct slice *s, struct pyversion *v)
{
    bool some;

    do {
        if (v->parts == PYVERSION_PARTS || !take_version_number(s, &v->part[v->parts], &some) ||
            !some) {
            return false;
        }
        v->parts++;
        some = s->n > 1 && s->p[0] == '.' && ascii_is_digit(s->p[1]);
        *s = some ? slice_from(*s, 1) : *s;
    } while (some);
    return true;
}

static bool take_post(struct slice *s, struct pyversion *v)
{
    static const char *const words[] = {"post", "rev", "r", NULL};
    char which;
    bool some;

    if (s->n > 1 && s->p[0] == '-' && ascii_is_digit(s->p[1])) {
        *s = slice_from(*s, 1);
        v->post = true;
        return take_version_number(s, &v->post_n, &some);
    }
    if (!take_tagged(s, words, "ppp", &which, &v->post_n)) {
        return false;
    }
    v->post = which != 0;
    return true;
}

static bool local_valid(struct slice s)
{
    bool before = false; /* a letter or digit was the last */

    for (size_t i = 0; i < s.n; i++) {
        bool mark = s.p[i] == '.' || s.p[i] == '-' || s.p[i] == '_';
        if (mark ? !before : !ascii_is_alnum(s.p[i])) {
            return false;
        }
        before = !mark;
    }
    return before;
}

bool pyversion_parse(struct slice text, struct pyversion *out)
{
    static const char *const pre[] = {"alpha", "a", "beta", "b", "preview", "pre", "rc", "c", NULL};
    static const char *const dev[] = {"dev", NULL};
    struct slice s = pystrip(text);
    struct slice behind;
    char which;
    bool some;

    *out = (struct pyversion){.local = SLICE("")};
    if (s.n > PYVERSION_BYTES) {
        return false;
    }
    (void)take_version_word(&s, "v");
    behind = s;
    if (!take_version_number(&behind, &out->epoch, &some)) {
        return false;
    }
    if (some && behind.n > 0 && behind.p[0] == '!') {
        s = slice_from(behind, 1);
    } else {
        out->epoch = 0;
    }
    if (!take_release(&s, out) || !take_tagged(&s, pre, "aabbcccc", &out->pre, &out->pre_n) ||
        !take_post(&s, out) || !take_tagged(&s, dev, "d", &which, &out->dev_n)) {
        return false;
    }
    out->dev = which != 0;
    if (s.n > 0 && s.p[0] == '+') {
        out->local = slice_from(s, 1);
        return local_valid(out->local);
    }
    return s.n == 0;
}

/* --- order ------------------------------------------------------------------------------------ */

static int cmp_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int cmp_release(const struct pyversion *a, const struct pyversion *b)
{
    for (size_t i = 0; i < PYVERSION_PARTS; i++) {
        int c = cmp_u64(a->part[i], b->part[i]); /* 1.0 is 1.0.0 */
        if (c != 0) {
            return c;
        }
    }
    return 0;
}

/* 1.0.dev1 < 1.0a1.dev1 < 1.0a1 < 1.0b1 < 1.0rc1 < 1.0 < 1.0.post1.dev1 < 1.0.post1 */
static int pre_rank(const struct pyversion *v)
{
    return v->pre != 0 ? v->pre - 'a' + 1 : v->dev && !v->post ? 0 : 4;
}

static struct slice cut_local(struct slice *rest)
{
    size_t n = 0;
    struct slice part;

    while (n < rest->n && ascii_is_alnum(rest->p[n])) {
        n++;
    }
    part = slice_first(*rest, n);
    *rest = slice_from(*rest, n < rest->n ? n + 1 : n);
    return part;
}

static bool all_digits(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (!ascii_is_digit(s.p[i])) {
            return false;
        }
    }
    return s.n != 0;
}

static int cmp_digits(struct slice a, struct slice b)
{
    while (a.n > 1 && a.p[0] == '0') {
        a = slice_from(a, 1);
    }
    while (b.n > 1 && b.p[0] == '0') {
        b = slice_from(b, 1);
    }
    return a.n != b.n ? (a.n < b.n ? -1 : 1) : slice_cmp(a, b);
}

static int cmp_words(struct slice a, struct slice b)
{
    for (size_t i = 0; i < a.n && i < b.n; i++) {
        if (ascii_lower(a.p[i]) != ascii_lower(b.p[i])) {
            return ascii_lower(a.p[i]) < ascii_lower(b.p[i]) ? -1 : 1;
        }
    }
    return cmp_u64(a.n, b.n);
}

static int cmp_local(struct slice a, struct slice b)
{
    while (a.n != 0 && b.n != 0) {
        struct slice x = cut_local(&a), y = cut_local(&b);
        bool nx = all_digits(x), ny = all_digits(y);
        int c = nx && ny ? cmp_digits(x, y) : nx != ny ? (nx ? 1 : -1) : cmp_words(x, y);
        if (c != 0) {
            return c;
        }
    }
    return a.n != 0 ? 1 : b.n != 0 ? -1 : 0;
}

static int cmp_public(const struct pyversion *a, const struct pyversion *b)
{
    int c = cmp_u64(a->epoch, b->epoch);

    c = c != 0 ? c : cmp_release(a, b);
    c = c != 0 ? c : pre_rank(a) - pre_rank(b);
    c = c != 0 ? c : cmp_u64(a->pre_n, b->pre_n);
    c = c != 0 ? c : a->post - b->post;
    c = c != 0 ? c : cmp_u64(a->post_n, b->post_n);
    c = c != 0 ? c : b->dev - a->dev;
    return c != 0 ? c : cmp_u64(a->dev_n, b->dev_n);
}

int pyversion_cmp(const struct pyversion *a, const struct pyversion *b)
{
    int c = cmp_public(a, b);

    return c != 0 ? c : cmp_local(a->local, b->local);
}

bool pyversion_is_pre(const struct pyversion *v)
{
    return v->pre != 0 || v->dev;
}

void pyversion_write(const struct pyversion *v, struct buf *out)
{
    struct slice local = v->local;

    if (v->epoch != 0) {
        buf_addf(out, "%" PRIu64 "!", v->epoch);
    }
    for (size_t i = 0; i < v->parts; i++) {
        buf_addf(out, "%s%" PRIu64, i != 0 ? "." : "", v->part[i]);
    }
    if (v->pre != 0) {
        buf_addf(out, "%s%" PRIu64, v->pre == 'c' ? "rc" : v->pre == 'b' ? "b" : "a", v->pre_n);
    }
    if (v->post) {
        buf_addf(out, ".post%" PRIu64, v->post_n);
    }
    if (v->dev) {
        buf_addf(out, ".dev%" PRIu64, v->dev_n);
    }
    for (const char *sep = "+"; local.n != 0; sep = ".") {
        struct slice part = cut_local(&local);
        buf_str(out, sep);
        while (all_digits(part) && part.n > 1 && part.p[0] == '0') {
            part = slice_from(part, 1);
        }
        for (size_t i = 0; i < part.n; i++) {
            buf_byte(out, (uint8_t)ascii_lower(part.p[i]));
        }
    }
}

/* --- what may be asked ------------------------------------------------------------------------ */

static bool same_base(const struct pyversion *a, const struct pyversion *b)
{
    return a->epoch == b->epoch && cmp_release(a, b) == 0;
}

static bool has_prefix(const struct pyspec *s, const struct pyversion *v)
{
    const struct pyversion *p = &s->v;
    unsigned parts = p->parts;

    if (v->epoch != p->epoch) {
        return false;
    }
    for (unsigned i = 0; i < parts; i++) {
        if (v->part[i] != p->part[i]) {
            return false;
        }
    }
    return true;
}

static bool equals(const struct pyspec *s, const struct pyversion *v)
{
    if (s->prefix) {
        return has_prefix(s, v);
    }
    return cmp_public(&s->v, v) == 0 && (s->v.local.n == 0 || cmp_local(s->v.local, v->local) == 0);
}

/* "~=2.2.post3" is ">=2.2.post3, ==2.*" */
static bool compatible(const struct pyspec *s, const struct pyversion *v)
{
    struct pyspec prefix = {.op = PYSPEC_EQ, .prefix = true};

    prefix.v.epoch = s->v.epoch;
    prefix.v.parts = s->v.parts - 1;
    memcpy(prefix.v.part, s->v.part, prefix.v.parts * sizeof prefix.v.part[0]);
    return cmp_public(v, &s->v) >= 0 && has_prefix(&prefix, v);
}

/* "<1.1" is not for 1.1rc1 and 1.1.dev2, and "<1.1.post1" not for 1.1.post1.dev2: unless it names a
 * pre-release itself. */
static bool is_pre_of(const struct pyversion *v, const struct pyversion *of)
{
    return !pyversion_is_pre(of) && pyversion_is_pre(v) && same_base(v, of) &&
           (!of->post || (v->post && v->post_n == of->post_n && v->pre == 0));
}

/* ">1.1" is not for 1.1.post1, and ">1.1rc1" not for 1.1rc1.post1, but for 1.1.post1: unless it
 * names a post-release itself. */
static bool is_post_of(const struct pyversion *v, const struct pyversion *of)
{
    return !of->post && !of->dev && v->post && same_base(v, of) && v->pre == of->pre &&
           v->pre_n == of->pre_n;
}

static bool spec_allows_version(const struct pyspec *s, const struct pyversion *v,
                                struct slice text)
{
    switch (s->op) {
    case PYSPEC_SAME_TEXT:
        return slice_ieq(pystrip(s->text), pystrip(text));
    case PYSPEC_EQ:
        return equals(s, v);
    case PYSPEC_NE:
        return !equals(s, v);
    case PYSPEC_LE:
        return cmp_public(v, &s->v) <= 0;
    case PYSPEC_GE:
        return cmp_public(v, &s->v) >= 0;
    case PYSPEC_LT:
        return cmp_public(v, &s->v) < 0 && !is_pre_of(v, &s->v);
    case PYSPEC_GT: /* ">1.1" is not for 1.1+local either */
        return cmp_public(v, &s->v) > 0 && !is_post_of(v, &s->v);
    case PYSPEC_COMPATIBLE:
        return compatible(s, v);
    }
    return false;
}

bool pyspecs_hold(const struct pyspecs *s, const struct pyversion *v, struct slice text)
{
    for (size_t i = 0; i < s->count; i++) {
        if (!spec_allows_version(&s->one[i], v, text)) {
            return false;
        }
    }
    return true;
}

bool pyspecs_name_pre(const struct pyspecs *s)
{
    for (size_t i = 0; i < s->count; i++) {
        enum pyspec_op op = s->one[i].op;
        if (op != PYSPEC_NE && op != PYSPEC_LT && op != PYSPEC_GT &&
            pyversion_is_pre(&s->one[i].v)) {
            return true;
        }
    }
    return false;
}

bool pyspecs_pin(const struct pyspecs *s)
{
    for (size_t i = 0; i < s->count; i++) {
        if (s->one[i].op == PYSPEC_SAME_TEXT || (s->one[i].op == PYSPEC_EQ && !s->one[i].prefix)) {
            return true;
        }
    }
    return false;
}

static bool take_op(struct slice *s, enum pyspec_op *op)
{
    static const struct {
        const char *text;
        enum pyspec_op op;
    } ops[] = {{"===", PYSPEC_SAME_TEXT}, {"==", PYSPEC_EQ}, {"!=", PYSPEC_NE},
               {"<=", PYSPEC_LE},         {">=", PYSPEC_GE}, {"~=", PYSPEC_COMPATIBLE},
               {"<", PYSPEC_LT},          {">", PYSPEC_GT}};

    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        if (take_version_word(s, ops[i].text)) {
            *op = ops[i].op;
            return true;
        }
    }
    return false;
}

static bool read_spec(struct slice text, struct pyspec *out)
{
    struct slice s = pystrip(text);
    bool equality;

    *out = (struct pyspec){0};
    if (!take_op(&s, &out->op)) {
        return false;
    }
    s = out->text = pystrip(s);
    equality = out->op == PYSPEC_EQ || out->op == PYSPEC_NE;
    if (equality && slice_ends(s, SLICE(".*"))) {
        out->prefix = true;
        s.n -= 2;
    }
    if (out->op == PYSPEC_SAME_TEXT) {
        (void)!pyversion_parse(s, &out->v);
        return s.n != 0 && s.n <= PYVERSION_BYTES;
    }
    return pyversion_parse(s, &out->v) && (out->v.local.n == 0 || (equality && !out->prefix)) &&
           (!out->prefix || (!out->v.dev && !out->v.post && out->v.pre == 0)) &&
           (out->op != PYSPEC_COMPATIBLE || out->v.parts > 1);
}

int pyspecs_parse(struct slice text, struct arena *a, struct pyspecs *out, struct err *e)
{
    struct pyspec one[SPECS_MAX];
    struct slice rest = pystrip(text);
    size_t n = 0;

    *out = (struct pyspecs){0};
    while (rest.n != 0) {
        struct slice part = slice_cut(&rest, ',');
        if (pystrip(part).n == 0 && n != 0 && pystrip(rest).n == 0) {
            break; /* a comma at the end is common */
        }
        if (n == SPECS_MAX || !read_spec(part, &one[n])) {
            return err_set(e, E_INVALID, "\"%.*s\" is not a version specifier",
                           (int)(part.n < 60 ? part.n : 60), part.p);
        }
        n++;
    }
    out->count = n;
    out->one = arena_alloc(a, (n + 1) * sizeof one[0]);
    if (n != 0) {
        memcpy(out->one, one, n * sizeof one[0]);
    }
    return 0;
}
