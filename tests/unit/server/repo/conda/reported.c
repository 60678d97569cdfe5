#include "tests/harness/ask.h"

#include "server/repo/conda/reported.h"

static struct buf one = BUF_INIT(4096), other = BUF_INIT(4096);

static struct slice row(struct buf *b, const struct reported_file *f)
{
    buf_clear(b);
    reported_encode(&(struct reported_row){.kind = REPORTED_FILE, .file = *f}, b);
    return buf_slice(b);
}

static void rows_come_back(void **state)
{
    struct reported_file f = {true, {{1, 2, 3}}, 77, 1700000000, 9, REPORTED_SHARDS};
    struct reported_row g = {.kind = REPORTED_GROUP, .group = {1, 2}};
    struct reported_row p = {.kind = REPORTED_REPODATA,
                             .place = {SLICE("https://a.example/x/"), SLICE_NONE,
                                       SLICE("https://b.example/repodata.json")}};
    struct reported_row t;

    (void)state;
    assert_true(reported_decode(row(&one, &f), &t));
    assert_int_equal(t.kind, REPORTED_FILE);
    assert_memory_equal(&f.digest, &t.file.digest, sizeof f.digest);
    assert_true(t.file.digest_known && t.file.size_bytes == 77 &&
                t.file.modified_unix_s == 1700000000 && t.file.source == 9 &&
                t.file.place == REPORTED_SHARDS);
    assert_false(reported_decode(slice_first(buf_slice(&one), one.n - 1), &t));
    buf_clear(&one);
    reported_encode(&g, &one);
    assert_true(reported_decode(buf_slice(&one), &t) && t.kind == REPORTED_GROUP &&
                t.group.modified_unix_s == 1 && t.group.since_unix_s == 2);
    assert_false(reported_decode(slice_first(buf_slice(&one), one.n - 1), &t));
    buf_clear(&one);
    reported_encode(&p, &one);
    assert_true(reported_decode(buf_slice(&one), &t));
    assert_int_equal(t.kind, REPORTED_REPODATA);
    assert_slice(t.place.packages, "https://a.example/x/");
    assert_null(t.place.shards.p);
    assert_slice(t.place.index, "https://b.example/repodata.json");
    assert_false(reported_decode(SLICE(""), &t));
    assert_false(reported_decode(SLICE("x"), &t));
    assert_false(reported_decode(SLICE("s"), &t));
}

/* Which word on a file stands. */
static void newer_words_stand(void **state)
{
    static const struct {
        uint64_t was_modified, is_modified;
        uint8_t was_source, is_source;
        bool other_bytes, replaces;
    } row_of[] = {
        {10, 20, 1, 2, true, true},   /* a newer form */
        {20, 10, 1, 2, true, false},  /* an older one, read later */
        {20, 10, 1, 1, true, true},   /* the origin went back */
        {10, 10, 1, 2, true, true},   /* of one age: the last */
        {0, 0, 1, 2, true, true},     /* of no age */
        {10, 20, 1, 2, false, false}, /* nothing new: no write */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row_of); i++) {
        struct reported_file was = {
            .digest_known = true,
            .modified_unix_s = row_of[i].was_modified,
            .source = row_of[i].was_source,
        };
        struct reported_file is = was;
        is.digest.b[0] = row_of[i].other_bytes;
        is.modified_unix_s = row_of[i].is_modified;
        is.source = row_of[i].is_source;
        assert_int_equal(reported_replaces(row(&one, &was), row(&other, &is)), row_of[i].replaces);
    }
}

static void a_group_moves_on(void **state)
{
    (void)state;
    for (uint64_t now = 0; now < 30; now += 10) {
        buf_clear(&one);
        buf_clear(&other);
        reported_encode(&(struct reported_row){.kind = REPORTED_GROUP, .group = {10, 100}}, &one);
        reported_encode(&(struct reported_row){.kind = REPORTED_GROUP, .group = {now, 200}},
                        &other);
        assert_int_equal(reported_replaces(buf_slice(&one), buf_slice(&other)), now != 10);
    }
}

static void keys_are_apart(void **state)
{
    (void)state;
    reported_key(&one, SLICE("a"), SLICE("x/"), REPORTED_FILE, SLICE("g"));
    reported_key(&other, SLICE("a"), SLICE("x/"), REPORTED_GROUP, SLICE(""));
    assert_false(slice_eq(buf_slice(&one), buf_slice(&other)));
    reported_key(&other, SLICE("a"), SLICE(""), REPORTED_FILE, SLICE("x/g"));
    assert_false(slice_eq(buf_slice(&one), buf_slice(&other)));
    assert_int_not_equal(reported_source(SLICE("repodata.json")),
                         reported_source(SLICE("repodata.json.zst")));
}

static int fini(void **state)
{
    (void)state;
    buf_free(&one);
    buf_free(&other);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back),
        cmocka_unit_test(newer_words_stand),
        cmocka_unit_test(a_group_moves_on),
        cmocka_unit_test(keys_are_apart),
    };
    return cmocka_run_group_tests(tests, NULL, fini);
}
