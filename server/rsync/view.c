#include "server/rsync/view.h"

#include <stdlib.h>

#include "common/codec/glob.h"
#include "common/os/clock.h"
#include "server/rsync/stream.h"

/* --- a path, understood --- */

static bool has_glob(struct slice s)
{
    return slice_find(s, '*') >= 0 || slice_find(s, '?') >= 0 || slice_find(s, '[') >= 0;
}

static int elsewhere(struct err *e)
{
    return err_set(e, E_INVALID, "invalid path: it contains \"..\" or is too long");
}

static int add_view_part(struct ask *a, struct slice part, struct err *e)
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

/* Not relative: sent under its last part, or its contents under theirs. */
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
                               "wildcards are supported only in the last part of a path");
            out->contents = false;
        } else {
            rc = add_view_part(out, part, e);
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

/* As above, but ".." leads back as far as the base, as with the installed program where it serves a
 * module. */
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
            (void)!add_view_part(out, part, NULL); /* its length was seen to */
            out->contents = rest.n == 0 && folder;
        }
    }
    out->dotted = o->relative && dots == 1 && !marked && out->path_n > foot;
    if (!o->relative) {
        strip_way(out);
    }
    return 0;
}

enum { ROOM_FIRST = 256, NAMES_FEW = 4096, NAME_BYTES_MAX = 255 };

/* Of a budget: */
enum {
    STEPS_ENTRY = 8,    /* a path is put together */
    STEPS_COMPARE = 24, /* two are, and compared */
    STEPS_FIND = 512,   /* one is looked up */
};

/* --- entries of one path ---------------------------------------------------------------------- */

struct choosing {
    struct view *v;
    const struct ask *a;
    const struct client_options *o;
    const struct filter *f;
    size_t strip;
    size_t known; /* of the way to it: was sent with the name before */
    int rc;       /* of the budget */
    struct err *e;
};

/* False: no further, c->rc says why. */
static bool goes_on(void *arg, uint64_t steps)
{
    struct choosing *c = arg;

    c->rc = c->rc != 0 ? c->rc : budget_spend(c->v->budget, steps, c->e);
    return c->rc == 0;
}

static bool is_folder_at(const struct file_list *l, uint32_t at)
{
    return list_type(list_at(l, at)) == LIST_FOLDER;
}

static bool path_is_below(struct slice path, struct slice folder)
{
    return path.n > folder.n && memcmp(path.p, folder.p, folder.n) == 0 && path.p[folder.n] == '/';
}

/* The first entry that is not below this one. */
static uint32_t behind(struct choosing *c, uint32_t at)
{
    const struct file_list *l = c->v->list;
    char room[LIST_PATH_MAX + 1], top_room[LIST_PATH_MAX + 1];
    struct slice top = list_path(l, list_at(l, at), top_room);

    for (at++; at < list_count(l) && goes_on(c, STEPS_ENTRY); at++) {
        if (list_type(list_at(l, at)) != LIST_BLANK &&
            !path_is_below(list_path(l, list_at(l, at), room), top)) {
            break;
        }
    }
    return at;
}

static void add_view_entry(struct choosing *c, uint32_t at, unsigned say)
{
    struct view *v = c->v;

    if (v->count == v->room) {
        v->room = v->room > 0 ? v->room * 2 : ROOM_FIRST;
        v->entry = realloc(v->entry, v->room * sizeof *v->entry);
        CHECK(v->entry != NULL);
    }
    v->entry[v->count++] = (struct view_entry){at, (uint16_t)c->strip, (uint8_t)say};
}

static bool view_takes_path(struct choosing *c, struct slice path, bool is_folder)
{
    return goes_on(c, STEPS_ENTRY) &&
           filter_takes_while(c->f, slice_from(path, c->strip), is_folder, goes_on, c);
}

/* The entry and, when folders are entered, all below it that no rule leaves out. Returns the first
 * behind. */
