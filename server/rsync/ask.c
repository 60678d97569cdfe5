#include "server/rsync/ask.h"

static bool has_glob(struct slice s)
{
    return slice_find(s, '*') >= 0 || slice_find(s, '?') >= 0 || slice_find(s, '[') >= 0;
}

static int elsewhere(struct err *e)
{
    return err_set(e, E_INVALID, "that path cannot be served");
}

static int add_part(struct ask *a, struct slice part, struct err *e)
{
    if (a->path_n + 1 + part.n > LIST_PATH_MAX || slice_eq(part, SLICE(".."))) {
        return elsewhere(e);
    }
    if (a->path_n > 0) {
        a->path[a->path_n++] = '/';
    }
    memcpy(a->path + a->path_n, part.p, part.n);
    a->path_n += part.n;
    return 0;
}

/* Not relative: told by its last part, or what is in it by theirs. */
static void strip_way(struct ask *a)
{
    size_t n = a->path_n;
    bool inside = a->contents || a->pattern.n > 0;

    while (!inside && n > 0 && a->path[n - 1] != '/') {
        n--;
    }
    a->strip = inside ? (n > 0 ? n + 1 : 0) : n;
}

/* Empty parts and "." are passed over; the last part may be a pattern. */
int ask_path(struct slice path, const struct client_options *o, struct ask *out, struct err *e)
{
    struct slice rest = path;
    bool marked = false;
    int rc = 0;

    *out = (struct ask){.contents = true};
    while (rest.n > 0 && rc == 0) {
        struct slice part = slice_cut(&rest, '/');
        bool last = rest.n == 0;
        if (part.n == 0 || slice_eq(part, SLICE("."))) {
            out->contents = true;
            if (part.n == 1 && (!last || path.p[path.n - 1] == '/') && !marked) {
                out->strip = out->path_n > 0 ? out->path_n + 1 : 0;
                marked = true;
            }
        } else if (has_glob(part)) {
            out->pattern = part;
            rc = last && path.p[path.n - 1] != '/'
                     ? 0
                     : err_set(e, E_INVALID,
                               "wildcards are served in the last part of a path alone");
            out->contents = false;
        } else {
            rc = add_part(out, part, e);
            out->contents = last && path.p[path.n - 1] == '/';
        }
    }
    if (rc == 0 && out->path_n > 0 && !list_name_valid(slice_of(out->path, out->path_n))) {
        rc = elsewhere(e);
    }
    if (!o->relative) {
        strip_way(out);
    }
    return rc;
}

static void leave_part(struct ask *a, size_t foot)
{
    while (a->path_n > foot && a->path[a->path_n - 1] != '/') {
        a->path_n--;
    }
    a->path_n -= a->path_n > foot && a->path_n > 0;
}

/* As above, but ".." leads back as far as the base, as with the installed program where it serves a module. */
int ask_name(const struct ask *base, struct slice name, const struct client_options *o,
             struct ask *out, struct err *e)
{
    size_t foot = base->path_n;
    size_t top = foot > 0 ? foot + 1 : 0;
    bool folder = name.n == 0 || name.p[name.n - 1] == '/';
    struct slice rest = name;
    bool marked = false;
    unsigned dots = 0; /* before all else */

    if (foot + 1 + name.n > LIST_PATH_MAX) {
        return err_set(e, E_INVALID, "File name too long (36)");
    }
    memcpy(out->path, base->path, foot); /* not all of its room: there may be millions */
    out->path_n = foot;
    out->pattern = SLICE_NONE;
    out->contents = out->named = true;
    out->strip = top;
    while (rest.n > 0) {
        struct slice part = slice_cut(&rest, '/');
        out->contents = true;
        if (slice_eq(part, SLICE(".."))) {
            leave_part(out, foot);
            out->strip = out->path_n + 1 < out->strip ? top : out->strip;
        } else if (part.n == 1 && part.p[0] == '.') {
            dots += out->path_n == foot;
            if (!marked && out->path_n > foot && (rest.n > 0 || folder)) {
                out->strip = out->path_n + 1;
                marked = true;
            }
        } else if (part.n > 0) {
            (void)!add_part(out, part, NULL); /* its length was seen to */
            out->contents = rest.n == 0 && folder;
        }
    }
    out->dotted = o->relative && dots == 1 && !marked && out->path_n > foot;
    if (!o->relative) {
        strip_way(out);
    }
    return 0;
}
