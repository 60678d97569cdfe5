#include "server/rsync/listing.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <uthash.h>

#include "common/base/arena.h"
#include "common/os/lock.h"

enum { DEPTH_MAX = LIST_PATH_MAX / 2 + 2 };
#define HAS_ENTRY UINT32_MAX /* a folder that has an entry, and so its own time */

struct tree_at { /* one tree of the module */
    struct slice name;
    struct digest root;
    int64_t top_mtime_ns; /* 0: not known */
};

struct listing {
    struct list node; /* in the register; not linked when superseded */
    _Atomic unsigned holds;
    struct store *store;
    const atomic_bool *stop;
    struct arena arena;
    struct slice repo;
    struct digest key; /* of all names and roots */
    struct tree_at *tree;
    size_t trees;
    struct file_list *list;
};

struct listings {
    struct store *store;
    const atomic_bool *stop;
    struct lock lock; /* not held while one is made: that takes as long as the tree is large */
    struct cond made;
    struct list all;
    struct list making;
};

struct making { /* on its maker's stack */
    struct list node;
    struct slice repo;
};

/* --- hard links ---
 *
 * A tree says them by the path of a group's first, the list by its place. */

struct member {
    struct member *next;
    uint32_t arrival;
};

struct group {
    UT_hash_handle hh;
    struct slice first;
    struct member *members;
};

struct groups {
    struct arena arena;
    struct group *table;
};

/* The entry that arrived as such is one of the group whose first has this path. */
static void groups_note(struct groups *gs, struct slice first, uint32_t arrival)
{
    struct member *m = ARENA_NEW(&gs->arena, struct member);
    struct group *g;

    HASH_FIND(hh, gs->table, first.p, first.n, g);
    if (g == NULL) {
        g = ARENA_NEW(&gs->arena, struct group);
        g->first = arena_copy(&gs->arena, first);
        HASH_ADD_KEYPTR(hh, gs->table, g->first.p, g->first.n, g);
    }
    m->arrival = arrival;
    m->next = g->members;
    g->members = m;
}

/* Before the list is sorted. */
static void groups_place(const struct groups *gs, struct file_list *l)
{
    char room[LIST_PATH_MAX + 1];

    for (uint32_t i = 0; gs->table != NULL && i < list_count(l); i++) {
        struct slice path = list_path(l, list_at(l, i), room);
        struct group *g;
        HASH_FIND(hh, gs->table, path.p, path.n, g);
        for (struct member *m = g != NULL ? g->members : NULL; m != NULL; m = m->next) {
            list_set_leader(l, m->arrival, i);
        }
    }
}

static void groups_fini(struct groups *gs)
{
    HASH_CLEAR(hh, gs->table);
    arena_fini(&gs->arena);
}

/* --- making one ------------------------------------------------------------------------------- */

struct open_folder {
    size_t path_bytes;
    uint32_t arrival;
    int64_t newest_ns;
};

struct maker {
    struct listing *l;
    struct slice prefix; /* of the tree, with its '/' */
    const struct digest *root;
    bool times; /* zero is a time like others */
    char path[LIST_PATH_MAX + 1];
    size_t path_n;
    struct open_folder *stack;
    size_t depth;
    struct groups groups;
    struct buf first; /* of the group seen last, and what it is */
    struct entry first_facts;
    struct buf first_target;
    struct err *e;
};

static void close_folder(struct maker *m)
{
    struct open_folder *f = &m->stack[--m->depth];

    if (f->arrival != HAS_ENTRY) {
        list_set_mtime(m->l->list, f->arrival, f->newest_ns != INT64_MIN ? f->newest_ns : 0);
    }
    if (m->depth > 0 && f->newest_ns > m->stack[m->depth - 1].newest_ns) {
        m->stack[m->depth - 1].newest_ns = f->newest_ns;
    }
}

/* A folder with an entry of its own came with that, before what is in it. */
static bool has_entry(struct maker *m, size_t n)
{
    struct arena a = {.head = NULL};
    struct entry en;
    bool yes = n > m->prefix.n &&
               tree_get(m->l->store, m->root, slice_of(m->path + m->prefix.n, n - m->prefix.n), &a,
                        &en, NULL) == 0 &&
               en.type == ENTRY_DIR;

    arena_fini(&a);
    return yes;
}