static uint32_t put_tree(struct choosing *c, uint32_t at, unsigned say)
{
    const struct file_list *l = c->v->list;
    char room[LIST_PATH_MAX + 1], out[LIST_PATH_MAX + 1];
    struct slice top = list_path(l, list_at(l, at), room);
    struct slice left = SLICE_NONE; /* folder that was left out */
    bool is_folder = is_folder_at(l, at);
    bool in =
        view_takes_path(c, top, is_folder) && (!is_folder || c->o->folders != FOLDERS_PASSED_OVER);
    uint32_t end = is_folder ? behind(c, at) : at + 1;

    if (in) {
        add_view_entry(c, at, !is_folder ? 0 : c->o->folders == FOLDERS_ENTERED ? say : VIEW_BARE);
    }
    for (uint32_t i = at + 1;
         in && c->o->folders == FOLDERS_ENTERED && i < end && goes_on(c, STEPS_ENTRY); i++) {
        const struct list_entry *en = list_at(l, i);
        struct slice path = list_path(l, en, room);
        if (list_type(en) == LIST_BLANK || (left.p != NULL && path_is_below(path, left))) {
            continue;
        }
        if (view_takes_path(c, path, list_type(en) == LIST_FOLDER)) {
            add_view_entry(c, i, 0);
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

    for (uint32_t i = from + 1; i < list_count(l) && c->rc == 0;) {
        uint64_t steps = STEPS_ENTRY;
        struct slice path = list_path(l, list_at(l, i), room);
        struct slice name = list_name(l, list_at(l, i));
        if (folder.n > 0 && !path_is_below(path, folder)) {
            break;
        }
        if (list_type(list_at(l, i)) == LIST_BLANK) {
            i++;
        } else if (c->a->pattern.n > 0 && !glob_match_how(c->a->pattern, name, GLOB_PATH, &steps)) {
            i = behind(c, i);
        } else {
            i = put_tree(c, i, say);
        }
        (void)goes_on(c, steps);
    }
}

/* Relative: folders on the way, of whose contents only what follows is sent. */
static void put_way(struct choosing *c)
{
    uint32_t foot = 0;

    if (c->a->dotted &&
        (c->strip == 0 || list_find(c->v->list, slice_of(c->a->path, c->strip - 1), true, &foot))) {
        add_view_entry(c, foot, VIEW_TOP | VIEW_BARE | VIEW_DOT);
    }
    for (size_t i = (size_t)max_u64(c->a->strip + 1, c->known); i < c->a->path_n; i++) {
        uint32_t at;
        if (c->a->path[i] == '/' && goes_on(c, STEPS_FIND) &&
            list_find(c->v->list, slice_of(c->a->path, i), true, &at)) {
            add_view_entry(c, at, VIEW_TOP | VIEW_BARE);
        }
    }
}

/* As the system would say it of the path of a file. */
static int absent_view_path(const struct file_list *l, struct slice path, struct err *e)
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

/* The entry that the path names; *inside: for its contents. A file has no contents, and is sent
 * under its name. */
static bool find_view_path(struct choosing *c, uint32_t *at, bool *inside)
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
    bool reported = c->o->folders != FOLDERS_PASSED_OVER;
    uint32_t before = c->v->count;
    uint32_t at;
    bool inside;

    if (!goes_on(c, STEPS_FIND + a->path_n)) {
        return c->rc;
    }
    if (!find_view_path(c, &at, &inside)) {
        return a->named ? absent_view_path(c->v->list, slice_of(a->path, a->path_n), e)
                        : err_set(e, E_NOTFOUND, "No such file or directory (2)");
    }
    if (a->pattern.n == 0 && a->path_n > c->strip &&
        !view_takes_path(c, slice_of(a->path, a->path_n), is_folder_at(c->v->list, at))) {
        return c->rc; /* a rule excludes it: it is not missing, and its way is not sent */
    }
    if (c->o->relative) {
        put_way(c);
    }
    if (!inside) {
        (void)put_tree(c, at, VIEW_TOP);
    } else if (a->pattern.n > 0) {
        if (c->o->relative && a->path_n > a->strip) {
            add_view_entry(c, at, VIEW_TOP | VIEW_BARE);
        }
        put_children(c, at, VIEW_TOP);
    } else {
        if (reported) {
            add_view_entry(c, at, VIEW_TOP | (a->path_n > a->strip ? 0 : VIEW_DOT));
        }
        put_children(c, at, 0);
    }
    return c->rc != 0 ? c->rc
           : a->named || c->v->count > before
               ? 0
               : err_set(e, E_NOTFOUND, "No such file or directory (2)");
}

/* --- several paths ---------------------------------------------------------------------------- */

static struct slice reported(const struct view *v, const struct view_entry *x, char *room)
{
    if ((x->say & VIEW_DOT) != 0) {
        return SLICE(".");
    }
    return slice_from(list_path(v->list, list_at(v->list, x->at), room), x->strip);
}

static int compare_view_entries(const struct view *v, const struct view_entry *a,
                                const struct view_entry *b)
{
    char room_a[LIST_PATH_MAX + 1], room_b[LIST_PATH_MAX + 1];

    return list_compare(reported(v, a, room_a), is_folder_at(v->list, a->at),
                        reported(v, b, room_b), is_folder_at(v->list, b->at));
}

/* A folder that two paths tell: it has contents when it has with either, and is no more only on the
 * way. */
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

static int order(const struct view *v, const struct view_entry *a, const struct view_entry *b)
{
    return v->mixed ? compare_view_entries(v, a, b) : (a->at > b->at) - (a->at < b->at);
}

static uint64_t order_steps(const struct view *v)
{
    return v->mixed ? STEPS_COMPARE : 1;
}

/* Two runs that are in order, [from, half) and [half, end), become one in `to`; of equals the first
 * run's come first. */
static int merge_runs(const struct view *v, struct view_entry *to, size_t from, size_t half,
                      size_t end, struct err *e)
{
    size_t i = from, k = half;
    int rc = 0;

    for (size_t n = from; n < end && rc == 0; n++) {
        bool first = k == end || (i < half && order(v, &v->entry[i], &v->entry[k]) <= 0);
        to[n] = v->entry[first ? i++ : k++];
        rc = budget_spend(v->budget, order_steps(v), e);
    }
    return rc;
}

/* Into order, from runs of so many that are. When it fails the entries are in none. */
static int sort(struct view *v, size_t run, struct err *e)
{
    struct view_entry *to = mem_array((size_t)v->room + 1, sizeof *to);
    int rc = 0;

    for (; run < v->count && rc == 0; run *= 2) {
        struct view_entry *was = v->entry;
        for (size_t i = 0; i < v->count && rc == 0; i += 2 * run) {
            rc = merge_runs(v, to, i, (size_t)min_u64(i + run, v->count),
                            (size_t)min_u64(i + 2 * run, v->count), e);
        }
        v->entry = to;
        to = was;
    }
    free(to);
    return rc;
}

/* A name that several tell is the first's, and has contents when one of them has. */
static void tell_once(struct view *v)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < v->count; i++) {
        if (n > 0 && order(v, &v->entry[n - 1], &v->entry[i]) == 0) {
            v->entry[n - 1].say = (uint8_t)both(v->entry[n - 1].say, v->entry[i].say);
        } else {
            v->entry[n++] = v->entry[i];
        }
    }
    v->count = n;
}

