#include "server/sync/rsync/list.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "server/sync/rsync/varint.h"

enum {
    LIST_TEXT_BITS = 20,
    LIST_TEXT_BLOCK = 1 << LIST_TEXT_BITS,
    LIST_TEXT_BLOCKS = 2047, /* a text's place fits 31 bits: it stands in `leader` too */
};

#define LIST_NO_TEXT UINT32_MAX

struct file_list {
    struct list_form form;
    struct list_limits limits;
    void **blocks; /* of LIST_BLOCK entries, as they arrived */
    size_t blocks_n, blocks_room;
    void **texts; /* of LIST_TEXT_BLOCK bytes */
    size_t texts_n, texts_room;
    size_t text_used; /* of the last */
    uint64_t text_bytes;
    uint32_t count;
    uint32_t *order;  /* index on the wire -> arrival; NULL before list_sort() */
    uint32_t *wanted; /* of each block: entries that list_forget() has not had yet */
    bool led;         /* there are hard links */
    int32_t io_error;
    uint32_t folder; /* of the entry before */
    size_t last_n;
    int64_t last_mtime_s;
    uint32_t last_mode;
    char last[LIST_PATH_MAX + 1];
};

static inline struct list_entry *list_arrived(const struct file_list *l, uint32_t at)
{
    return (struct list_entry *)l->blocks[at / LIST_BLOCK] + at % LIST_BLOCK;
}

static inline char *list_text(const struct file_list *l, uint32_t ref)
{
    return (char *)l->texts[ref >> LIST_TEXT_BITS] + (ref & (LIST_TEXT_BLOCK - 1));
}

static inline struct slice list_counted(const struct file_list *l, uint32_t ref)
{
    const char *p = list_text(l, ref);
    uint16_t n;

    memcpy(&n, p, sizeof n);
    return slice_of(p + sizeof n, n);
}

enum flag {
    FLAG_SAME_MODE = 1 << 1,
    FLAG_MORE = 1 << 2, /* a second byte of flags, where flags are bytes */
    FLAG_SAME_NAME = 1 << 5,
    FLAG_LONG_NAME = 1 << 6,
    FLAG_SAME_TIME = 1 << 7,
    FLAG_LINKED = 1 << 9,
    FLAG_LINKED_FIRST = 1 << 12,
    FLAG_ERROR_END = 1 << 12,
    FLAG_NSEC = 1 << 13,
    FLAG_ALL = (1 << 15) - 1,
};

struct file_list *list_new(struct list_form form, struct list_limits limits)
{
    struct file_list *l = NEW(struct file_list);

    CHECK(limits.text_bytes <= (uint64_t)2 << 30);
    l->form = form;
    l->limits = limits;
    l->folder = LIST_NO_TEXT;
    return l;
}

void list_free(struct file_list **lp)
{
    struct file_list *l = *lp;

    if (l == NULL) {
        return;
    }
    *lp = NULL;
    for (size_t i = 0; i < l->blocks_n; i++) {
        free(l->blocks[i]);
    }
    for (size_t i = 0; i < l->texts_n; i++) {
        free(l->texts[i]);
    }
    free(l->blocks);
    free(l->texts);
    free(l->order);
    free(l->wanted);
    free(l);
}

/* --- texts and entries, in blocks that never move --------------------------------------------- */

static void *add_block(void ***table, size_t *n, size_t *room, size_t bytes)
{
    void **grown = *table;
    void *block = malloc(bytes);

    CHECK(block != NULL);
    if (*n == *room) {
        *room = *room != 0 ? *room * 2 : 16;
        grown = realloc(grown, *room * sizeof(void *));
        CHECK(grown != NULL);
        *table = grown;
    }
    grown[(*n)++] = block;
    return block;
}

/* Room for n bytes (a path at most), counted as n of the limit on texts. */
static char *text_room(struct file_list *l, size_t n, uint32_t *ref)
{
    if (l->text_bytes + n > l->limits.text_bytes) {
        return NULL;
    }
    if (l->texts_n == 0 || l->text_used + n > LIST_TEXT_BLOCK) {
        if (l->texts_n == LIST_TEXT_BLOCKS) {
            return NULL;
        }
        add_block(&l->texts, &l->texts_n, &l->texts_room, LIST_TEXT_BLOCK);
        l->text_used = 0;
    }
    *ref = (uint32_t)((l->texts_n - 1) << LIST_TEXT_BITS | l->text_used);
    l->text_used += n;
    l->text_bytes += n;
    return list_text(l, *ref);
}

/* With its length before it. */
static bool add_counted(struct file_list *l, struct slice s, uint32_t *ref)
{
    uint16_t n = (uint16_t)s.n;
    char *to = text_room(l, sizeof n + s.n, ref);

    if (to == NULL) {
        return false;
    }
    memcpy(to, &n, sizeof n);
    if (s.n != 0) {
        memcpy(to + sizeof n, s.p, s.n);
    }
    return true;
}

