#include "common/codec/hostlist.h"

/* The first number of "01-04,07]..." goes to out; *rest is then what follows the bracket. */
static bool first_number(struct slice *rest, char *out, size_t *n)
{
    struct slice inside;
    size_t digits = 0;

    if (slice_find(*rest, ']') < 0) {
        return false;
    }
    inside = slice_cut(rest, ']');
    while (digits < inside.n && inside.p[digits] >= '0' && inside.p[digits] <= '9') {
        if (*n + 1 >= HOSTLIST_NAME) {
            return false;
        }
        out[(*n)++] = inside.p[digits++];
    }
    return digits > 0 && (digits == inside.n || inside.p[digits] == '-' || inside.p[digits] == ',');
}

static bool in_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
}

bool hostlist_first(struct slice list, char out[HOSTLIST_NAME])
{
    struct slice rest = list;
    size_t n = 0;

    while (rest.n > 0 && rest.p[0] != ',') {
        char c = rest.p[0];

        rest = slice_from(rest, 1);
        if (c == '[') {
            if (!first_number(&rest, out, &n)) {
                return false;
            }
        } else if (!in_name(c) || n + 1 >= HOSTLIST_NAME) {
            return false;
        } else {
            out[n++] = c;
        }
    }
    out[n] = '\0';
    return n > 0;
}
