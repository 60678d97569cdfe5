#include "server/sync/rsync/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <sys/stat.h>

#include "server/sync/rsync/varint.h"

static const struct list_form varints = {.varint_flags = true, .safe = true, .hard_links = true};

static void add(struct buf *b, uint32_t flags, const char *name, size_t n, uint64_t size,
                int64_t mtime, uint32_t mode)
{
    put_varint(b, (int32_t)(flags | 0x40));
    put_varint(b, (int32_t)n);
    buf_add(b, name, n);
    put_varlong(b, (int64_t)size, 3);
    put_varlong(b, mtime, 4);
    put_int(b, (int32_t)mode);
}

static void add_file(struct buf *b, const char *name)
{
    add(b, 0, name, strlen(name), 1, 1, S_IFREG | 0644);
}

static void add_folder(struct buf *b, const char *name)
{
    add(b, 0, name, strlen(name), 1, 1, S_IFDIR | 0755);
}

static void add_end(struct buf *b)
{
    put_varint(b, 0);
    put_varint(b, 0);
}

static int decode(struct buf *b, struct list_limits limits, struct file_list **out)
{
    struct slice in = buf_slice(b);
    struct err e = {.code = 0};
    bool done;
    int rc;

    *out = list_new(varints, limits);
    rc = list_feed(*out, &in, &done, &e);
    assert_true(rc == 0 || e.text[0] != '\0');
    return rc != 0 ? rc : done ? list_sort(*out, &e) : E_AGAIN;
}

static void files_before_folders(void **state)
{
    static const char *const want[] = {".",       "foo-bar", "zz",        "foo-a",
                                       "foo-a/x", "foo.bar", "foo.bar/a", "foo",
                                       "foo/b",   "foo/a",   "foo/a/c"};
    struct buf b = BUF_INIT(4096);
    struct file_list *l;
    char room[LIST_PATH_MAX + 1];

    (void)state;
    add_folder(&b, "foo");
    add_folder(&b, "foo/a");
    add_file(&b, "foo/b");
    add_folder(&b, "foo.bar");
    add_folder(&b, ".");
    add_file(&b, "foo.bar/a");
    add_folder(&b, "foo-a");
    add_file(&b, "foo-a/x");
    add_file(&b, "foo/a/c");
    add_file(&b, "zz");
    add_file(&b, "foo-bar");
    add_end(&b);
    assert_int_equal(decode(&b, LIST_LIMITS, &l), 0);
    assert_int_equal(list_count(l), ARRAY_LEN(want));
    for (uint32_t i = 0; i < list_count(l); i++) {
        assert_string_equal(list_path(l, list_at(l, i), room).p, want[i]);
    }
    list_free(&l);
    buf_free(&b);
}

static void doubles_keep_their_place(void **state)
{
    struct buf b = BUF_INIT(4096);
    struct file_list *l;

    (void)state;
    add_file(&b, "c");
    add(&b, 0x200 | 0x1000, "b", 1, 7, 1, S_IFREG | 0644);
    add(&b, 0x200 | 0x1000, "b", 1, 8, 1,
        S_IFREG | 0644); /* second of its name, first of a group */
    add_file(&b, "a");
    put_varint(&b, 0x240); /* d, linked to the blank */
    put_varint(&b, 1);
    buf_str(&b, "d");
    put_varint(&b, 2);
    add_end(&b);
    assert_int_equal(decode(&b, LIST_LIMITS, &l), 0);
    assert_int_equal(list_count(l), 5);
    assert_int_equal(list_type(list_at(l, 1)), LIST_FILE);
    assert_int_equal(list_at(l, 1)->size_bytes, 7);
    assert_int_equal(list_type(list_at(l, 2)), LIST_BLANK);
    assert_int_equal(list_leader(l, list_at(l, 4)), 1);
    assert_true(slice_eq(list_name(l, list_at(l, 3)), SLICE("c")));
    list_free(&l);
    buf_free(&b);
}

/* Whatever the peer's folders gave first: a tree has one shape. */
static void the_first_in_order_leads(void **state)
{
    static const char *const names[] = {"z", "d/a", "m", "b", "x"};
    struct file_list *l = list_new(varints, LIST_LIMITS);

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(list_add(l, slice_str(names[i]), S_IFREG | 0644, 1, 0, SLICE_NONE, NULL),
                         0);
    }
    list_set_leader(l, 2, 0); /* m and b follow z, x follows d/a */
    list_set_leader(l, 3, 0);
    list_set_leader(l, 4, 1);
    assert_int_equal(list_sort(l, NULL), 0); /* b m x z d/a */
    assert_int_equal(list_leader(l, list_at(l, 0)), LIST_NONE);
    assert_int_equal(list_leader(l, list_at(l, 1)), 0);
    assert_int_equal(list_leader(l, list_at(l, 2)), LIST_NONE);
    assert_int_equal(list_leader(l, list_at(l, 3)), 0);
    assert_int_equal(list_leader(l, list_at(l, 4)), 2);
    list_free(&l);
}