static struct list_entry *entry_room(struct file_list *l)
{
    if (l->count % LIST_BLOCK == 0) {
        add_block(&l->blocks, &l->blocks_n, &l->blocks_room,
                  LIST_BLOCK * sizeof(struct list_entry));
    }
    return list_arrived(l, l->count);
}

/* --- one entry -------------------------------------------------------------------------------- */

bool list_name_valid(struct slice path)
{
    struct slice rest = path;

    if (path.n == 0 || path.n > LIST_PATH_MAX || slice_find(path, '\0') >= 0 ||
        path.p[path.n - 1] == '/') {
        return false;
    }
    if (slice_eq(path, SLICE("."))) {
        return true;
    }
    while (rest.n > 0) {
        struct slice part = slice_cut(&rest, '/');
        if (part.n == 0 || slice_eq(part, SLICE(".")) || slice_eq(part, SLICE(".."))) {
            return false;
        }
    }
    return true;
}

struct arriving { /* what an entry says, before anything is kept of it */
    uint32_t flags;
    size_t shared; /* bytes of the last name */
    struct slice rest;
    int32_t leader;
    int64_t size;
    int64_t mtime_s;
    int32_t nsec;
    uint32_t mode;
    struct slice target;
    bool copy; /* all of it is the leader's */
};

static uint32_t take_flags(struct get *t, struct list_form form, bool *end, int32_t *io_error)
{
    uint32_t flags;

    *end = false;
    if (form.varint_flags) {
        flags = (uint32_t)get_varint(t);
        if (flags == 0 && t->rc == 0) {
            *io_error = get_varint(t);
            *end = true;
        }
        return flags;
    }
    flags = get_byte(t);
    if (flags == 0) {
        *end = t->rc == 0;
        return 0;
    }
    if ((flags & FLAG_MORE) != 0) {
        flags |= (uint32_t)get_byte(t) << 8;
        if (form.safe && flags == (FLAG_MORE | FLAG_ERROR_END)) {
            *io_error = get_varint(t);
            *end = true;
        }
    }
    return flags;
}

static int take_name(struct get *t, const struct file_list *l, struct arriving *a, struct err *e)
{
    size_t n;

    a->shared = (a->flags & FLAG_SAME_NAME) != 0 ? get_byte(t) : 0;
    n = (a->flags & FLAG_LONG_NAME) != 0 ? (size_t)(uint32_t)get_varint(t) : get_byte(t);
    if (t->rc != 0) {
        return 0;
    }
    if (a->shared > l->last_n || n > LIST_PATH_MAX || a->shared + n > LIST_PATH_MAX) {
        return err_set(e, E_PROTOCOL, "the peer's list has an invalid name of %zu bytes",
                       a->shared + n);
    }
    a->rest = get_bytes(t, n);
    return 0;
}

static int take_leader(struct get *t, const struct file_list *l, struct arriving *a, struct err *e)
{
    a->leader = LIST_NONE;
    if (!l->form.hard_links || (a->flags & (FLAG_LINKED | FLAG_LINKED_FIRST)) != FLAG_LINKED) {
        return 0;
    }
    a->leader = get_varint(t);
    if (t->rc != 0) {
        return 0;
    }
    if (a->leader < 0 || (uint32_t)a->leader >= l->count) {
        return err_set(e, E_PROTOCOL,
                       "the peer's list has a hard link to entry %d, but only %u entries so far",
                       (int)a->leader, (unsigned)l->count);
    }
    a->copy = true;
    return 0;
}

static int take_facts(struct get *t, const struct file_list *l, struct arriving *a, struct err *e)
{
    a->size = get_varlong(t, 3);
    a->mtime_s = (a->flags & FLAG_SAME_TIME) != 0 ? l->last_mtime_s : get_varlong(t, 4);
    a->nsec = (a->flags & FLAG_NSEC) != 0 ? get_varint(t) : 0;
    a->mode = (a->flags & FLAG_SAME_MODE) != 0 ? l->last_mode : (uint32_t)get_int(t);
    if (t->rc == 0 && (a->size < 0 || a->nsec < 0 || a->nsec > 999999999 || a->mode > 0xffff)) {
        return err_set(e, E_PROTOCOL, "the peer's list has an invalid size, time or mode");
    }
    if (t->rc == 0 && S_ISLNK(a->mode)) {
        size_t n = (size_t)(uint32_t)get_varint(t);
        if (t->rc == 0 && (n == 0 || n > LIST_PATH_MAX)) {
            return err_set(e, E_PROTOCOL, "the peer's list has an invalid link of %zu bytes", n);
        }
        a->target = get_bytes(t, n);
        if (t->rc == 0 && slice_find(a->target, '\0') >= 0) {
            return err_set(e, E_PROTOCOL, "the peer's list has a link that contains NUL");
        }
    }
    return 0;
}