/* Both halves are in order. */
static int merge(struct view *v, uint32_t half, struct err *e)
{
    struct view_entry *all = mem_array((size_t)v->room + 1, sizeof *all);
    int rc = merge_runs(v, all, 0, half, v->count, e);

    free(v->entry);
    v->entry = all;
    if (rc == 0) {
        tell_once(v);
    }
    return rc;
}

void view_init(struct view *v, const struct file_list *l, struct budget *budget)
{
    *v = (struct view){.list = l, .budget = budget};
}

int view_add(struct view *v, const struct ask *a, const struct client_options *o,
             const struct filter *f, struct err *e)
{
    struct choosing c = {.v = v, .a = a, .o = o, .f = f, .strip = a->strip, .e = e};
    uint32_t half = v->count;
    int rc;

    if (half > list_count(v->list) * 2) {
        return err_set(e, E_TOOBIG, "the paths name the same files too many times");
    }
    rc = put_asked(&c, e);
    if (rc == 0 && half > 0) {
        v->mixed = true;
        rc = merge(v, half, e);
    }
    return rc;
}

/* --- many names ------------------------------------------------------------------------------- */

int view_settle(struct view *v, struct err *e)
{
    int rc;

    if (v->settled == v->count) {
        return 0;
    }
    rc = sort(v, 1, e);
    if (rc == 0) {
        tell_once(v);
        v->settled = v->count;
    }
    return rc;
}

/* Names are mostly ordered by folders: the part of the way that the previous name had need not be
 * sent again. */
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

/* Sorted when as much has come as the list has entries: no name costs that alone, and memory has a
 * bound. */