/* As files, but with the target that each has; a leader that says another one, or is no link, leads
 * nobody. */
static void links_follow_links(void **state)
{
    static const struct {
        const char *name, *target;
    } v[] = {{"z", "t"}, {"m", "t"}, {"b", "t"}, {"o", "other"}};
    struct file_list *l = list_new(varints, LIST_LIMITS);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        assert_int_equal(
            list_add(l, slice_str(v[i].name), S_IFLNK | 0777, 99, 0, slice_str(v[i].target), NULL),
            0);
    }
    assert_int_equal(list_add(l, SLICE("p"), S_IFREG | 0644, 1, 0, SLICE_NONE, NULL), 0);
    list_set_leader(l, 1, 0); /* m, b and o follow z; p, a file, follows it too */
    list_set_leader(l, 2, 0);
    list_set_leader(l, 3, 0);
    list_set_leader(l, 4, 0);
    assert_int_equal(list_sort(l, NULL), 0); /* b m o p z */
    assert_int_equal(list_leader(l, list_at(l, 0)), LIST_NONE);
    assert_int_equal(list_leader(l, list_at(l, 1)), 0);
    assert_int_equal(list_leader(l, list_at(l, 2)), LIST_NONE);
    assert_int_equal(list_leader(l, list_at(l, 3)), LIST_NONE);
    assert_int_equal(list_leader(l, list_at(l, 4)), 0);
    assert_true(slice_eqs(list_target(l, list_at(l, 1)), "t"));
    assert_true(slice_eqs(list_target(l, list_at(l, 2)), "other"));
    assert_int_equal(list_size(l, list_at(l, 2)), 5);
    list_free(&l);
}

static void an_end_in_two_pieces(void **state)
{
    struct file_list *l = list_new(varints, LIST_LIMITS);
    struct slice in = slice_of("\0\0", 1);
    struct err e;
    bool done;

    (void)state;
    assert_int_equal(list_feed(l, &in, &done, &e), 0);
    assert_false(done);
    assert_int_equal(in.n, 1);
    in = slice_of("\0\0", 2);
    assert_int_equal(list_feed(l, &in, &done, &e), 0);
    assert_true(done);
    assert_int_equal(list_sort(l, &e), 0);
    list_free(&l);
}

/* A second link of a name: its target is no place in the list. Found by fuzzing. */
static void a_double_link(void **state)
{
    struct buf b = BUF_INIT(4096);
    struct file_list *l;

    (void)state;
    for (int i = 0; i < 2; i++) {
        add(&b, 0, "l", 1, 1, 1, S_IFLNK | 0777);
        put_varint(&b, 300);
        for (int k = 0; k < 300; k++) {
            buf_byte(&b, 't');
        }
    }
    add_end(&b);
    assert_int_equal(decode(&b, LIST_LIMITS, &l), 0);
    assert_int_equal(list_type(list_at(l, 0)), LIST_LINK);
    assert_int_equal(list_target(l, list_at(l, 0)).n, 300);
    assert_int_equal(list_type(list_at(l, 1)), LIST_BLANK);
    list_free(&l);
    buf_free(&b);
}

static void names_that_lead_elsewhere(void **state)
{
    static const struct slice v[] = {{"..", 2},   {"../x", 4}, {"a/../b", 6}, {"/etc", 4},
                                     {"a//b", 4}, {"a/", 2},   {"a\0b", 3},   {"./a", 3},
                                     {"a/.", 3},  {"", 0},     {"/", 1},      {"a/..", 4}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        struct buf b = BUF_INIT(4096);
        struct file_list *l;
        add(&b, 0, v[i].p, v[i].n, 1, 1, S_IFREG | 0644);
        add_end(&b);
        assert_int_equal(decode(&b, LIST_LIMITS, &l), E_PROTOCOL);
        list_free(&l);
        buf_free(&b);
    }
    assert_true(list_name_valid(SLICE("..a/...")));
}

static void long_names(void **state)
{
    char name[LIST_PATH_MAX + 2];
    struct buf b = BUF_INIT(65536);
    struct file_list *l;

    (void)state;
    memset(name, 'n', sizeof name);
    add(&b, 0, name, LIST_PATH_MAX, 1, 1, S_IFREG | 0644);
    add_end(&b);
    assert_int_equal(decode(&b, LIST_LIMITS, &l), 0);
    list_free(&l);
    buf_clear(&b);
    add(&b, 0, name, LIST_PATH_MAX + 1, 1, 1, S_IFREG | 0644);
    assert_int_equal(decode(&b, LIST_LIMITS, &l), E_PROTOCOL);
    list_free(&l);
    buf_free(&b);
}

