#include "tests/harness/store.h"

#include "common/os/clock.h"
#include "server/store/node.h"

static struct tree_edit file_edit(struct arena *a, const char *path, uint64_t content)
{
    struct tree_edit t = {.entry = {.path = arena_copy(a, slice_str(path)),
                                    .type = ENTRY_FILE,
                                    .size_bytes = content}};

    memcpy(t.entry.digest.b, &content, sizeof content);
    return t;
}

static struct tree_edit removal(struct arena *a, const char *path)
{
    struct tree_edit t = file_edit(a, path, 0);

    t.remove = true;
    return t;
}

static struct digest edited(struct fixture *f, const struct digest *base, const struct tree_edit *t,
                            size_t n, uint64_t *entries)
{
    struct batch *b = batch_new();
    struct digest root, empty;
    uint64_t count, bytes;
    struct err e = {0};

    tree_empty_root(&empty);
    if (tree_edit(f->s, base != NULL ? base : &empty, t, n, b, &root, &count, &bytes, &e) != 0 ||
        store_commit(f->s, &b, COMMIT_LAZY, &e) != 0) {
        fail_msg("tree_edit: %s", e.text);
    }
    if (entries != NULL) {
        *entries = count;
    }
    return root;
}

static int edit_fails(struct fixture *f, const struct digest *base, const struct tree_edit *t,
                      size_t n)
{
    struct batch *b = batch_new();
    struct digest root;
    uint64_t count, bytes;
    int rc = tree_edit(f->s, base, t, n, b, &root, &count, &bytes, NULL);

    batch_free(&b);
    return rc;
}

static uint64_t rng(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static void test_paths(void **state)
{
    static const char *const good[] = {"a", "a/b", ".a", "..a", "a..", "a/...", "\xff/\x01", " "};
    static const char *const bad[] = {"",   "/",    "/a",   "a/",    "a//b", ".",
                                      "..", "a/..", "../a", "a/./b", "./a",  "a/../b"};
    char longest[4096];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(tree_path_valid(slice_str(good[i])));
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(tree_path_valid(slice_str(bad[i])));
    }
    assert_false(tree_path_valid(SLICE("a\0b")));
    memset(longest, 'x', sizeof longest);
    assert_true(tree_path_valid(slice_of(longest, 4095)));
    assert_false(tree_path_valid(slice_of(longest, 4096)));
}

/* The same paths and contents give one root, whatever the order and the number of edits that led
 * there. */
static void test_same_set_same_root(void **state)
{
    enum { N = 2000 };
    struct fixture *f = *state;
    struct arena a = {0};
    struct tree_edit *t = calloc(N, sizeof *t);
    struct digest one, step, empty;
    uint64_t x = 88172645463325252u, entries;

    for (size_t i = 0; i < N; i++) {
        char path[64];
        snprintf(path, sizeof path, "dir%zu/file-%zu", i % 7, i);
        t[i] = file_edit(&a, path, i);
    }
    one = edited(f, NULL, t, N, &entries);
    assert_int_equal(entries, N);
    for (int round = 0; round < 3; round++) {
        for (size_t i = N - 1; i > 0; i--) {
            size_t j = rng(&x) % (i + 1);
            struct tree_edit swap = t[i];
            t[i] = t[j];
            t[j] = swap;
        }
        tree_empty_root(&step);
        for (size_t i = 0; i < N;) {
            size_t n = min_u64(1 + rng(&x) % 400, N - i);
            struct tree_edit noise = file_edit(&a, "zz/noise", i);
            step = edited(f, &step, t + i, n, NULL);
            step = edited(f, &step, &noise, 1, NULL);
            noise.remove = true;
            step = edited(f, &step, &noise, 1, NULL);
            i += n;
        }
        assert_true(digest_eq(&one, &step));
    }
    for (size_t i = 0; i < N; i++) {
        t[i].remove = true;
    }
    step = edited(f, &one, t, N, &entries);
    tree_empty_root(&empty);
    assert_true(digest_eq(&step, &empty));
    assert_int_equal(entries, 0);
    free(t);
    arena_fini(&a);
}

