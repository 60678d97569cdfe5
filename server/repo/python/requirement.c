#include "server/repo/python/requirement.h"

#include <stdlib.h>

#include "server/repo/python/name.h"

enum { LINE_MAX = 16 << 10, FILE_BYTES = 4 << 20, NESTED_MAX = 8 };

/* --- one -------------------------------------------------------------------------------------- */

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

static struct slice cut_name(struct slice *s)
{
    struct slice name;
    size_t n = 0;

    *s = pystrip(*s);
    while (n < s->n && is_name_char(s->p[n])) {
        n++;
    }
    name = slice_first(*s, n);
    *s = pystrip(slice_from(*s, n));
    return name;
}

static int requirement_error(struct slice text, const char *what, struct err *e)
{
    return err_set(e, E_INVALID, "\"%.*s\" is not a requirement: %s",
                   (int)(text.n < 100 ? text.n : 100), text.p != NULL ? text.p : "", what);
}

static int read_extras(struct slice inside, struct arena *a, struct requirement *out)
{
    struct slice all[PYEXTRAS_MAX];

    inside = pystrip(inside);
    while (inside.n != 0) {
        struct slice one = pystrip(slice_cut(&inside, ','));
        if (out->extras == PYEXTRAS_MAX || !pyname_valid(one)) {
            return E_INVALID;
        }
        all[out->extras++] = pyname_normal(one, a);
    }
    out->extra = arena_alloc(a, (out->extras + 1) * sizeof all[0]);
    if (out->extras != 0) {
        memcpy(out->extra, all, out->extras * sizeof all[0]);
    }
    return 0;
}

/* The ';' of a marker: of a URL only one behind a blank, since URLs may hold some. */
static void cut_marker(struct slice *s, bool url, struct requirement *out)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->p[i] == ';' && (!url || (i > 0 && py_is_blank(s->p[i - 1])))) {
            out->marker = pystrip(slice_from(*s, i + 1));
            *s = slice_first(*s, i);
            return;
        }
    }
}

int requirement_parse(struct slice text, struct arena *a, struct requirement *out, struct err *e)
{
    struct slice rest = pystrip(text), name, specs;
    bool url;

    *out = (struct requirement){.url = SLICE_NONE, .marker = SLICE_NONE};
    if (text.n > LINE_MAX) {
        return err_set(e, E_TOOBIG, "a requirement is too long: %zu bytes", text.n);
    }
    name = cut_name(&rest);
    if (!pyname_valid(name)) {
        return requirement_error(text, "it does not begin with a valid name", e);
    }
    out->name = pyname_normal(name, a);
    if (rest.n > 0 && rest.p[0] == '[') {
        struct slice inside = slice_from(rest, 1);
        ptrdiff_t end = slice_find(inside, ']');
        if (end < 0 || read_extras(slice_first(inside, (size_t)end), a, out) != 0) {
            return requirement_error(text, "its extras are invalid", e);
        }
        rest = pystrip(slice_from(inside, (size_t)end + 1));
    }
    url = rest.n > 0 && rest.p[0] == '@';
    cut_marker(&rest, url, out);
    out->text = pystrip(slice_of(name.p, (size_t)(rest.p + rest.n - name.p)));
    specs = pystrip(rest);
    if (url) {
        out->url = pystrip(slice_from(specs, 1));
        return out->url.n != 0 ? 0 : requirement_error(text, "its URL is missing", e);
    }
    if (specs.n > 1 && specs.p[0] == '(' && specs.p[specs.n - 1] == ')') {
        specs = slice_of(specs.p + 1, specs.n - 2);
    }
    return pyspecs_parse(specs, a, &out->specs, e) == 0
               ? 0
               : requirement_error(text, "its versions are invalid", e);
}

/* --- files of them ---------------------------------------------------------------------------- */

struct reading {
    const struct requirements_events *ev;
    unsigned depth;
    struct err *e;
};

static int read_requirements_file(struct reading *r, const char *path);

