#include "server/rsync/view.h"

#include <stdlib.h>

#include "common/codec/glob.h"

enum { ROOM_FIRST = 256, NAMES_FEW = 4096, NAME_BYTES_MAX = 255 };

/* --- entries of one path -------------------------------------------------------------------------------------------------- */

struct choosing {
    struct view *v;
    const struct ask *a;
    const struct options *o;
    const struct filter *f;
    size_t strip;
    size_t known; /* of the way to it: was told with the name before */
};

static bool is_folder_at(const struct file_list *l, uint32_t at)
{
    return list_type(list_at(l, at)) == LIST_FOLDER;
}

static bool below(struct slice path, struct slice folder)
{
    return path.n > folder.n && memcmp(path.p, folder.p, folder.n) == 0 && path.p[folder.n] == '/';
}

/* The first entry that is not below this one. */
static uint32_t behind(const struct file_list *l, uint32_t at)
{
    char room[LIST_PATH_MAX + 1], top_room[LIST_PATH_MAX + 1];
    struct slice top = list_path(l, list_at(l, at), top_room);

    for (at++; at < list_count(l); at++) {
        if (list_type(list_at(l, at)) != LIST_BLANK &&
            !below(list_path(l, list_at(l, at), room), top)) {
            break;
        }
    }
    return at;
}

static void put(struct choosing *c, uint32_t at, unsigned say)
{
    struct view *v = c->v;

    if (v->count == v->room) {
        v->room = v->room > 0 ? v->room * 2 : ROOM_FIRST;
        v->entry = realloc(v->entry, v->room * sizeof *v->entry);
        CHECK(v->entry != NULL);
    }
    v->entry[v->count++] = (struct view_entry){at, (uint16_t)c->strip, (uint8_t)say};
}

static bool takes(const struct choosing *c, struct slice path, bool is_folder)
{
    return filter_takes(c->f, slice_from(path, c->strip), is_folder);
}

/* The entry and, when folders are entered, all below it that no rule leaves out. Returns the first behind. */
static uint32_t put_tree(struct choosing *c, uint32_t at, unsigned say)
{
    const struct file_list *l = c->v->list;
    char room[LIST_PATH_MAX + 1], out[LIST_PATH_MAX + 1];
    struct slice top = list_path(l, list_at(l, at), room);
    struct slice left = SLICE_NONE; /* folder that was left out */
    bool is_folder = is_folder_at(l, at);
    bool in = takes(c, top, is_folder) && (!is_folder || c->o->recurse || c->o->folders);
    uint32_t end = is_folder ? behind(l, at) : at + 1;

    if (in) {
        put(c, at, !is_folder ? 0 : c->o->recurse ? say : VIEW_BARE);
    }
    for (uint32_t i = at + 1; in && c->o->recurse && i < end; i++) {
        const struct list_entry *en = list_at(l, i);
        struct slice path = list_path(l, en, room);
        if (list_type(en) == LIST_BLANK || (left.p != NULL && below(path, left))) {
            continue;
        }
        if (takes(c, path, list_type(en) == LIST_FOLDER)) {
            put(c, i, 0);
        } else if (list_type(en) == LIST_FOLDER) {
            memcpy(out, path.p, path.n);
            left = slice_of(out, path.n);
        }
    }
    return end;
}

/* What is in the folder at `from`, and fits the pattern when there is one. */
static void put_children(struct choosing *c, uint32_t from, unsigned say)
{
    const struct file_list *l = c->v->list;
    struct slice folder = slice_of(c->a->path, c->a->path_n);
    char room[LIST_PATH_MAX + 1];

    for (uint32_t i = from + 1; i < list_count(l);) {
        struct slice path = list_path(l, list_at(l, i), room);
        struct slice name = list_name(l, list_at(l, i));
        if (folder.n > 0 && !below(path, folder)) {
            break;
        }
        if (list_type(list_at(l, i)) == LIST_BLANK) {
            i++;
        } else if (c->a->pattern.n > 0 && !glob_match(c->a->pattern, name)) {
            i = behind(l, i);
        } else {
            i = put_tree(c, i, say);
        }
    }
}

/* Relative: folders on the way, of whose contents only what follows is told. */
static void put_way(struct choosing *c)
{
    uint32_t foot = 0;

    if (c->a->dotted &&
        (c->strip == 0 || list_find(c->v->list, slice_of(c->a->path, c->strip - 1), true, &foot))) {
        put(c, foot, VIEW_TOP | VIEW_BARE | VIEW_DOT);
    }
    for (size_t i = (size_t)max_u64(c->a->strip + 1, c->known); i < c->a->path_n; i++) {
        uint32_t at;
        if (c->a->path[i] == '/' && list_find(c->v->list, slice_of(c->a->path, i), true, &at)) {
            put(c, at, VIEW_TOP | VIEW_BARE);
        }
    }
}

