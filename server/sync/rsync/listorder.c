#include "server/sync/rsync/list.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "server/sync/rsync/listpriv.h"

/* --- the order of both ends: at each level what is no folder first, then folders, by bytes; a folder's name ends in '/' ---- */

struct key {
    struct slice folder;
    struct slice name;
    bool is_folder;
};

static int sign(int a, int b)
{
    return a < b ? -1 : a > b;
}

static int byte_at(struct slice s, size_t i, int end)
{
    return i < s.n ? (unsigned char)s.p[i] : end;
}

/* By bytes; `end_*` stands behind each. */
static int compare_ended(struct slice a, int end_a, struct slice b, int end_b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n != 0 ? memcmp(a.p, b.p, n) : 0;

    return c != 0 ? sign(c, 0) : sign(byte_at(a, n, end_a), byte_at(b, n, end_b));
}

/* Entries of one folder. */
static int compare_names(const struct key *a, const struct key *b)
{
    if (a->is_folder != b->is_folder) {
        return a->is_folder ? 1 : -1;
    }
    return a->is_folder ? compare_ended(a->name, '/', b->name, '/')
                        : compare_ended(a->name, -1, b->name, -1);
}

/* `a` stands in a folder that b's folder lies in: against the part of b's folder that is beside it. */
static int compare_above(const struct key *a, struct slice b_folder)
{
    size_t from = a->folder.n != 0 ? a->folder.n + 1 : 0;
    struct slice rest = slice_from(b_folder, from);
    struct slice part = slice_cut(&rest, '/');
    int c;

    if (!a->is_folder) {
        return -1;
    }
    c = compare_ended(a->name, '/', part, '/');
    return c != 0 ? c : -1; /* the folder itself before what is in it */
}

static bool lies_in(struct slice inner, struct slice outer, size_t shared)
{
    return shared == outer.n && (outer.n == 0 || (inner.n > shared && inner.p[shared] == '/'));
}

static bool is_top(const struct key *k)
{
    return k->folder.n == 0 && slice_eq(k->name, SLICE("."));
}

static int compare_keys(const struct key *a, const struct key *b)
{
    size_t least = a->folder.n < b->folder.n ? a->folder.n : b->folder.n;
    size_t i = 0;

    if (is_top(a) || is_top(b)) {
        return sign(is_top(b), is_top(a));
    }
    if (a->folder.p == b->folder.p) { /* one text */
        return compare_names(a, b);
    }
    while (i < least && a->folder.p[i] == b->folder.p[i]) {
        i++;
    }
    if (i == a->folder.n && i == b->folder.n) {
        return compare_names(a, b);
    }
    if (lies_in(b->folder, a->folder, i)) {
        return compare_above(a, b->folder);
    }
    if (lies_in(a->folder, b->folder, i)) {
        return -compare_above(b, a->folder);
    }
    return sign(byte_at(a->folder, i, '/'), byte_at(b->folder, i, '/'));
}

static struct key key_of_path(struct slice path, bool is_folder)
{
    size_t cut = slice_behind(path, '/');

    return (struct key){slice_first(path, cut > 0 ? cut - 1 : 0), slice_from(path, cut), is_folder};
}

int list_compare(struct slice a, bool a_folder, struct slice b, bool b_folder)
{
    struct key x = key_of_path(a, a_folder);
    struct key y = key_of_path(b, b_folder);

    return compare_keys(&x, &y);
}

static struct key key_of(const struct file_list *l, const struct list_entry *en)
{
    return (struct key){list_counted(l, en->folder), list_name(l, en), S_ISDIR(en->mode)};
}

static int compare(const void *x, const void *y, void *arg)
{
    const struct file_list *l = arg;
    uint32_t i = *(const uint32_t *)x;
    uint32_t j = *(const uint32_t *)y;
    struct key a = key_of(l, list_arrived(l, i));
    struct key b = key_of(l, list_arrived(l, j));
    int c = compare_keys(&a, &b);

    return c != 0 ? c : (i > j) - (i < j);
}

