#include "server/rsync/view.h"

#include <stdlib.h>

struct asked {
    struct slice base;    /* folder whose contents are told; empty: the top */
    struct slice pattern; /* of names in it; n == 0: all, and itself */
    bool glob;
};

static bool has_glob(struct slice s)
{
    return slice_find(s, '*') >= 0 || slice_find(s, '?') >= 0 || slice_find(s, '[') >= 0;
}

static int parse(struct slice path, struct asked *a, struct err *e)
{
    size_t cut;

    while (slice_starts(path, SLICE("./")) || slice_starts(path, SLICE("/"))) {
        path = slice_from(path, path.p[0] == '/' ? 1 : 2);
    }
    if (slice_eq(path, SLICE("."))) {
        path = SLICE_NONE;
    }
    if (slice_ends(path, SLICE("/."))) {
        path.n--;
    }
    *a = (struct asked){.base = path};
    if (path.n > 0 && !slice_ends(path, SLICE("/"))) {
        for (cut = path.n; cut > 0 && path.p[cut - 1] != '/'; cut--) {
        }
        a->pattern = slice_from(path, cut);
        a->glob = has_glob(a->pattern);
        a->base = slice_first(path, cut);
    }
    while (slice_ends(a->base, SLICE("/"))) {
        a->base.n--;
    }
    if ((a->base.n > 0 && !list_name_valid(a->base)) || slice_eq(a->base, SLICE(".")) ||
        (a->pattern.n > 0 && !list_name_valid(a->pattern)) || has_glob(a->base)) {
        return err_set(e, E_INVALID, "that path cannot be served");
    }
    return 0;
}

struct choosing {
    struct view *v;
    const struct asked *a;
    const struct options *o;
    const struct filter *f;
    struct buf out; /* folder that is left out, with what is in it, and its '/' */
};

static bool below(struct slice path, struct slice folder)
{
    return folder.n == 0 || (path.n > folder.n && memcmp(path.p, folder.p, folder.n) == 0 &&
                             path.p[folder.n] == '/');
}

/* rel: below the base. */
static bool wanted(const struct choosing *c, struct slice rel, bool is_folder)
{
    struct slice rest = rel;
    struct slice first = slice_cut(&rest, '/');
    bool deep = first.n != rel.n;

    if (c->a->pattern.n > 0 &&
        !(c->a->glob ? filter_match(c->a->pattern, first) : slice_eq(c->a->pattern, first))) {
        return false;
    }
    if (c->o->recurse) {
        return true;
    }
    return !deep && (c->o->folders || !is_folder);
}

static void choose(struct choosing *c, uint32_t index, struct slice path)
{
    const struct list_entry *en = list_at(c->v->list, index);
    bool is_folder = list_type(en) == LIST_FOLDER;
    struct slice rel = slice_from(path, c->v->strip);

    if (list_type(en) == LIST_BLANK || !wanted(c, rel, is_folder) ||
        (c->out.n > 0 && slice_starts(rel, buf_slice(&c->out)))) {
        return;
    }
    if (!filter_takes(c->f, rel, is_folder)) {
        if (is_folder) {
            buf_clear(&c->out);
            buf_adds(&c->out, rel);
            buf_byte(&c->out, '/');
        }
        return;
    }
    c->v->at[c->v->count++] = index;
    c->v->size_bytes += list_type(en) == LIST_FILE ? en->size_bytes : 0;
}

int view_make(const struct file_list *l, struct slice path, const struct options *o,
              const struct filter *f, struct view *out, struct err *e)
{
    struct asked a;
    struct choosing c = {.v = out, .a = &a, .o = o, .f = f, .out = BUF_INIT(LIST_PATH_MAX + 2)};
    char room[LIST_PATH_MAX + 1];
    int rc = parse(path, &a, e);

    *out = (struct view){.list = l};
    if (rc != 0) {
        return rc;
    }
    out->at = mem_array((size_t)list_count(l) + 1, sizeof *out->at);
    out->strip = a.base.n > 0 ? a.base.n + 1 : 0;
    for (uint32_t i = 0; i < list_count(l); i++) {
        struct slice at = list_path(l, list_at(l, i), room);
        bool is_top = a.base.n > 0 ? slice_eq(at, a.base) : slice_eq(at, SLICE("."));
        if (is_top && a.pattern.n == 0 && list_type(list_at(l, i)) == LIST_FOLDER) {
            out->top = o->recurse || o->folders;
            out->at[0] = i;
            out->count = out->top;
        } else if (!is_top && below(at, a.base) && !slice_eq(at, SLICE("."))) {
            choose(&c, i, at);
        }
    }
    buf_free(&c.out);
    return out->count > 0 ? 0 : err_set(e, E_NOTFOUND, "No such file or directory (2)");
}

struct slice view_path(const struct view *v, uint32_t index, char *room)
{
    struct slice path;

    CHECK(index < v->count);
    if (v->top && index == 0) {
        return SLICE(".");
    }
    path = list_path(v->list, list_at(v->list, v->at[index]), room);
    return slice_from(path, v->strip);
}

void view_fini(struct view *v)
{
    free(v->at);
    *v = (struct view){.count = 0};
}