int view_add_name(struct view *v, const struct ask *a, const struct client_options *o,
                  const struct filter *f, struct err *e)
{
    bool mixed = v->mixed;
    struct choosing c = {
        .v = v, .a = a, .o = o, .f = f, .strip = a->strip, .known = way_shared(v, a), .e = e};
    uint32_t before = v->count;
    int rc = put_asked(&c, e);

    /* A name for which nothing was sent shares no way with the next one. */
    if (rc != 0 || v->count == before) {
        v->mixed = mixed;
        return rc;
    }
    memcpy(v->last, a->path, a->path_n);
    v->last_n = a->path_n;
    v->strip = a->strip;
    if (v->count - v->settled > list_count(v->list) + NAMES_FEW) {
        rc = view_settle(v, e);
    }
    if (rc != 0) {
        return rc;
    }
    if (v->settled > list_count(v->list) * 2 + NAMES_FEW) {
        return err_set(e, E_TOOBIG, "the names in the list are the same files too many times");
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
    return reported(v, &v->entry[index], room);
}

/* --- hard links ------------------------------------------------------------------------------- */

enum { HAS_MEMBERS = -3 }; /* of a group of which none was sent yet */

static void find_groups(struct view *v)
{
    for (uint32_t i = 0; i < v->count; i++) {
        int32_t first = list_leader(v->list, view_at(v, i));
        if (first == LIST_NONE) {
            continue;
        }
        if (v->group == NULL) {
            v->group = mem_array(list_count(v->list), sizeof *v->group);
            for (uint32_t k = 0; k < list_count(v->list); k++) {
                v->group[k] = VIEW_LINK_NONE;
            }
        }
        v->group[first] = HAS_MEMBERS;
    }
}

int32_t view_link(struct view *v, uint32_t index)
{
    int32_t first;
    int32_t was;

    if (index == 0) {
        find_groups(v);
    }
    if (v->group == NULL) {
        return VIEW_LINK_NONE;
    }
    first = list_leader(v->list, view_at(v, index));
    first = first == LIST_NONE ? (int32_t)v->entry[index].at : first;
    was = v->group[first];
    if (was == HAS_MEMBERS) {
        v->group[first] = (int32_t)index;
        return VIEW_LINK_FIRST;
    }
    return was;
}

/* --- all of it -------------------------------------------------------------------------------- */

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
    free(v->group);
    *v = (struct view){.count = 0};
}

/* --- -C (--cvs-exclude) ---
 *
 * What a client's -C (--cvs-exclude) leaves out of a view.
 *
 * These are the names of files that CVS ignores by itself, as rules after the client's own. The
 * installed server reads more such names from .cvsignore files in the tree. No file of a tree is
 * read for rules here, so a view that one of them would narrow is refused.
 *
 * threads  any
 * errors   E_UNSUPPORTED: a .cvsignore file concerns the view; E_TOOBIG: too many rules, or the
 *          budget is spent
 * source   rsync(1), -C
 */

enum { CVS_ENTRY_STEPS = 8 }; /* of a budget: an entry of a list is looked at */

static const char *const ignored[] = {
    "RCS",         "SCCS",         "CVS",   "CVS.adm", "RCSLOG", "cvslog.*", "tags", "TAGS",
    ".make.state", ".nse_depinfo", "*~",    "#*",      ".#*",    ",*",       "_$*",  "*$",
    "*.old",       "*.bak",        "*.BAK", "*.orig",  "*.rej",  ".del-*",   "*.a",  "*.olb",
    "*.o",         "*.obj",        "*.so",  "*.exe",   "*.Z",    "*.elc",    "*.ln", "core",
    ".svn/",       ".git/",        ".hg/",  ".bzr/",
};

static int cvs_rules(struct filter *f, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; i < ARRAY_LEN(ignored) && rc == 0; i++) {
        struct buf rule = BUF_INIT(32);
        buf_addf(&rule, "- %s", ignored[i]);
        rc = filter_add(f, buf_slice(&rule), e);
        buf_free(&rule);
    }
    return rc;
}

/* Is an entry of the view in that folder? */
static int concerns(const struct view *v, struct slice folder, struct err *e)
{
    for (uint32_t i = 0; i < v->count; i++) {
        int rc = budget_spend(v->budget, CVS_ENTRY_STEPS, e);
        if (rc != 0) {
            return rc;
        }
        if (slice_eq(list_folder(v->list, view_at(v, i)), folder)) {
            return err_set(
                e, E_UNSUPPORTED,
                "-C is not supported for this tree: its .cvsignore files are not read as "
                "rules; pass the rules with --exclude");
        }
    }
    return 0;
}