bool list_find(const struct file_list *l, struct slice path, bool is_folder, uint32_t *index)
{
    struct key want = key_of_path(path, is_folder);
    uint32_t low = 0;
    uint32_t high = l->count;

    CHECK(l->order != NULL);
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        struct key have = key_of(l, list_at(l, mid));
        int c = compare_keys(&have, &want);
        if (c == 0) {
            *index = mid;
            return list_type(list_at(l, mid)) != LIST_BLANK;
        }
        *(c < 0 ? &low : &high) = c < 0 ? mid + 1 : mid;
    }
    return false;
}

/* --- second entries of a name are blanked, links find their leaders' new places ------------------------------------------ */

static void blank_doubles(struct file_list *l)
{
    struct list_entry *kept = NULL;

    for (uint32_t i = 0; i < l->count; i++) {
        struct list_entry *en = list_arrived(l, l->order[i]);
        struct key a = kept != NULL ? key_of(l, kept) : (struct key){.is_folder = false};
        struct key b = key_of(l, en);
        if (kept != NULL && compare_keys(&a, &b) == 0) {
            en->mode = 0;
        } else {
            kept = en;
        }
    }
}

static void place_leaders(struct file_list *l)
{
    int32_t *place = mem_array((size_t)l->count + 1, sizeof *place); /* arrival -> index */
    uint32_t kept = 0;

    for (uint32_t i = 0; i < l->count; i++) {
        kept = list_arrived(l, l->order[i])->mode != 0 ? i : kept;
        place[l->order[i]] = (int32_t)kept; /* who follows a blank follows the one that was kept */
    }
    for (uint32_t i = 0; i < l->count; i++) {
        struct list_entry *en = list_arrived(l, i);
        if (en->leader != LIST_NONE) {
            en->leader = place[en->leader];
        }
    }
    free(place);
}

/* May `first` lead it? Of links, both must say the same. */
static bool leads(const struct file_list *l, const struct list_entry *first,
                  const struct list_entry *en)
{
    return first->leader == LIST_NONE && list_type(first) == list_type(en) &&
           (list_type(en) == LIST_FILE ||
            (list_type(en) == LIST_LINK && slice_eq(list_target(l, first), list_target(l, en))));
}

/* Where a double took the leader's place, that one may be another thing, or follow another: then each stands alone. */
static void drop_odd_leaders(struct file_list *l)
{
    for (uint32_t i = 0; i < l->count; i++) {
        struct list_entry *en = list_arrived(l, i);
        if (en->leader != LIST_NONE && !leads(l, list_at(l, (uint32_t)en->leader), en)) {
            en->leader = LIST_NONE;
        }
    }
}

/* Peers name as leader what their folders gave first, which may be another one tomorrow: here it is the first of the order. */
static void let_first_lead(struct file_list *l)
{
    int32_t *first =
        mem_array((size_t)l->count + 1, sizeof *first); /* by leader, + 1; 0: its own */

    for (uint32_t i = 0; i < l->count; i++) {
        struct list_entry *en = list_arrived(l, l->order[i]);
        int32_t old = en->leader;
        if (list_leader(l, en) == LIST_NONE) {
            continue;
        }
        if (first[old] == 0) {
            first[old] = (old < (int32_t)i ? old : (int32_t)i) + 1;
        }
        en->leader = first[old] - 1 != (int32_t)i ? first[old] - 1 : LIST_NONE;
    }
    for (uint32_t i = 0; i < l->count; i++) {
        if (first[i] != 0 && first[i] - 1 != (int32_t)i) {
            list_arrived(l, l->order[i])->leader = first[i] - 1;
        }
    }
    free(first);
}