static int open_listing_folder(struct maker *m, size_t n)
{
    bool has = n != 0 && has_entry(m, n);
    int rc = has ? 0
                 : list_add(m->l->list, n != 0 ? slice_of(m->path, n) : SLICE("."), S_IFDIR | 0755,
                            0, 0, SLICE_NONE, m->e);

    if (rc == 0) {
        CHECK(m->depth < DEPTH_MAX);
        m->stack[m->depth++] =
            (struct open_folder){n, has ? HAS_ENTRY : list_count(m->l->list) - 1, INT64_MIN};
    }
    return rc;
}

/* Folders of the path that is in m->path; what is open of the one before is closed where they
 * part. */
static int open_folders(struct maker *m, size_t shared)
{
    int rc = 0;

    while (m->stack[m->depth - 1].path_bytes != 0 &&
           (m->stack[m->depth - 1].path_bytes >= shared + 1 ||
            m->path[m->stack[m->depth - 1].path_bytes] != '/')) {
        close_folder(m);
    }
    for (size_t i = m->stack[m->depth - 1].path_bytes + 1; i < m->path_n && rc == 0; i++) {
        if (m->path[i] == '/') {
            rc = open_listing_folder(m, i);
        }
    }
    return rc;
}

/* A time that was not kept (uploads have none) becomes one that is the content's: clients look at
 * size and time to see whether a file is another. */
static int64_t maker_mtime_ns(const struct maker *m, const struct entry *en)
{
    uint64_t h = 0;

    if (en->mtime_ns != 0 || en->type != ENTRY_FILE || m->times) {
        return en->mtime_ns;
    }
    memcpy(&h, en->digest.b, 4);
    return (int64_t)(h >> 2) * 1000000000;
}

static uint32_t mode_of(const struct entry *en)
{
    switch (en->type) {
    case ENTRY_LINK:
        return S_IFLNK | 0777;
    case ENTRY_DIR:
        return S_IFDIR | 0755;
    case ENTRY_FILE:
        break;
    }
    return en->executable ? S_IFREG | 0755 : S_IFREG | 0644;
}

/* What the first of a group is, unless that is known already. */
static void look_at_first(struct maker *m, struct slice leader)
{
    struct arena a = {.head = NULL};
    struct entry first;

    if (m->first.n > 0 && slice_eq(buf_slice(&m->first), leader)) {
        return;
    }
    buf_clear(&m->first);
    buf_clear(&m->first_target);
    if (tree_get(m->l->store, m->root, leader, &a, &first, NULL) == 0) {
        buf_adds(&m->first, leader);
        buf_adds(&m->first_target, first.target);
        m->first_facts = first;
    }
    arena_fini(&a);
}

/* Is the first of its group the same still? A list says nothing but that of the others. */
static bool is_same_as_leader(struct maker *m, const struct entry *en, struct slice leader)
{
    const struct entry *first = &m->first_facts;

    look_at_first(m, leader);
    if (m->first.n == 0 || first->type != en->type || first->mtime_ns != en->mtime_ns) {
        return false;
    }
    return en->type == ENTRY_LINK
               ? slice_eq(buf_slice(&m->first_target), en->target)
               : digest_eq(&first->digest, &en->digest) && first->executable == en->executable;
}

/* The entry that was added last. */
static void note_group(struct maker *m, const struct entry *en, struct slice leader)
{
    struct buf path = BUF_INIT(LIST_PATH_MAX);

    buf_adds(&path, m->prefix);
    buf_adds(&path, leader);
    if (path.rc == 0 && is_same_as_leader(m, en, leader)) {
        groups_note(&m->groups, buf_slice(&path), list_count(m->l->list) - 1);
    }
    buf_free(&path);
}

