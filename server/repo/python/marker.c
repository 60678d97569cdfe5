#include "server/repo/python/marker.h"

#include <stdio.h>

#include "server/repo/python/name.h"
#include "server/repo/python/version.h"

enum { DEPTH_MAX = 32, TEXT_MAX = 256 };

/* --- environments ----------------------------------------------------------------------------- */

static const char *machine_of(const char *platform)
{
    static const struct {
        const char *end, *machine;
    } all[] = {{"x86_64", "x86_64"},   {"aarch64", "aarch64"}, {"arm64", "arm64"},
               {"ppc64le", "ppc64le"}, {"s390x", "s390x"},     {"i686", "i686"},
               {"riscv64", "riscv64"}, {"amd64", "AMD64"},     {"win32", "x86"},
               {"armv7l", "armv7l"}};

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (slice_ends(slice_str(platform), slice_str(all[i].end))) {
            return all[i].machine;
        }
    }
    return NULL;
}

bool pyenv_init(struct pyenv *env, const char *python, const char *platform)
{
    struct slice p = slice_str(platform);
    struct slice minor = slice_str(python);
    uint64_t n;

    *env = (struct pyenv){.platform = platform, .platform_machine = machine_of(platform)};
    if (!slice_starts(minor, SLICE("3.")) || !slice_u64(slice_from(minor, 2), &n) || n > 99) {
        return false;
    }
    env->minor = (unsigned)n;
    if (slice_starts(p, SLICE("manylinux")) || slice_starts(p, SLICE("musllinux_")) ||
        slice_starts(p, SLICE("linux_"))) {
        env->os_name = "posix";
        env->sys_platform = "linux";
        env->platform_system = "Linux";
    } else if (slice_starts(p, SLICE("macosx_"))) {
        env->os_name = "posix";
        env->sys_platform = "darwin";
        env->platform_system = "Darwin";
    } else if (slice_starts(p, SLICE("win"))) {
        env->os_name = "nt";
        env->sys_platform = "win32";
        env->platform_system = "Windows";
    }
    return env->os_name != NULL && env->platform_machine != NULL;
}

/* --- reading ---------------------------------------------------------------------------------- */

struct value { /* of one side of a comparison */
    char room[TEXT_MAX];
    struct slice text;
    bool unknown;  /* nobody can say it before it runs */
    bool is_extra; /* names are compared, not texts */
};

struct eval {
    struct slice s;
    const struct pyenv *env;
    struct slice extra;
    unsigned depth;
    struct err *e;
};