static int64_t clamp_ns(int64_t s, int32_t nsec)
{
    const int64_t most = INT64_MAX / 1000000000 - 1;

    if (s > most) {
        return INT64_MAX;
    }
    if (s < -most) {
        return INT64_MIN;
    }
    return s * 1000000000 + nsec;
}

static int64_t floor_s(int64_t ns)
{
    int64_t s = ns / 1000000000;
    return s * 1000000000 > ns ? s - 1 : s;
}

static int refuse_name(struct slice path, struct err *e)
{
    struct slice shown = slice_first(path, path.n < 120 ? path.n : 120);

    return err_set(e, E_PROTOCOL, "the peer's list has an invalid or unsafe path: '" SLICE_FMT "'",
                   SLICE_ARG(shown));
}

static int too_much(const struct file_list *l, struct err *e)
{
    return err_set(e, E_TOOBIG,
                   "the peer's list is longer than %u entries (max_entries) or %llu MiB of names",
                   (unsigned)l->limits.entries, (unsigned long long)(l->limits.text_bytes >> 20));
}

/* The folder's text, kept from the entry before where it is the same. */
static bool keep_folder(struct file_list *l, struct slice folder, uint32_t *ref)
{
    if (l->folder == LIST_NO_TEXT || !slice_eq(list_counted(l, l->folder), folder)) {
        if (!add_counted(l, folder, &l->folder)) {
            return false;
        }
    }
    *ref = l->folder;
    return true;
}

static bool keep_name(struct file_list *l, struct list_entry *en)
{
    struct slice path = slice_of(l->last, l->last_n);
    size_t cut = slice_behind(path, '/');
    char *to;

    if (!keep_folder(l, slice_first(path, cut > 0 ? cut - 1 : 0), &en->folder)) {
        return false;
    }
    en->name_bytes = (uint16_t)(path.n - cut);
    to = text_room(l, en->name_bytes, &en->name);
    if (to != NULL) {
        memcpy(to, path.p + cut, en->name_bytes);
    }
    return to != NULL;
}

static int add_list_entry(struct file_list *l, const struct arriving *a, struct err *e)
{
    struct list_entry *en;
    uint32_t target;

    if (l->count >= l->limits.entries) {
        return too_much(l, e);
    }
    memcpy(l->last + a->shared, a->rest.p, a->rest.n);
    l->last_n = a->shared + a->rest.n;
    if (!list_name_valid(slice_of(l->last, l->last_n))) {
        return refuse_name(slice_of(l->last, l->last_n), e);
    }
    en = entry_room(l);
    if (a->copy) {
        const struct list_entry *first = list_arrived(l, (uint32_t)a->leader);
        *en = *first;
        en->leader = first->leader != LIST_NONE ? first->leader : a->leader;
        l->led = true;
        l->last_mode = en->mode;
        l->last_mtime_s = floor_s(en->mtime_ns);
    } else {
        *en = (struct list_entry){.size_bytes = (uint64_t)a->size,
                                  .mtime_ns = clamp_ns(a->mtime_s, a->nsec),
                                  .mode = (uint16_t)a->mode,
                                  .leader = LIST_NONE};
        l->last_mode = a->mode;
        l->last_mtime_s = a->mtime_s;
        if (S_ISLNK(a->mode)) {
            if (!add_counted(l, a->target, &target)) {
                return too_much(l, e);
            }
            en->size_bytes = target;
        }
    }
    if (!keep_name(l, en)) {
        return too_much(l, e);
    }
    l->count++;
    return 0;
}

int list_add(struct file_list *l, struct slice path, uint32_t mode, uint64_t size_bytes,
             int64_t mtime_ns, struct slice target, struct err *e)
{
    struct arriving a = {.rest = path,
                         .leader = LIST_NONE,
                         .size = (int64_t)size_bytes,
                         .mtime_s = floor_s(mtime_ns),
                         .mode = mode,
                         .target = target};

    CHECK(path.n <= LIST_PATH_MAX && target.n <= LIST_PATH_MAX && l->order == NULL);
    a.nsec = (int32_t)(mtime_ns - a.mtime_s * 1000000000);
    return add_list_entry(l, &a, e);
}

void list_set_mtime(struct file_list *l, uint32_t arrival, int64_t mtime_ns)
{
    CHECK(arrival < l->count);
    list_arrived(l, arrival)->mtime_ns = mtime_ns;
}