int list_sort(struct file_list *l, struct err *e)
{
    bool sorted = true;

    CHECK(l->order == NULL);
    l->order = malloc(((size_t)l->count + 1) * sizeof *l->order);
    if (l->order == NULL) {
        return err_set(e, E_TOOBIG, "no memory for a list of %u entries", (unsigned)l->count);
    }
    for (uint32_t i = 0; i < l->count; i++) {
        l->order[i] = i;
        sorted = sorted && (i == 0 || compare(&l->order[i - 1], &l->order[i], l) < 0);
    }
    if (!sorted) {
        qsort_r(l->order, l->count, sizeof *l->order, compare, l);
    }
    blank_doubles(l);
    if (l->led) {
        place_leaders(l);
        drop_odd_leaders(l);
        let_first_lead(l);
    }
    return 0;
}

/* --- looking at it ------------------------------------------------------------------------------------------------------- */

uint32_t list_count(const struct file_list *l)
{
    return l->count;
}

int32_t list_io_error(const struct file_list *l)
{
    return l->io_error;
}

const struct list_entry *list_at(const struct file_list *l, uint32_t index)
{
    CHECK(index < l->count);
    return list_arrived(l, l->order != NULL ? l->order[index] : index);
}

enum list_type list_type(const struct list_entry *en)
{
    switch (en->mode & S_IFMT) {
    case 0:
        return LIST_BLANK;
    case S_IFREG:
        return LIST_FILE;
    case S_IFDIR:
        return LIST_FOLDER;
    case S_IFLNK:
        return LIST_LINK;
    default:
        return LIST_OTHER;
    }
}

struct slice list_name(const struct file_list *l, const struct list_entry *en)
{
    return slice_of(list_text(l, en->name), en->name_bytes);
}

struct slice list_folder(const struct file_list *l, const struct list_entry *en)
{
    return list_counted(l, en->folder);
}

struct slice list_path(const struct file_list *l, const struct list_entry *en, char *room)
{
    struct slice folder = list_folder(l, en);
    struct slice name = list_name(l, en);
    size_t n = folder.n;

    if (n != 0) {
        memcpy(room, folder.p, n);
        room[n++] = '/';
    }
    memcpy(room + n, name.p, name.n);
    room[n + name.n] = '\0';
    return slice_of(room, n + name.n);
}

struct slice list_target(const struct file_list *l, const struct list_entry *en)
{
    CHECK(list_type(en) == LIST_LINK);
    return list_counted(l, (uint32_t)en->size_bytes);
}

uint64_t list_size(const struct file_list *l, const struct list_entry *en)
{
    return list_type(en) == LIST_LINK ? list_target(l, en).n : en->size_bytes;
}

int32_t list_leader(const struct file_list *l, const struct list_entry *en)
{
    (void)l;
    return list_type(en) == LIST_FILE || list_type(en) == LIST_LINK ? en->leader : LIST_NONE;
}

/* Peers list folder by folder, so that the order of the wire goes through the blocks nearly one after another. */
void list_forget(struct file_list *l, uint32_t index)
{
    uint32_t block = l->order[index] / LIST_BLOCK;

    if (l->led) {
        return;
    }
    if (l->wanted == NULL) {
        l->wanted = mem_array(l->blocks_n, sizeof l->wanted[0]);
        for (size_t i = 0; i < l->blocks_n; i++) {
            l->wanted[i] = i + 1 < l->blocks_n ? LIST_BLOCK : (l->count - 1) % LIST_BLOCK + 1;
        }
    }
    CHECK(l->wanted[block] > 0);
    if (--l->wanted[block] == 0) {
        free(l->blocks[block]);
        l->blocks[block] = NULL;
    }
}

size_t list_memory(const struct file_list *l)
{
    size_t blocks = 0;

    for (size_t i = 0; i < l->blocks_n; i++) {
        blocks += l->blocks[i] != NULL;
    }
    return sizeof *l + blocks * LIST_BLOCK * sizeof(struct list_entry) +
           l->texts_n * LIST_TEXT_BLOCK + (l->order != NULL ? (size_t)l->count * 4 : 0);
}