static bool is_marker_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_blanks(struct eval *v)
{
    while (v->s.n > 0 && is_marker_blank(v->s.p[0])) {
        v->s = slice_from(v->s, 1);
    }
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

static struct slice peek_word(struct eval *v)
{
    size_t n = 0;

    skip_blanks(v);
    while (n < v->s.n && is_name_char(v->s.p[n])) {
        n++;
    }
    return slice_first(v->s, n);
}

static bool take_marker_word(struct eval *v, const char *word)
{
    if (!slice_eqs(peek_word(v), word)) {
        return false;
    }
    v->s = slice_from(v->s, strlen(word));
    return true;
}

static int marker_error(struct eval *v, const char *what)
{
    return err_set(v->e, E_INVALID, "a marker lacks a %s at \"%.*s\"", what,
                   (int)(v->s.n < 40 ? v->s.n : 40), v->s.p != NULL ? v->s.p : "");
}

static void set_marker_text(struct value *out, const char *text)
{
    snprintf(out->room, sizeof out->room, "%s", text);
    out->text = slice_str(out->room);
}

static bool marker_variable(const struct eval *v, struct slice name, struct value *out)
{
    const struct pyenv *env = v->env;

    if (slice_eqs(name, "python_version")) {
        snprintf(out->room, sizeof out->room, "3.%u", env->minor);
        out->text = slice_str(out->room);
    } else if (slice_eqs(name, "python_full_version") ||
               slice_eqs(name, "implementation_version")) {
        snprintf(out->room, sizeof out->room, "3.%u.%u", env->minor, env->micro);
        out->text = slice_str(out->room);
    } else if (slice_eqs(name, "os_name") || slice_eqs(name, "os.name")) {
        set_marker_text(out, env->os_name);
    } else if (slice_eqs(name, "sys_platform") || slice_eqs(name, "sys.platform")) {
        set_marker_text(out, env->sys_platform);
    } else if (slice_eqs(name, "platform_system")) {
        set_marker_text(out, env->platform_system);
    } else if (slice_eqs(name, "platform_machine") || slice_eqs(name, "platform.machine")) {
        set_marker_text(out, env->platform_machine);
    } else if (slice_eqs(name, "platform_python_implementation") ||
               slice_eqs(name, "platform.python_implementation") ||
               slice_eqs(name, "python_implementation")) {
        set_marker_text(out, "CPython");
    } else if (slice_eqs(name, "implementation_name")) {
        set_marker_text(out, "cpython");
    } else if (slice_eqs(name, "platform_release") || slice_eqs(name, "platform_version") ||
               slice_eqs(name, "platform.version")) {
        set_marker_text(out, "");
        out->unknown = true;
    } else if (slice_eqs(name, "extra")) {
        out->text = v->extra;
        out->is_extra = true;
    } else {
        return false;
    }
    return true;
}

static int read_value(struct eval *v, struct value *out)
{
    struct slice name = peek_word(v);
    size_t end = 1;

    *out = (struct value){.text = SLICE("")};
    if (v->s.n > 0 && (v->s.p[0] == '"' || v->s.p[0] == '\'')) {
        while (end < v->s.n && v->s.p[end] != v->s.p[0]) {
            end++;
        }
        if (end == v->s.n) {
            return marker_error(v, "closing quote");
        }
        out->text = slice_of(v->s.p + 1, end - 1);
        v->s = slice_from(v->s, end + 1);
        return 0;
    }
    if (name.n == 0 || !marker_variable(v, name, out)) {
        return marker_error(v, "variable or string");
    }
    v->s = slice_from(v->s, name.n);
    return 0;
}

enum compare { IS_SPEC, IS_IN, IS_NOT_IN };

/* *op: as a version specifier has it. */
static int read_op(struct eval *v, enum compare *how, struct slice *op)
{
    size_t n = 0;

    if (take_marker_word(v, "in")) {
        *how = IS_IN;
        return 0;
    }
    if (take_marker_word(v, "not")) {
        *how = IS_NOT_IN;
        return take_marker_word(v, "in") ? 0 : marker_error(v, "\"in\" after \"not\"");
    }
    while (n < v->s.n && n < 3 && memchr("<>=!~", v->s.p[n], 5) != NULL) {
        n++;
    }
    *how = IS_SPEC;
    *op = slice_first(v->s, n);
    v->s = slice_from(v->s, n);
    return slice_eqs(*op, "===") || slice_eqs(*op, "==") || slice_eqs(*op, "!=") ||
                   slice_eqs(*op, "<=") || slice_eqs(*op, ">=") || slice_eqs(*op, "~=") ||
                   slice_eqs(*op, "<") || slice_eqs(*op, ">")
               ? 0
               : marker_error(v, "comparison");
}

/* --- judging ---------------------------------------------------------------------------------- */

/* True: both are versions, and *out is what comes of it. */
static bool as_versions(const struct value *l, struct slice op, const struct value *r, bool *out)
{
    struct arena a = {0};
    struct pyspecs specs;
    struct pyversion v;
    bool are = slice_find(r->text, ',') < 0 && pyversion_parse(l->text, &v) &&
               pyspecs_parse(arena_fmt(&a, SLICE_FMT SLICE_FMT, SLICE_ARG(op), SLICE_ARG(r->text)),
                             &a, &specs, NULL) == 0 &&
               specs.count == 1;

    if (are) {
        *out = pyspecs_hold(&specs, &v, l->text);
    }
    arena_fini(&a);
    return are;
}

static bool as_texts(struct slice l, struct slice op, struct slice r)
{
    int c = slice_cmp(l, r);

    return slice_eqs(op, "<")    ? c < 0
           : slice_eqs(op, "<=") ? c <= 0
           : slice_eqs(op, ">")  ? c > 0
           : slice_eqs(op, ">=") ? c >= 0
           : slice_eqs(op, "!=") ? c != 0
                                 : c == 0;
}

static bool contains(struct slice all, struct slice part)
{
    return part.n == 0 || (all.n != 0 && memmem(all.p, all.n, part.p, part.n) != NULL);
}

static bool compare_marker_values(const struct value *l, enum compare how, struct slice op,
                                  const struct value *r)
{
    struct arena a = {0};
    bool out = false;

    if (l->unknown || r->unknown) {
        return true;
    }
    if (how != IS_SPEC) {
        return contains(r->text, l->text) == (how == IS_IN);
    }
    if (l->is_extra || r->is_extra) {
        bool same = slice_eq(pyname_normal(l->text, &a), pyname_normal(r->text, &a));
        arena_fini(&a);
        return slice_eqs(op, "!=") ? !same : same;
    }
    return as_versions(l, op, r, &out) ? out : as_texts(l->text, op, r->text);
}

static int read_or(struct eval *v, bool *out);

static int read_one(struct eval *v, bool *out)
{
    struct value l, r;
    enum compare how = IS_SPEC;
    struct slice op = SLICE("");
    int rc;

    skip_blanks(v);
    if (v->s.n > 0 && v->s.p[0] == '(') {
        if (++v->depth > DEPTH_MAX) {
            return err_set(v->e, E_TOOBIG, "a marker has more than %d nested parentheses",
                           DEPTH_MAX);
        }
        v->s = slice_from(v->s, 1);
        rc = read_or(v, out);
        skip_blanks(v);
        if (rc == 0 && (v->s.n == 0 || v->s.p[0] != ')')) {
            rc = marker_error(v, "closing parenthesis");
        }
        v->s = rc == 0 ? slice_from(v->s, 1) : v->s;
        v->depth--;
        return rc;
    }
    rc = read_value(v, &l);
    rc = rc != 0 ? rc : read_op(v, &how, &op);
    rc = rc != 0 ? rc : read_value(v, &r);
    if (rc == 0) {
        *out = compare_marker_values(&l, how, op, &r);
    }
    return rc;
}

static int read_and(struct eval *v, bool *out)
{
    bool one = true;
    int rc = read_one(v, out);

    while (rc == 0 && take_marker_word(v, "and")) {
        rc = read_one(v, &one);
        *out = *out && one;
    }
    return rc;
}

static int read_or(struct eval *v, bool *out)
{
    bool one = false;
    int rc = read_and(v, out);

    while (rc == 0 && take_marker_word(v, "or")) {
        rc = read_and(v, &one);
        *out = *out || one;
    }
    return rc;
}

int marker_eval(struct slice text, const struct pyenv *env, struct slice extra, bool *out,
                struct err *e)
{
    struct eval v = {.s = text, .env = env, .extra = extra, .e = e};
    int rc = read_or(&v, out);

    skip_blanks(&v);
    return rc == 0 && v.s.n != 0 ? marker_error(&v, "end") : rc;
}
