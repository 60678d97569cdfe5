#include "server/repo/python/name.h"

bool py_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

struct slice pystrip(struct slice s)
{
    while (s.n > 0 && py_is_blank(s.p[0])) {
        s = slice_from(s, 1);
    }
    while (s.n > 0 && py_is_blank(s.p[s.n - 1])) {
        s.n--;
    }
    return s;
}

static bool is_mark(char c)
{
    return c == '-' || c == '_' || c == '.';
}

bool pyname_valid(struct slice name)
{
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        bool alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!alnum && (!is_mark(c) || i == 0 || i + 1 == name.n)) {
            return false;
        }
    }
    return name.n > 0 && name.n <= PYNAME_MAX;
}

struct slice pyname_normal(struct slice name, struct arena *a)
{
    char *out = arena_alloc(a, name.n + 1);
    size_t n = 0;

    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if (!is_mark(c)) {
            out[n++] = c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
        } else if (n == 0 || out[n - 1] != '-') {
            out[n++] = '-';
        }
    }
    return slice_of(out, n);
}