struct model {
    uint64_t content[512]; /* by number of the path; 0: not there */
};

static void model_path(size_t i, char path[32])
{
    snprintf(path, 32, "d%zu/%zu", i % 5, i);
}

static struct digest random_step(struct fixture *f, struct model *m, const struct digest *base,
                                 uint64_t *x, struct arena *a)
{
    struct tree_edit t[64];
    size_t n = rng(x) % ARRAY_LEN(t);

    for (size_t k = 0; k < n; k++) {
        size_t i = rng(x) % ARRAY_LEN(m->content);
        char path[32];
        model_path(i, path);
        m->content[i] = rng(x) % 3 == 0 ? 0 : 1 + rng(x) % 4;
        t[k] = m->content[i] != 0 ? file_edit(a, path, m->content[i]) : removal(a, path);
    }
    return edited(f, base, t, n, NULL);
}

struct diff_check {
    const struct model *old;
    const struct model *new;
    size_t seen;
    char last[32];
};

static int on_difference(void *arg, const struct entry *old_en, const struct entry *new_en)
{
    struct diff_check *c = arg;
    const struct entry *en = old_en != NULL ? old_en : new_en;
    char path[32] = "";
    size_t dir, i;

    memcpy(path, en->path.p, en->path.n);
    assert_int_equal(sscanf(path, "d%zu/%zu", &dir, &i), 2);
    assert_int_equal(c->old->content[i], old_en != NULL ? old_en->size_bytes : 0);
    assert_int_equal(c->new->content[i], new_en != NULL ? new_en->size_bytes : 0);
    assert_int_not_equal(c->old->content[i], c->new->content[i]);
    assert_true(strcmp(c->last, path) < 0);
    memcpy(c->last, path, sizeof path);
    c->seen++;
    return 0;
}

static void test_diff_is_brute_force(void **state)
{
    struct fixture *f = *state;
    struct arena a = {0};
    struct model m[12] = {0};
    struct digest root[12];
    uint64_t x = 1234567;

    tree_empty_root(&root[0]);
    for (size_t i = 1; i < ARRAY_LEN(m); i++) {
        m[i] = m[i - 1];
        root[i] = random_step(f, &m[i], &root[i - 1], &x, &a);
    }
    for (size_t i = 0; i < ARRAY_LEN(m); i++) {
        for (size_t j = 0; j < ARRAY_LEN(m); j++) {
            struct diff_check c = {.old = &m[i], .new = &m[j]};
            size_t want = 0;
            assert_int_equal(tree_diff(f->s, &root[i], &root[j], on_difference, &c, NULL), 0);
            for (size_t k = 0; k < ARRAY_LEN(m[i].content); k++) {
                want += m[i].content[k] != m[j].content[k];
            }
            assert_int_equal(c.seen, want);
        }
    }
    arena_fini(&a);
}

static int count_row(void *arg, struct slice key, struct slice value)
{
    (void)key;
    (void)value;
    ++*(size_t *)arg;
    return 0;
}

static size_t nodes(struct fixture *f)
{
    size_t n = 0;

    assert_int_equal(store_scan(f->s, TABLE_NODE, SLICE_NONE, SLICE_NONE, count_row, &n, NULL), 0);
    return n;
}

struct walk_check {
    size_t seen, stop_after;
    char last[64];
};

static int on_entry(void *arg, const struct entry *en)
{
    struct walk_check *c = arg;
    char path[64] = "";

    memcpy(path, en->path.p, en->path.n);
    assert_true(strcmp(c->last, path) < 0);
    memcpy(c->last, path, sizeof path);
    return ++c->seen == c->stop_after ? 7 : 0;
}

static int fail_on_difference(void *arg, const struct entry *old_en, const struct entry *new_en)
{
    ++*(size_t *)arg;
    assert_true(old_en != NULL && new_en != NULL);
    return 0;
}