static int cvs_judge(const struct view *v, struct err *e)
{
    int rc = 0;

    for (uint32_t i = 0; i < list_count(v->list) && rc == 0; i++) {
        const struct list_entry *en = list_at(v->list, i);
        rc = budget_spend(v->budget, 1, e);
        if (rc == 0 && (list_type(en) == LIST_FILE || list_type(en) == LIST_LINK) &&
            slice_eqs(list_name(v->list, en), ".cvsignore")) {
            rc = concerns(v, list_folder(v->list, en), e);
        }
    }
    return rc;
}

/* --- what a client chooses ---
 *
 * The part of a module that a client requests: the paths of its arguments, or a list of names
 * that it sends (--files-from).
 *
 * Names end with a NUL, the list with an empty name; before protocol 31 they are between the
 * frames, not in them. A missing path is reported, and the others are served; a forbidden one
 * refuses the whole request. A list has limits: CHOICE_BYTES_MAX, and CHOICE_STALLS times the
 * stall from its first byte to its last.
 *
 * owns     the view; view_fini() is the caller's
 * threads  its session's own; blocks
 * errors   E_DENIED, E_INVALID, E_TOOBIG, E_NOTFOUND: report it to the client, with exit_code;
 *          E_TIMEOUT too, while it sends names; those of the stream
 * source   sessions of the installed client and server */

enum { CHOICE_BYTES_MAX = 256 << 20, CHOICE_STALLS = 10 };
enum { NAME_STEPS = 64 }; /* of a budget: a name is read and understood */

/* The paths of a client's arguments are its module's, with that in front. */
static int cut_module(struct view_choice *c, struct slice *path, struct err *e)
{
    struct slice module = slice_cut(path, '/');

    return slice_eqs(module, c->module) ? 0
                                        : err_set(e, E_INVALID, "the path is outside this module");
}

static int tell_missing(struct view_choice *c, const char *before, struct slice path,
                        const struct err *why, struct err *e)
{
    struct buf text = BUF_INIT(MUX_TEXT_MAX);

    c->io_error |= why->code != E_NOTFOUND;
    if (why->code == E_NOTFOUND && c->options->absent_is_fine) {
        return 0;
    }
    c->missing = true;
    buf_addf(&text, "rsync: [sender] link_stat \"%s", before);
    buf_adds(&text, path);
    buf_addf(&text, "\" (in %s) failed: %s\n", c->module, why->text);
    stream_message(c->stream, MUX_ERROR_XFER, buf_slice(&text));
    buf_free(&text);
    return stream_push(c->stream, e);
}

static int allowed(const struct view_choice *c, const struct ask *a, struct err *e)
{
    return c->reads(c->arg, slice_of(a->path, a->path_n))
               ? 0
               : err_set(e, E_DENIED, "no permission to read this path");
}

static bool is_absent(int rc)
{
    return rc == E_NOTFOUND || rc == E_INVALID;
}

/* --- arguments -------------------------------------------------------------------------------- */

static int add_paths(struct view_choice *c, struct err *e)
{
    struct slice rest = c->options->paths;
    int rc = 0;

    while (rest.n > 0 && rc == 0) {
        struct slice path = slice_cut(&rest, '\0');
        struct ask a;
        rc = cut_module(c, &path, e);
        if (rc != 0) {
            return rc;
        }
        rc = ask_path(path, c->options, &a, e);
        rc = rc != 0 ? rc : allowed(c, &a, e);
        rc = rc != 0 ? rc : view_add(&c->view, &a, c->options, c->filter, e);
        if (is_absent(rc)) {
            const struct err why = *e;
            rc = tell_missing(c, "", path, &why, e);
        }
    }
    return rc;
}

/* --- names ------------------------------------------------------------------------------------ */