/* As the system would say it of the path of a file. */
static int absent(const struct file_list *l, struct slice path, struct err *e)
{
    uint32_t at;
    size_t from = 0;

    for (size_t i = 0; i <= path.n; i++) {
        if (i < path.n && path.p[i] != '/') {
            continue;
        }
        if (i - from > NAME_BYTES_MAX) {
            return err_set(e, E_INVALID, "File name too long (36)");
        }
        if (!list_find(l, slice_first(path, i), true, &at)) {
            return list_find(l, slice_first(path, i), false, &at)
                       ? err_set(e, E_INVALID, "Not a directory (20)")
                       : err_set(e, E_NOTFOUND, "No such file or directory (2)");
        }
        from = i + 1;
    }
    return err_set(e, E_NOTFOUND, "No such file or directory (2)");
}

/* What the path stands for; *inside: for what is in that. A file has nothing in it, and is told by its name. */
static bool find(struct choosing *c, uint32_t *at, bool *inside)
{
    const struct ask *a = c->a;
    const struct file_list *l = c->v->list;
    struct slice path = slice_of(a->path, a->path_n);

    *inside = a->contents || a->pattern.n > 0;
    *at = 0;
    if (path.n == 0) {
        return list_count(l) > 0;
    }
    if ((!*inside || a->named) && list_find(l, path, false, at) &&
        (!*inside || list_type(list_at(l, *at)) == LIST_FILE)) { /* no link is followed */
        *inside = false;
        while (c->strip > path.n || (c->strip > 0 && path.p[c->strip - 1] != '/')) {
            c->strip--;
        }
        return true;
    }
    return list_find(l, path, true, at);
}

static int put_asked(struct choosing *c, struct err *e)
{
    const struct ask *a = c->a;
    bool told = c->o->recurse || c->o->folders;
    uint32_t before = c->v->count;
    uint32_t at;
    bool inside;

    if (!find(c, &at, &inside)) {
        return a->named ? absent(c->v->list, slice_of(a->path, a->path_n), e)
                        : err_set(e, E_NOTFOUND, "No such file or directory (2)");
    }
    if (a->pattern.n == 0 && a->path_n > c->strip &&
        !takes(c, slice_of(a->path, a->path_n), is_folder_at(c->v->list, at))) {
        return 0; /* a rule leaves it out: it is not missing, and its way is not told */
    }
    if (c->o->relative) {
        put_way(c);
    }
    if (!inside) {
        (void)put_tree(c, at, VIEW_TOP);
    } else if (a->pattern.n > 0) {
        if (c->o->relative && a->path_n > a->strip) {
            put(c, at, VIEW_TOP | VIEW_BARE);
        }
        put_children(c, at, VIEW_TOP);
    } else {
        if (told) {
            put(c, at, VIEW_TOP | (a->path_n > a->strip ? 0 : VIEW_DOT));
        }
        put_children(c, at, 0);
    }
    return a->named || c->v->count > before
               ? 0
               : err_set(e, E_NOTFOUND, "No such file or directory (2)");
}

/* --- several paths ---------------------------------------------------------------------------------------------------------- */

static struct slice told(const struct view *v, const struct view_entry *x, char *room)
{
    if ((x->say & VIEW_DOT) != 0) {
        return SLICE(".");
    }
    return slice_from(list_path(v->list, list_at(v->list, x->at), room), x->strip);
}

static int compare(const struct view *v, const struct view_entry *a, const struct view_entry *b)
{
    char room_a[LIST_PATH_MAX + 1], room_b[LIST_PATH_MAX + 1];

    return list_compare(told(v, a, room_a), is_folder_at(v->list, a->at), told(v, b, room_b),
                        is_folder_at(v->list, b->at));
}

/* A folder that two paths tell: it has contents when it has with either, and is no more only on the way. */
static unsigned both(unsigned a, unsigned b)
{
    unsigned dot = (a | b) & VIEW_DOT;

    if ((a & b & VIEW_BARE) != 0) {
        return VIEW_BARE | dot | (a & b & VIEW_TOP);
    }
    return dot | ((a & VIEW_BARE) != 0   ? b & VIEW_TOP
                  : (b & VIEW_BARE) != 0 ? a & VIEW_TOP
                                         : (a | b) & VIEW_TOP);
}