static int list_tree_entry(void *arg, const struct entry *en)
{
    struct maker *m = arg;
    struct open_folder *top;
    size_t shared = 0;
    size_t n = m->prefix.n + en->path.n;
    struct slice leader;
    int rc;

    if (atomic_load(m->l->stop)) {
        return err_set(m->e, E_CANCELLED, "the server is shutting down");
    }
    if (n > LIST_PATH_MAX ||
        (en->type == ENTRY_LINK && (en->target.n == 0 || en->target.n > LIST_PATH_MAX))) {
        return 0; /* cannot be said in this protocol */
    }
    while (shared < m->path_n && shared < n &&
           m->path[shared] ==
               (shared < m->prefix.n ? m->prefix.p[shared] : en->path.p[shared - m->prefix.n])) {
        shared++;
    }
    if (m->prefix.n > 0) {
        memcpy(m->path, m->prefix.p, m->prefix.n);
    }
    memcpy(m->path + m->prefix.n, en->path.p, en->path.n);
    m->path_n = n;
    rc = open_folders(m, shared);
    if (rc != 0) {
        return rc;
    }
    top = &m->stack[m->depth - 1];
    if (maker_mtime_ns(m, en) > top->newest_ns) {
        top->newest_ns = maker_mtime_ns(m, en);
    }
    rc = list_add(m->l->list, slice_of(m->path, n), mode_of(en),
                  en->type == ENTRY_LINK ? en->target.n : en->size_bytes, maker_mtime_ns(m, en),
                  en->type == ENTRY_LINK ? en->target : SLICE_NONE, m->e);
    leader = en->type == ENTRY_FILE ? en->target : en->leader;
    if (rc == 0 && leader.n > 0) {
        note_group(m, en, leader);
    }
    return rc;
}

static int make_rsync_listing(struct listing *l, struct err *e)
{
    struct maker m = {
        .l = l, .e = e, .first = BUF_INIT(LIST_PATH_MAX), .first_target = BUF_INIT(LIST_PATH_MAX)};
    struct list_form form = {.varint_flags = true};
    int rc;

    l->list = list_new(form, LIST_LIMITS);
    m.stack = mem_array(DEPTH_MAX, sizeof *m.stack);
    rc = open_listing_folder(&m, 0);
    for (size_t i = 0; i < l->trees && rc == 0; i++) {
        struct buf prefix = BUF_INIT(LIST_PATH_MAX);
        buf_adds(&prefix, l->tree[i].name);
        if (prefix.n > 0) {
            buf_byte(&prefix, '/');
        }
        m.prefix = buf_slice(&prefix);
        m.root = &l->tree[i].root;
        m.times = prefix.n == 0;
        buf_clear(&m.first);
        rc = tree_walk(l->store, &l->tree[i].root, SLICE_NONE, SLICE_NONE, list_tree_entry, &m, e);
        buf_free(&prefix);
    }
    while (rc == 0 && m.depth > 0) {
        close_folder(&m);
    }
    if (rc == 0 && l->trees == 1 && l->tree[0].name.n == 0 && l->tree[0].top_mtime_ns != 0) {
        list_set_mtime(l->list, 0, l->tree[0].top_mtime_ns);
    }
    groups_place(&m.groups, l->list);
    groups_fini(&m.groups);
    buf_free(&m.first);
    buf_free(&m.first_target);
    free(m.stack);
    return rc != 0 ? rc : list_sort(l->list, e);
}

/* --- sharing ---------------------------------------------------------------------------------- */

struct listings *listings_open(struct store *s, const atomic_bool *stop)
{
    struct listings *ls = NEW(struct listings);

    ls->store = s;
    ls->stop = stop;
    lock_init(&ls->lock, LOCK_SYNC);
    cond_init(&ls->made);
    list_init(&ls->all);
    list_init(&ls->making);
    return ls;
}

const struct file_list *listing_list(const struct listing *l)
{
    return l->list;
}

void listing_release(struct listing **lp)
{
    struct listing *l = *lp;

    *lp = NULL;
    if (l != NULL && atomic_fetch_sub(&l->holds, 1) == 1) {
        list_free(&l->list);
        arena_fini(&l->arena);
        free(l->tree);
        free(l);
    }
}

void listings_close(struct listings **lp)
{
    struct listings *ls = *lp;
    struct list *n;

    if (ls == NULL) {
        return;
    }
    *lp = NULL;
    while ((n = list_pop_front(&ls->all)) != NULL) {
        struct listing *l = LIST_ITEM(n, struct listing, node);
        listing_release(&l);
    }
    cond_fini(&ls->made);
    lock_fini(&ls->lock);
    free(ls);
}

static int note_tree(void *arg, struct slice name, const struct snap *sn)
{
    struct listing *l = arg;

    if ((l->trees & (l->trees - 1)) == 0) {
        l->tree = realloc(l->tree, (l->trees != 0 ? l->trees * 2 : 1) * sizeof *l->tree);
        CHECK(l->tree != NULL);
    }
    l->tree[l->trees++] = (struct tree_at){arena_copy(&l->arena, name), sn->root, sn->top_mtime_ns};
    return 0;
}