/* 100,000 entries: one edit writes one node a level, a lookup and a diff read a handful. */
static void test_large_tree(void **state)
{
    enum { N = 100000 };
    struct fixture *f = *state;
    struct arena a = {0};
    struct tree_edit *t = calloc(N, sizeof *t);
    struct tree_edit one;
    struct walk_check w = {0};
    struct digest root, next;
    struct entry en;
    uint64_t entries;
    size_t before, differences = 0;

    for (size_t i = 0; i < N; i++) {
        char path[64];
        snprintf(path, sizeof path, "linux-64/%02zx/package-%zu.conda", i % 256, i);
        t[i] = file_edit(&a, path, i + 1);
    }
    root = edited(f, NULL, t, N, &entries);
    assert_int_equal(entries, N);
    before = nodes(f);
    assert_in_range(before, N / 200, N / 30);
    one = file_edit(&a, "linux-64/00/package-0.conda", 999);
    next = edited(f, &root, &one, 1, &entries);
    assert_int_equal(entries, N);
    assert_in_range(nodes(f) - before, 1, 5);
    assert_int_equal(tree_diff(f->s, &root, &next, fail_on_difference, &differences, NULL), 0);
    assert_int_equal(differences, 1);
    assert_int_equal(tree_get(f->s, &next, one.entry.path, &a, &en, NULL), 0);
    assert_int_equal(en.size_bytes, 999);
    assert_int_equal(tree_get(f->s, &next, SLICE("linux-64"), &a, &en, NULL), E_NOTFOUND);
    assert_int_equal(tree_walk(f->s, &root, SLICE(""), SLICE_NONE, on_entry, &w, NULL), 0);
    assert_int_equal(w.seen, N);
    w = (struct walk_check){0};
    assert_int_equal(tree_walk(f->s, &root, SLICE("linux-64/0a/"), SLICE_NONE, on_entry, &w, NULL),
                     0);
    assert_int_equal(w.seen, N / 256 + (10 < N % 256));
    w = (struct walk_check){.stop_after = 3};
    assert_int_equal(tree_walk(f->s, &root, SLICE("linux-64/0a/"),
                               SLICE("linux-64/0a/package-10.conda"), on_entry, &w, NULL),
                     7);
    assert_string_not_equal(w.last, "linux-64/0a/package-10.conda");
    free(t);
    arena_fini(&a);
}

static void test_clashes(void **state)
{
    struct fixture *f = *state;
    struct arena a = {0};
    struct tree_edit base[] = {file_edit(&a, "a/b/c", 1), file_edit(&a, "x", 2),
                               file_edit(&a, "x-y", 2), file_edit(&a, "x.z/q", 2)};
    struct digest root = edited(f, NULL, base, ARRAY_LEN(base), NULL);
    struct tree_edit under_file[] = {file_edit(&a, "x/y", 1)};
    struct tree_edit over_folder[] = {file_edit(&a, "a/b", 1)};
    struct tree_edit among[] = {file_edit(&a, "n/m", 1), file_edit(&a, "n", 1)};
    struct tree_edit swap[] = {removal(&a, "x"), file_edit(&a, "x/y", 1), file_edit(&a, "a", 1),
                               removal(&a, "a/b/c")};
    struct tree_edit bad[] = {file_edit(&a, "../x", 1)};
    uint64_t entries;

    assert_int_equal(edit_fails(f, &root, under_file, 1), E_INVALID);
    assert_int_equal(edit_fails(f, &root, over_folder, 1), E_INVALID);
    assert_int_equal(edit_fails(f, &root, among, 2), E_INVALID);
    assert_int_equal(edit_fails(f, &root, bad, 1), E_INVALID);
    edited(f, &root, swap, ARRAY_LEN(swap), &entries);
    assert_int_equal(entries, 4);
    arena_fini(&a);
}