/* The folder that all names stand in: one path, and without it there is nothing to do. */
static int find_base(struct view_choice *c, struct ask *base, struct err *e)
{
    static const struct client_options plain = {.relative = false};
    struct slice rest = c->options->paths;
    struct slice path = slice_cut(&rest, '\0');
    const char *why;
    uint32_t at;
    int rc = cut_module(c, &path, e);

    rc = rc != 0 ? rc : ask_path(path, &plain, base, e);
    if (rc != 0) {
        return rc;
    }
    if (rest.n > 0 || base->pattern.n > 0) {
        return err_set(e, E_INVALID, "a list of names needs exactly one folder as its source");
    }
    if (base->path_n == 0) { /* of the module itself each name is judged alone */
        return 0;
    }
    rc = allowed(c, base, e);
    if (rc != 0 || list_find(c->view.list, slice_of(base->path, base->path_n), true, &at)) {
        return rc;
    }
    why = list_find(c->view.list, slice_of(base->path, base->path_n), false, &at)
              ? "Not a directory (20)"
              : "No such file or directory (2)";
    c->exit_code = CHOICE_EXIT_SELECTING;
    return err_set(e, E_NOTFOUND, "rsync: [sender] change_dir \"" SLICE_FMT "\" (in %s) failed: %s",
                   SLICE_ARG(slice_of(base->path, base->path_n)), c->module, why);
}

static int add_view_name(struct view_choice *c, const struct ask *base, struct slice name,
                         struct err *e)
{
    struct err why = {.code = 0};
    struct ask a;
    int rc = ask_name(base, name, c->options, &a, &why);

    if (rc != 0) {
        return tell_missing(c, "", name, &why, e);
    }
    rc = allowed(c, &a, &why);
    rc = rc != 0 ? rc : view_add_name(&c->view, &a, c->options, c->filter, &why);
    if (is_absent(rc)) {
        return tell_missing(c, base->path_n > 0 ? "/" : "", slice_of(a.path, a.path_n), &why, e);
    }
    if (rc != 0) {
        *e = why;
    }
    return rc;
}

/* The time of each is looked at: a list that comes slowly ends as one that does not end. */
static int next_name(struct view_choice *c, struct buf *name, uint64_t *left, struct err *e)
{
    int rc = stream_until(c->stream, '\0', name, left, e);

    if (rc == E_TOOBIG) {
        return err_set(e, rc, "the list of names is longer than %d MiB; split it",
                       CHOICE_BYTES_MAX >> 20);
    }
    if (rc == E_TIMEOUT) {
        c->exit_code = CHOICE_EXIT_TIMEOUT;
        return err_set(e, rc, "the list of names did not end in time");
    }
    return rc != 0 ? rc : budget_spend(c->budget, NAME_STEPS + name->n, e);
}

static int choice_read_names(struct view_choice *c, const struct ask *base, struct err *e)
{
    static const struct err too_long = {.code = E_INVALID, .text = "File name too long (36)"};
    struct buf name = BUF_INIT(LIST_PATH_MAX);
    uint64_t left = CHOICE_BYTES_MAX;
    int rc;

    while ((rc = next_name(c, &name, &left, e)) == 0 && (name.n > 0 || name.rc != 0)) {
        rc = name.rc == 0 ? add_view_name(c, base, buf_slice(&name), e)
                          : tell_missing(c, "...", SLICE_NONE, &too_long, e);
        if (rc != 0) {
            break;
        }
    }
    buf_free(&name);
    return rc;
}

static int add_view_names(struct view_choice *c, struct err *e)
{
    bool bare = c->version < 31;
    struct ask base;
    int rc = bare ? stream_bare(c->stream, true, e) : 0;

    rc = rc != 0 ? rc : find_base(c, &base, e);
    c->stream->deadline_ms = clock_now_ms() + (uint64_t)c->stream->stall_ms * CHOICE_STALLS;
    rc = rc != 0 ? rc : choice_read_names(c, &base, e);
    if (rc == 0 && bare) {
        rc = stream_bare(c->stream, false, e);
    }
    return rc != 0 ? rc : view_settle(&c->view, e);
}

int view_choose(struct view_choice *c, const struct file_list *l, struct err *e)
{
    bool cvs = c->options->cvs;
    int rc;

    c->exit_code = CHOICE_EXIT_REFUSED;
    view_init(&c->view, l, c->budget);
    rc = cvs ? cvs_rules(c->filter, e) : 0;
    if (rc == 0) {
        rc = c->options->names ? add_view_names(c, e) : add_paths(c, e);
    }
    return rc != 0 || !cvs ? rc : cvs_judge(&c->view, e);
}