/* Both halves are in order; a name that both tell is the first's, and has contents when either has. */
static void merge(struct view *v, uint32_t half)
{
    struct view_entry *all = mem_array((size_t)v->count + 1, sizeof *all);
    uint32_t i = 0, k = half, n = 0;

    while (i < half || k < v->count) {
        int c = i == half ? 1 : k == v->count ? -1 : compare(v, &v->entry[i], &v->entry[k]);
        all[n++] = c <= 0 ? v->entry[i++] : v->entry[k++];
        if (c == 0) {
            all[n - 1].say = (uint8_t)both(all[n - 1].say, v->entry[k].say);
            k++;
        }
    }
    free(v->entry);
    v->entry = all;
    v->room = v->count + 1;
    v->count = n;
}

void view_init(struct view *v, const struct file_list *l)
{
    *v = (struct view){.list = l};
}

int view_add(struct view *v, const struct ask *a, const struct options *o, const struct filter *f,
             struct err *e)
{
    struct choosing c = {v, a, o, f, a->strip, 0};
    uint32_t half = v->count;
    int rc;

    if (half > list_count(v->list) * 2) {
        return err_set(e, E_TOOBIG, "those paths are the same files again and again");
    }
    rc = put_asked(&c, e);
    if (rc == 0 && half > 0) {
        merge(v, half);
    }
    return rc;
}

/* --- many names ----------------------------------------------------------------------------------------------------------- */

struct placed {
    struct view_entry x;
    uint32_t came;
};

static int compare_placed(const void *x, const void *y, void *arg)
{
    const struct view *v = arg;
    const struct placed *a = x, *b = y;
    int c = v->mixed ? compare(v, &a->x, &b->x) : (a->x.at > b->x.at) - (a->x.at < b->x.at);

    return c != 0 ? c : (a->came > b->came) - (a->came < b->came);
}

static bool told_alike(const struct view *v, const struct view_entry *a, const struct view_entry *b)
{
    return v->mixed ? compare(v, a, b) == 0 : a->at == b->at;
}

void view_settle(struct view *v)
{
    struct placed *all;
    uint32_t n = 0;

    if (v->settled == v->count) {
        return;
    }
    all = mem_array(v->count, sizeof *all);
    for (uint32_t i = 0; i < v->count; i++) {
        all[i] = (struct placed){v->entry[i], i};
    }
    qsort_r(all, v->count, sizeof *all, compare_placed, v);
    for (uint32_t i = 0; i < v->count; i++) {
        if (n > 0 && told_alike(v, &v->entry[n - 1], &all[i].x)) {
            v->entry[n - 1].say = (uint8_t)both(v->entry[n - 1].say, all[i].x.say);
        } else {
            v->entry[n++] = all[i].x;
        }
    }
    free(all);
    v->count = v->settled = n;
}

/* Names come mostly by folders: what of the way the one before had too need not be told again. */
static size_t way_shared(struct view *v, const struct ask *a)
{
    size_t n = 0;

    while (n < v->last_n && n < a->path_n && v->last[n] == a->path[n]) {
        n++;
    }
    if (v->count > 0 && (v->strip != a->strip || n + 1 < a->strip)) {
        v->mixed = true;
        n = 0;
    }
    return v->count > 0 ? n : 0;
}

/* Sorted when as much has come as the list has entries: no name costs that alone, and memory has a bound. */
int view_add_name(struct view *v, const struct ask *a, const struct options *o,
                  const struct filter *f, struct err *e)
{
    bool mixed = v->mixed;
    struct choosing c = {v, a, o, f, a->strip, way_shared(v, a)};
    uint32_t before = v->count;
    int rc = put_asked(&c, e);

    /* A name that nothing was told for shares no way with the next one. */
    if (rc != 0 || v->count == before) {
        v->mixed = mixed;
        return rc;
    }
    memcpy(v->last, a->path, a->path_n);
    v->last_n = a->path_n;
    v->strip = a->strip;
    if (v->count - v->settled > list_count(v->list) + NAMES_FEW) {
        view_settle(v);
    }
    if (v->settled > list_count(v->list) * 2 + NAMES_FEW) {
        return err_set(e, E_TOOBIG, "those names are the same files again and again");
    }
    return 0;
}

const struct list_entry *view_at(const struct view *v, uint32_t index)
{
    CHECK(index < v->count);
    return list_at(v->list, v->entry[index].at);
}

struct slice view_path(const struct view *v, uint32_t index, char *room)
{
    CHECK(index < v->count);
    return told(v, &v->entry[index], room);
}

uint64_t view_size_bytes(const struct view *v)
{
    uint64_t all = 0;

    for (uint32_t i = 0; i < v->count; i++) {
        const struct list_entry *en = view_at(v, i);
        all += list_type(en) == LIST_FILE ? en->size_bytes : 0;
    }
    return all;
}

void view_fini(struct view *v)
{
    free(v->entry);
    *v = (struct view){.count = 0};
}