static void test_last_edit_of_a_path_wins(void **state)
{
    struct fixture *f = *state;
    struct arena a = {0};
    struct tree_edit t[] = {file_edit(&a, "k", 1), removal(&a, "k"), file_edit(&a, "k", 3)};
    struct digest root = edited(f, NULL, t, 3, NULL);
    struct entry en;

    assert_int_equal(tree_get(f->s, &root, SLICE("k"), &a, &en, NULL), 0);
    assert_int_equal(en.size_bytes, 3);
    arena_fini(&a);
}

/* --- nodes from strangers --- */

static struct tree_edit other(struct arena *a, const char *path, enum entry_type type,
                              const char *target)
{
    struct tree_edit t = file_edit(a, path, 0);

    t.entry.type = type;
    t.entry.target = target != NULL ? slice_str(target) : SLICE_NONE;
    if (type != ENTRY_FILE) {
        t.entry.digest = (struct digest){0};
    }
    return t;
}

/* A symbolic link that is a hard link has its target and its group's first. */
static void test_links_that_are_hard_links(void **state)
{
    struct fixture *f = *state;
    struct arena a = {0};
    struct entry en;
    struct err e = {0};
    struct tree_edit t[] = {other(&a, "b", ENTRY_LINK, "x"), other(&a, "c", ENTRY_LINK, "x"),
                            other(&a, "d", ENTRY_LINK, "x")};
    struct tree_edit bad = other(&a, "e", ENTRY_LINK, "x");
    struct digest plain = edited(f, NULL, t, ARRAY_LEN(t), NULL), root;

    t[1].entry.leader = SLICE("b");
    root = edited(f, NULL, t, ARRAY_LEN(t), NULL);
    assert_false(digest_eq(&plain, &root));
    assert_int_equal(tree_get(f->s, &root, SLICE("c"), &a, &en, &e), 0);
    assert_true(en.type == ENTRY_LINK && slice_eqs(en.target, "x") && slice_eqs(en.leader, "b"));
    assert_int_equal(tree_get(f->s, &root, SLICE("d"), &a, &en, &e), 0);
    assert_true(slice_eqs(en.target, "x") && en.leader.n == 0);
    t[1].entry.leader = SLICE_NONE;
    root = edited(f, &root, t, ARRAY_LEN(t), NULL);
    assert_true(digest_eq(&plain, &root));
    bad.entry.leader = SLICE("../b");
    assert_int_equal(edit_fails(f, &root, &bad, 1), E_INVALID);
    arena_fini(&a);
}

/* Folders with entries of their own, hard links, and what may stand in whose place. */
static void test_folders_and_hard_links(void **state)
{
    struct fixture *f = *state;
    struct arena a = {0};
    struct entry en;
    struct err e = {0};
    const struct tree_edit t[] = {
        other(&a, "d", ENTRY_DIR, NULL),
        other(&a, "d/empty", ENTRY_DIR, NULL),
        file_edit(&a, "d/f", 1),
        other(&a, "d/hard", ENTRY_FILE, "d/f"),
        other(&a, "link", ENTRY_LINK, "d"),
    };
    struct tree_edit clash[] = {file_edit(&a, "d", 1), file_edit(&a, "d/f/x", 1),
                                other(&a, "d/hard", ENTRY_FILE, "../x")};
    struct tree_edit to_file[] = {removal(&a, "d/empty"), removal(&a, "d/f"), removal(&a, "d/hard"),
                                  file_edit(&a, "d", 2)};
    struct tree_edit to_folder[] = {other(&a, "d", ENTRY_DIR, NULL), file_edit(&a, "d/x", 3)};
    struct digest root = edited(f, NULL, t, ARRAY_LEN(t), NULL), next;

    assert_int_equal(tree_get(f->s, &root, SLICE("d/hard"), &a, &en, &e), 0);
    assert_true(en.type == ENTRY_FILE && slice_eqs(en.target, "d/f"));
    assert_int_equal(tree_get(f->s, &root, SLICE("d/empty"), &a, &en, &e), 0);
    assert_true(en.type == ENTRY_DIR);
    for (size_t i = 0; i < ARRAY_LEN(clash); i++) {
        assert_int_equal(edit_fails(f, &root, &clash[i], 1), E_INVALID);
    }
    next = edited(f, &root, to_file, ARRAY_LEN(to_file), NULL);
    assert_int_equal(tree_get(f->s, &next, SLICE("d"), &a, &en, &e), 0);
    assert_true(en.type == ENTRY_FILE);
    next = edited(f, &next, to_folder, ARRAY_LEN(to_folder), NULL);
    assert_int_equal(tree_get(f->s, &next, SLICE("d/x"), &a, &en, &e), 0);
    arena_fini(&a);
}