static int find_trees(struct listing *l, struct slice tree, struct err *e)
{
    struct snap sn;
    int rc;

    if (tree.p == NULL) {
        return head_list(l->store, l->repo, note_tree, l, e);
    }
    rc = head_get(l->store, l->repo, tree, &sn, e);
    return rc == E_NOTFOUND ? 0 : rc != 0 ? rc : note_tree(l, SLICE(""), &sn);
}

static void name_key(struct listing *l)
{
    struct hasher *h = hasher_new_whole();

    for (size_t i = 0; i < l->trees; i++) {
        hasher_add(h, l->tree[i].name.p, l->tree[i].name.n);
        hasher_add(h, "", 1);
        hasher_add(h, l->tree[i].root.b, DIGEST_BYTES);
        hasher_add(h, &l->tree[i].top_mtime_ns, sizeof l->tree[i].top_mtime_ns);
    }
    hasher_final(h, &l->key);
    hasher_free(&h);
}

/* The one of this repo that the register has. */
static struct listing *find_repo_listing(struct listings *ls, struct slice repo)
{
    LIST_EACH (&ls->all, it) {
        struct listing *l = LIST_ITEM(it, struct listing, node);
        if (slice_eq(l->repo, repo)) {
            return l;
        }
    }
    return NULL;
}

static bool is_being_made(struct listings *ls, struct slice repo)
{
    LIST_EACH (&ls->making, it) {
        if (slice_eq(LIST_ITEM(it, struct making, node)->repo, repo)) {
            return true;
        }
    }
    return false;
}

/* Makes *lp the register's, in place of the repo's last one; or frees it. The lock is given back
 * meanwhile. */
static int make_and_put(struct listings *ls, struct listing **lp, struct err *e)
{
    struct listing *l = *lp;
    struct making making = {.repo = l->repo};
    struct listing *old;
    int rc;

    list_push_back(&ls->making, &making.node);
    lock_drop(&ls->lock);
    rc = make_rsync_listing(l, e);
    lock_take(&ls->lock);
    list_remove(&making.node);
    cond_broadcast(&ls->made);
    if (rc != 0) {
        listing_release(lp);
        return rc;
    }
    old = find_repo_listing(ls, l->repo);
    if (old != NULL) {
        list_remove(&old->node);
        listing_release(&old);
    }
    list_push_back(&ls->all, &l->node);
    return 0;
}

int listing_acquire(struct listings *ls, struct slice repo, struct slice tree, struct listing **out,
                    struct err *e)
{
    struct listing *l = NEW(struct listing);
    struct listing *there;
    int rc;

    l->holds = 1;
    l->store = ls->store;
    l->stop = ls->stop;
    l->repo = arena_copy(&l->arena, repo);
    rc = find_trees(l, tree, e);
    if (rc != 0 || l->trees == 0) {
        listing_release(&l);
        return rc != 0 ? rc : err_set(e, E_NOTFOUND, "nothing has been published in this module");
    }
    name_key(l);
    lock_take(&ls->lock);
    while (is_being_made(ls, repo)) { /* mostly the same: then one does the work for all who wait */
        cond_wait(&ls->made, &ls->lock);
    }
    there = find_repo_listing(ls, repo);
    if (there != NULL && digest_eq(&there->key, &l->key)) {
        listing_release(&l);
        l = there;
    } else {
        rc = make_and_put(ls, &l, e);
    }
    if (rc == 0) {
        atomic_fetch_add(&l->holds, 1);
        *out = l;
    }
    lock_drop(&ls->lock);
    return rc;
}

int listing_open(const struct listing *l, struct slice path, struct blob **out, struct err *e)
{
    struct arena a = {.head = NULL};
    struct entry en;
    int rc = E_NOTFOUND;

    for (size_t i = 0; i < l->trees && rc == E_NOTFOUND; i++) {
        struct slice name = l->tree[i].name;
        struct slice rest = path;
        if (name.n > 0) {
            if (!slice_starts(path, name) || path.n <= name.n || path.p[name.n] != '/') {
                continue;
            }
            rest = slice_from(path, name.n + 1);
        }
        rc = tree_get(l->store, &l->tree[i].root, rest, &a, &en, e);
    }
    if (rc == 0) {
        rc = en.type == ENTRY_FILE ? blob_open(l->store, &en.digest, out, e) : E_NOTFOUND;
    }
    arena_fini(&a);
    return rc;
}