void list_set_leader(struct file_list *l, uint32_t arrival, uint32_t leader)
{
    struct list_entry *en;

    CHECK(arrival < l->count && leader < l->count && l->order == NULL);
    en = list_arrived(l, arrival);
    CHECK(list_type(en) == LIST_FILE || list_type(en) == LIST_LINK);
    en->leader = (int32_t)leader;
    l->led = true;
}

/* 0 with *in moved; E_AGAIN: the entry is not whole yet. */
static int read_one_entry(struct file_list *l, struct slice *in, bool *end, struct err *e)
{
    struct get t = get_from(*in);
    struct arriving a = {.leader = LIST_NONE};
    int rc;

    a.flags = take_flags(&t, l->form, end, &l->io_error);
    if (t.rc == 0 && !*end) {
        if ((a.flags & ~(uint32_t)FLAG_ALL) != 0) {
            return err_set(e, E_PROTOCOL, "the peer's list has unknown flags 0x%x",
                           (unsigned)a.flags);
        }
        rc = take_name(&t, l, &a, e);
        rc = rc != 0 ? rc : take_leader(&t, l, &a, e);
        rc = rc != 0 || a.copy ? rc : take_facts(&t, l, &a, e);
        if (rc != 0) {
            return rc;
        }
    }
    if (t.rc == E_AGAIN) {
        return E_AGAIN;
    }
    if (t.rc != 0) {
        return err_set(e, E_PROTOCOL, "the peer's list has an invalid number");
    }
    *in = slice_of(t.p, t.n);
    return *end ? 0 : add_list_entry(l, &a, e);
}

int list_feed(struct file_list *l, struct slice *in, bool *done, struct err *e)
{
    *done = false;
    while (!*done && in->n > 0) {
        int rc = read_one_entry(l, in, done, e);
        if (rc != 0) { /* half an end is none */
            *done = false;
            return rc == E_AGAIN ? 0 : rc;
        }
    }
    return 0;
}

/* --- the order of both ends -------------------------------------------------------------------
 *
 * At each level folders come last, each kind ordered by bytes; a folder's name ends in '/'.
 */

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

/* `a` stands in a folder that b's folder lies in: against the part of b's folder that is beside
 * it. */
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

static struct key sort_key_of_entry(const struct file_list *l, const struct list_entry *en)
{
    return (struct key){list_counted(l, en->folder), list_name(l, en), S_ISDIR(en->mode)};
}

static int compare_list_entries(const void *x, const void *y, void *arg)
{
    const struct file_list *l = arg;
    uint32_t i = *(const uint32_t *)x;
    uint32_t j = *(const uint32_t *)y;
    struct key a = sort_key_of_entry(l, list_arrived(l, i));
    struct key b = sort_key_of_entry(l, list_arrived(l, j));
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
        struct key have = sort_key_of_entry(l, list_at(l, mid));
        int c = compare_keys(&have, &want);
        if (c == 0) {
            *index = mid;
            return list_type(list_at(l, mid)) != LIST_BLANK;
        }
        *(c < 0 ? &low : &high) = c < 0 ? mid + 1 : mid;
    }
    return false;
}

/* --- second entries of a name are blanked, links find their leaders' new places --------------- */

static void blank_doubles(struct file_list *l)
{
    struct list_entry *kept = NULL;

    for (uint32_t i = 0; i < l->count; i++) {
        struct list_entry *en = list_arrived(l, l->order[i]);
        struct key a = kept != NULL ? sort_key_of_entry(l, kept) : (struct key){.is_folder = false};
        struct key b = sort_key_of_entry(l, en);
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

/* Where a double took the leader's place, that one may be another thing, or follow another: then
 * each stands alone. */
static void drop_odd_leaders(struct file_list *l)
{
    for (uint32_t i = 0; i < l->count; i++) {
        struct list_entry *en = list_arrived(l, i);
        if (en->leader != LIST_NONE && !leads(l, list_at(l, (uint32_t)en->leader), en)) {
            en->leader = LIST_NONE;
        }
    }
}

/* Peers name as leader what their folders gave first, which may be another one tomorrow: here it is
 * the first of the order. */
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
        return err_set(e, E_TOOBIG, "not enough memory for a list of %u entries",
                       (unsigned)l->count);
    }
    for (uint32_t i = 0; i < l->count; i++) {
        l->order[i] = i;
        sorted = sorted && (i == 0 || compare_list_entries(&l->order[i - 1], &l->order[i], l) < 0);
    }
    if (!sorted) {
        qsort_r(l->order, l->count, sizeof *l->order, compare_list_entries, l);
    }
    blank_doubles(l);
    if (l->led) {
        place_leaders(l);
        drop_odd_leaders(l);
        let_first_lead(l);
    }
    return 0;
}

/* --- looking at it ---------------------------------------------------------------------------- */

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

/* Peers list folder by folder, so that the order of the wire goes through the blocks nearly one
 * after another. */
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