static void test_links_are_followed_inside(void **state)
{
    static const struct {
        const char *path, *led;
        int rc;
    } all[] = {
        {"dists/bookworm/Release", "dists/bookworm/Release", 0},
        {"dists/stable/Release", "dists/bookworm/Release", 0},
        {"dists/stable/up", "dists/bookworm/Release", 0},
        {"top", "dists/bookworm/Release", 0},
        {"root/root/top", "dists/bookworm/Release", 0},
        {"dists/stable/", "dists/bookworm/", E_NOTFOUND},
        {"dists/stable", "dists/bookworm", E_NOTFOUND},
        {"dists/stable/none", "dists/bookworm/none", E_NOTFOUND},
        {"root", "", E_NOTFOUND},
        {"out", NULL, E_INVALID},
        {"deep/out", NULL, E_INVALID},
        {"abs", NULL, E_INVALID},
        {"ring", NULL, E_INVALID},
    };
    struct fixture *f = *state;
    struct arena a = {0};
    const struct tree_edit t[] = {
        file_edit(&a, "dists/bookworm/Release", 7),
        other(&a, "dists/stable", ENTRY_LINK, "bookworm"),
        other(&a, "dists/bookworm/up", ENTRY_LINK, "../../top"),
        other(&a, "top", ENTRY_LINK, "./dists//stable/Release"),
        other(&a, "out", ENTRY_LINK, "../etc/passwd"),
        other(&a, "deep/out", ENTRY_LINK, "../../etc/passwd"),
        other(&a, "abs", ENTRY_LINK, "/etc/passwd"),
        other(&a, "ring", ENTRY_LINK, "ring2"),
        other(&a, "ring2", ENTRY_LINK, "ring/x"),
        other(&a, "root", ENTRY_LINK, "."),
    };
    struct digest root = edited(f, NULL, t, ARRAY_LEN(t), NULL);

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct entry en;
        struct err e = {0};
        assert_int_equal(tree_resolve(f->s, &root, slice_str(all[i].path), &a, &en, &e), all[i].rc);
        if (all[i].led != NULL) {
            assert_true(slice_eqs(en.path, all[i].led));
        }
    }
    arena_fini(&a);
}

static void put_node_row(struct fixture *f, struct slice encoding, struct digest *id)
{
    struct buf row = BUF_INIT(1 << 20);
    struct batch *b = batch_new();

    buf_add(&row, "\0\0\0\0\0\0\0\0", 8);
    buf_adds(&row, encoding);
    digest_of(encoding, id);
    batch_put(b, TABLE_NODE, slice_of(id->b, DIGEST_BYTES), buf_slice(&row));
    assert_int_equal(store_commit(f->s, &b, COMMIT_LAZY, NULL), 0);
    buf_free(&row);
}