static void facts_that_cannot_be(void **state)
{
    struct buf b = BUF_INIT(65536);
    struct file_list *l;

    (void)state;
    add(&b, 0, "a", 1, (uint64_t)-1, 1, S_IFREG | 0644);
    assert_int_equal(decode(&b, LIST_LIMITS, &l), E_PROTOCOL);
    list_free(&l);
    buf_clear(&b);
    add(&b, 0, "a", 1, 1, 1, 0x10000 | S_IFREG);
    assert_int_equal(decode(&b, LIST_LIMITS, &l), E_PROTOCOL);
    list_free(&l);
    buf_clear(&b);
    put_varint(&b, 0x240); /* a link to what did not come yet */
    put_varint(&b, 1);
    buf_str(&b, "a");
    put_varint(&b, 0);
    assert_int_equal(decode(&b, LIST_LIMITS, &l), E_PROTOCOL);
    list_free(&l);
    buf_free(&b);
}

static void times_of_all_ages(void **state)
{
    static const int64_t v[][2] = {{0, 0},
                                   {-1, -1000000000},
                                   {1LL << 33, (1LL << 33) * 1000000000},
                                   {1LL << 40, INT64_MAX},
                                   {-(1LL << 40), INT64_MIN}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        struct buf b = BUF_INIT(4096);
        struct file_list *l;
        add(&b, 0, "a", 1, 1, v[i][0], S_IFREG | 0644);
        add_end(&b);
        assert_int_equal(decode(&b, LIST_LIMITS, &l), 0);
        assert_int_equal(list_at(l, 0)->mtime_ns, v[i][1]);
        list_free(&l);
        buf_free(&b);
    }
}

static void a_list_without_end(void **state)
{
    struct buf b = BUF_INIT(1 << 20);
    struct file_list *l;

    (void)state;
    for (int i = 0; i < 1001; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        add_file(&b, name);
    }
    assert_int_equal(decode(&b, (struct list_limits){1000, 1 << 20}, &l), E_TOOBIG);
    list_free(&l);
    assert_int_equal(decode(&b, (struct list_limits){10000, 1000}, &l), E_TOOBIG);
    list_free(&l);
    buf_free(&b);
}

/* pool/<a>/<b>/pkg-<n>_1.0.bin, a million of them, as a big archive's. */
static void a_million_in_100_mib(void **state)
{
    struct file_list *l = list_new(varints, LIST_LIMITS);
    struct buf b = BUF_INIT(1 << 20);
    struct err e;
    bool done = false;
    size_t whole;

    (void)state;
    for (int i = 0; i < 1000000; i++) {
        char name[80];
        snprintf(name, sizeof name, "pool/%03d/%02d/package-name-%07d_1.%d-1_amd64.deb", i / 10000,
                 i / 100 % 100, 9999999 - i, i % 10);
        add_file(&b, name);
        if (i % 1000 == 999) {
            struct slice in = buf_slice(&b);
            assert_int_equal(list_feed(l, &in, &done, &e), 0);
            assert_int_equal(in.n, 0);
            buf_clear(&b);
        }
    }
    add_end(&b);
    {
        struct slice in = buf_slice(&b);
        assert_int_equal(list_feed(l, &in, &done, &e), 0);
    }
    assert_true(done);
    assert_int_equal(list_sort(l, &e), 0);
    assert_int_equal(list_count(l), 1000000);
    assert_true(list_memory(l) < (size_t)80 << 20);
    whole = list_memory(l);
    for (uint32_t i = 0; i < 500000; i++) {
        list_forget(l, i);
    }
    assert_true(list_memory(l) < whole - (12 << 20));
    assert_true(list_name(l, list_at(l, 999999)).n != 0);
    for (uint32_t i = 500000; i < 1000000; i++) {
        list_forget(l, i);
    }
    assert_true(list_memory(l) < whole - (30 << 20));
    list_free(&l);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_before_folders),
        cmocka_unit_test(doubles_keep_their_place),
        cmocka_unit_test(a_double_link),
        cmocka_unit_test(the_first_in_order_leads),
        cmocka_unit_test(links_follow_links),
        cmocka_unit_test(an_end_in_two_pieces),
        cmocka_unit_test(names_that_lead_elsewhere),
        cmocka_unit_test(long_names),
        cmocka_unit_test(facts_that_cannot_be),
        cmocka_unit_test(times_of_all_ages),
        cmocka_unit_test(a_list_without_end),
        cmocka_unit_test(a_million_in_100_mib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
