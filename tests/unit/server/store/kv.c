#include "tests/harness/store.h"

#include "server/store/kv.h"

/* The strings of RocksDB 7.8.3 (util/status.cc), as seen or as its source makes them. */
static void test_error_strings(void **state)
{
    static const struct {
        const char *text;
        int code;
    } rows[] = {
        {"NotFound: ", E_NOTFOUND},
        {"Corruption: block checksum mismatch: stored = 1, computed = 2", E_CORRUPT},
        {"IO error: No space left on device: While appending to file: x.log: No space left on "
         "device",
         E_NOSPACE},
        {"IO error: While appending to file: x.log: Disk quota exceeded", E_NOSPACE},
        {"IO error: While fsync: x.sst: Input/output error", E_IO},
        {"IO error: lock hold by current process, acquire time 1 acquiring thread 2: x/LOCK: No "
         "locks available",
         E_BUSY},
        {"IO error: While lock file: x/LOCK: Resource temporarily unavailable", E_BUSY},
        {"Result incomplete: no blocking io", E_AGAIN},
        {"Result incomplete: Write stall", E_AGAIN},
        {"Resource busy: ", E_BUSY},
        {"Operation timed out: ", E_TIMEOUT},
        {"Operation failed. Try again.: ", E_AGAIN},
        {"Shutdown in progress: ", E_CANCELLED},
        {"Operation aborted: ", E_CANCELLED},
        {"Not implemented: ", E_UNSUPPORTED},
        {"Invalid argument: Column family not found", E_INTERNAL},
        {"", E_INTERNAL},
        {"something new", E_INTERNAL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(kv_error_code(rows[i].text), rows[i].code);
    }
}

static void put(struct store *s, enum table t, struct slice key, struct slice value)
{
    struct batch *b = batch_new();

    batch_put(b, t, key, value);
    assert_int_equal(store_commit(s, &b, COMMIT_LAZY, NULL), 0);
}

static int collect(void *arg, struct slice key, struct slice value)
{
    struct buf *all = arg;

    buf_adds(all, key);
    buf_byte(all, '=');
    buf_adds(all, value);
    buf_byte(all, ' ');
    return slice_eqs(key, "stop") ? 5 : 0;
}

static void scan(struct store *s, enum table t, struct slice from, struct slice to,
                 const char *want)
{
    struct buf all = BUF_INIT(4096);

    assert_int_equal(store_scan(s, t, from, to, collect, &all, NULL), 0);
    assert_string_equal(buf_cstr(&all), want);
    buf_free(&all);
}

/* Tables that share a family do not see each other; keys and values may be empty or hold any
 * byte. */
static void test_tables_are_apart(void **state)
{
    struct fixture *f = *state;
    struct buf v = BUF_INIT(64);

    put(f->s, TABLE_TOKEN, SLICE("a"), SLICE("1"));
    put(f->s, TABLE_TOKEN, SLICE("b"), SLICE("2"));
    put(f->s, TABLE_TOKEN, SLICE("c"), SLICE(""));
    put(f->s, TABLE_UPLOAD, SLICE("a"), SLICE("other"));
    put(f->s, TABLE_PIN, SLICE("\xff\xff"), SLICE("high"));
    put(f->s, TABLE_ORIGIN, SLICE("x"), SLICE("own family"));
    scan(f->s, TABLE_TOKEN, SLICE_NONE, SLICE_NONE, "a=1 b=2 c= ");
    scan(f->s, TABLE_TOKEN, SLICE("b"), SLICE_NONE, "b=2 c= ");
    scan(f->s, TABLE_TOKEN, SLICE("a"), SLICE("c"), "a=1 b=2 ");
    scan(f->s, TABLE_TOKEN, SLICE("d"), SLICE_NONE, "");
    scan(f->s, TABLE_PIN, SLICE_NONE, SLICE_NONE, "\xff\xff=high ");
    scan(f->s, TABLE_ORIGIN, SLICE_NONE, SLICE_NONE, "x=own family ");
    assert_int_equal(store_get(f->s, TABLE_UPLOAD, SLICE("a"), &v, NULL), 0);
    assert_true(slice_eqs(buf_slice(&v), "other"));
    assert_int_equal(store_get(f->s, TABLE_UPLOAD, SLICE("b"), &v, NULL), E_NOTFOUND);
    assert_int_equal(v.n, 0);
    buf_free(&v);
}

static void test_scan_stops(void **state)
{
    struct fixture *f = *state;
    struct buf all = BUF_INIT(4096);

    put(f->s, TABLE_TOKEN, SLICE("stop"), SLICE("1"));
    put(f->s, TABLE_TOKEN, SLICE("tail"), SLICE("2"));
    assert_int_equal(store_scan(f->s, TABLE_TOKEN, SLICE_NONE, SLICE_NONE, collect, &all, NULL), 5);
    assert_string_equal(buf_cstr(&all), "stop=1 ");
    buf_free(&all);
}

/* A store that an earlier version wrote is opened as it is: whatever a table is called now, its
 * rows lie where they lay. */
static void test_tables_stay_where_they_are(void **state)
{
    static const struct {
        enum table table;
        const char *family;
        char prefix;
    } was[TABLES] = {
        {TABLE_META, "default", 'm'},      {TABLE_OBJECT, "object", 0},
        {TABLE_BLOB, "blob", 0},           {TABLE_INLINE, "inline", 0},
        {TABLE_CHUNKS, "chunks", 0},       {TABLE_HOLDER, "holder", 0},
        {TABLE_NODE, "node", 0},           {TABLE_HEAD, "default", 'h'},
        {TABLE_SNAP, "default", 's'},      {TABLE_ATIME, "atime", 0},
        {TABLE_PARTIAL, "default", 'p'},   {TABLE_TOKEN, "default", 't'},
        {TABLE_PIN, "default", 'n'},       {TABLE_ORIGIN, "origin", 0},
        {TABLE_UPLOAD, "default", 'u'},    {TABLE_STAGE, "sync", 'g'},
        {TABLE_SEEN, "sync", 'n'},         {TABLE_PIECES, "sync", 'p'},
        {TABLE_RUN, "default", 'r'},       {TABLE_RUN_LOG, "default", 'l'},
        {TABLE_SYNC, "default", 'y'},      {TABLE_REF, "default", 'f'},
        {TABLE_NOTE, "default", 'c'},      {TABLE_MOVED, "default", 'v'},
        {TABLE_PREFETCH, "default", 'a'},  {TABLE_HELD, "default", 'd'},
        {TABLE_LAST_WORD, "default", 'o'}, {TABLE_ALIAS, "default", '5'},
        {TABLE_INDEX, "default", 'i'},     {TABLE_PLACE, "place", 0},
        {TABLE_COLLECT, "default", 'k'},   {TABLE_CLAIM, "default", 'w'},
        {TABLE_FORMAT, "default", 'b'},
    };
    static const struct {
        const char *family;
        char prefix;
    } is[TABLES] = {
#define TABLE(name, cf, byte, shared) [name] = {(cf), (byte)},
#include "server/store/tables.def"
#undef TABLE
    };

    (void)state;
    for (size_t i = 0; i < TABLES; i++) {
        assert_string_equal(is[was[i].table].family, was[i].family);
        assert_int_equal(is[was[i].table].prefix, was[i].prefix);
    }
}

static void test_value_bound(void **state)
{
    struct fixture *f = *state;
    struct buf v = BUF_INIT(4);

    put(f->s, TABLE_TOKEN, SLICE("k"), SLICE("12345"));
    assert_int_equal(store_get(f->s, TABLE_TOKEN, SLICE("k"), &v, NULL), E_TOOBIG);
    buf_free(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
        cmocka_unit_test(test_error_strings),
        cmocka_unit_test(test_tables_stay_where_they_are),
        T(test_tables_are_apart),
        T(test_scan_stops),
        T(test_value_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