static void test_hostile_nodes(void **state)
{
    struct fixture *f = *state;
    struct arena a = {0};
    struct buf good = BUF_INIT(1 << 20);
    struct tree_edit e1 = file_edit(&a, "a", 1), e2 = file_edit(&a, "b", 2);
    struct digest id;
    struct entry en;
    struct tree_node n;

    node_begin(&good);
    node_add_entry(&good, &e1.entry);
    node_add_entry(&good, &e2.entry);
    node_name(&good, 0, 2, &id);
    assert_int_equal(node_decode(buf_slice(&good), &n, NULL), 0);
    node_free(&n);
    for (size_t cut = 0; cut < good.n; cut++) {
        assert_int_equal(node_decode(slice_of(good.p, cut), &n, NULL), E_CORRUPT);
    }
    for (size_t i = 0; i < good.n; i++) { /* flipped bits decode or not, but never misbehave */
        for (int bit = 0; bit < 8; bit++) {
            good.p[i] ^= (char)(1 << bit);
            if (node_decode(buf_slice(&good), &n, NULL) == 0) {
                node_free(&n);
            }
            good.p[i] ^= (char)(1 << bit);
        }
    }
    buf_byte(&good, 0); /* something behind the end */
    assert_int_equal(node_decode(buf_slice(&good), &n, NULL), E_CORRUPT);
    node_begin(&good); /* out of order, then twice the same */
    node_add_entry(&good, &e2.entry);
    node_add_entry(&good, &e1.entry);
    node_name(&good, 0, 2, &id);
    assert_int_equal(node_decode(buf_slice(&good), &n, NULL), E_CORRUPT);
    node_begin(&good);
    node_add_entry(&good, &e1.entry);
    node_add_entry(&good, &e1.entry);
    node_name(&good, 0, 2, &id);
    assert_int_equal(node_decode(buf_slice(&good), &n, NULL), E_CORRUPT);
    e1.entry.path = SLICE("../etc/passwd");
    node_begin(&good);
    node_add_entry(&good, &e1.entry);
    node_name(&good, 0, 1, &id);
    put_node_row(f, buf_slice(&good), &id);
    assert_int_equal(tree_get(f->s, &id, SLICE("x"), &a, &en, NULL), E_CORRUPT);
    memset(id.b, 7, sizeof id.b);
    assert_int_equal(tree_get(f->s, &id, SLICE("x"), &a, &en, NULL), E_CORRUPT);
    buf_free(&good);
    arena_fini(&a);
}

/* A parent that lies about its child's level or first path. */
static void test_lying_parents(void **state)
{
    struct fixture *f = *state;
    struct arena a = {0};
    struct tree_edit t = file_edit(&a, "m", 1);
    struct digest leaf = edited(f, NULL, &t, 1, NULL);
    struct child c = {SLICE("a"), leaf, 1, 1};
    struct buf up = BUF_INIT(1 << 16);
    struct digest id;
    struct entry en;
    size_t seen = 0;

    node_begin(&up);
    node_add_child(&up, &c);
    node_name(&up, 1, 1, &id);
    put_node_row(f, buf_slice(&up), &id);
    assert_int_equal(tree_get(f->s, &id, SLICE("m"), &a, &en, NULL), E_CORRUPT);
    assert_int_equal(tree_diff(f->s, &leaf, &id, fail_on_difference, &seen, NULL), E_CORRUPT);
    c.first = SLICE("m");
    node_begin(&up);
    node_add_child(&up, &c);
    node_name(&up, 2, 1, &id);
    put_node_row(f, buf_slice(&up), &id);
    assert_int_equal(tree_get(f->s, &id, SLICE("m"), &a, &en, NULL), E_CORRUPT);
    assert_int_equal(edit_fails(f, &id, &t, 1), E_CORRUPT);
    node_name(&up, 1, 1, &id);
    put_node_row(f, buf_slice(&up), &id);
    assert_int_equal(tree_get(f->s, &id, SLICE("m"), &a, &en, NULL), 0);
    buf_free(&up);
    arena_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
        cmocka_unit_test(test_paths),
        T(test_same_set_same_root),
        T(test_diff_is_brute_force),
        T(test_large_tree),
        T(test_clashes),
        T(test_last_edit_of_a_path_wins),
        T(test_links_that_are_hard_links),
        T(test_folders_and_hard_links),
        T(test_links_are_followed_inside),
        T(test_hostile_nodes),
        T(test_lying_parents),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