/* A '#' begins a comment at the line's start or behind a blank. */
static struct slice without_comment(struct slice line)
{
    for (size_t i = 0; i < line.n; i++) {
        if (line.p[i] == '#' && (i == 0 || py_is_blank(line.p[i - 1]))) {
            return slice_first(line, i);
        }
    }
    return line;
}

/* " --hash=..." and the like behind a requirement. */
static struct slice without_options(struct slice line)
{
    for (size_t i = 1; i + 1 < line.n; i++) {
        if (py_is_blank(line.p[i - 1]) && line.p[i] == '-' && line.p[i + 1] == '-') {
            return slice_first(line, i);
        }
    }
    return line;
}

static bool option(struct slice line, const char *brief, const char *full, struct slice *value)
{
    const char *const names[] = {brief, full};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        size_t n = strlen(names[i]);
        if (slice_starts(line, slice_str(names[i])) && line.n > n &&
            (py_is_blank(line.p[n]) || line.p[n] == '=')) {
            *value = pystrip(slice_from(line, n + 1));
            return value->n != 0;
        }
    }
    return false;
}

static int read_beside(struct reading *r, const char *path, struct slice name)
{
    struct buf b = BUF_INIT(8192);
    const char *slash = strrchr(path, '/');
    int rc;

    if (name.p[0] != '/' && slash != NULL) {
        buf_add(&b, path, (size_t)(slash + 1 - path));
    }
    buf_adds(&b, name);
    rc = b.rc != 0 ? err_set(r->e, E_TOOBIG, "a path is too long: %zu bytes", name.n)
                   : read_requirements_file(r, buf_cstr(&b));
    buf_free(&b);
    return rc;
}

static int read_requirement_line(struct reading *r, const char *path, struct slice line)
{
    struct slice value;

    line = pystrip(without_comment(line));
    if (line.n == 0) {
        return 0;
    }
    if (option(line, "-r", "--requirement", &value)) {
        return read_beside(r, path, value);
    }
    if (line.p[0] == '-' || line.p[0] == '.' || line.p[0] == '/') {
        r->ev->on_odd(r->ev->arg, line);
        return 0;
    }
    return r->ev->on_line(r->ev->arg, pystrip(without_options(line)), r->e);
}

static int read_bytes(struct reading *r, struct slice rest, const char *path)
{
    struct buf whole = BUF_INIT(LINE_MAX * 16);
    int rc = 0;

    while (rc == 0 && rest.n != 0) {
        struct slice line = slice_cut(&rest, '\n');
        bool goes_on;
        line.n -= line.n != 0 && line.p[line.n - 1] == '\r';
        goes_on = line.n != 0 && line.p[line.n - 1] == '\\' && rest.n != 0;
        buf_adds(&whole, goes_on ? slice_first(line, line.n - 1) : line);
        if (goes_on) {
            continue;
        }
        rc = whole.rc != 0 ? err_set(r->e, E_TOOBIG, "%.100s: a line is too long", path)
                           : read_requirement_line(r, path, buf_slice(&whole));
        buf_clear(&whole);
    }
    buf_free(&whole);
    return rc;
}

static int read_requirements_file(struct reading *r, const char *path)
{
    struct buf bytes = BUF_INIT(FILE_BYTES);
    int rc;

    if (r->depth == NESTED_MAX) {
        return err_set(r->e, E_INVALID, "%.100s: requirement files include each other too deeply",
                       path);
    }
    rc = buf_read_file(&bytes, path, r->e);
    if (rc == 0) {
        r->depth++;
        rc = read_bytes(r, buf_slice(&bytes), path);
        r->depth--;
    }
    buf_free(&bytes);
    return rc;
}

int requirements_read(struct slice bytes, const char *path, const struct requirements_events *ev,
                      struct err *e)
{
    struct reading r = {.ev = ev, .e = e};

    return read_bytes(&r, bytes, path);
}

int requirements_file(const char *path, const struct requirements_events *ev, struct err *e)
{
    struct reading r = {.ev = ev, .e = e};

    return read_requirements_file(&r, path);
}
