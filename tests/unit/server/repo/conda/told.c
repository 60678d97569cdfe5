#include "tests/harness/ask.h"

#include "server/repo/conda/told.h"

static struct buf one = BUF_INIT(4096), other = BUF_INIT(4096);

static struct slice row(struct buf *b, const struct told_file *f)
{
    buf_clear(b);
    told_file_encode(f, b);
    return buf_slice(b);
}

static void rows_come_back(void **state)
{
    struct told_file f = {true, {{1, 2, 3}}, 77, 1700000000, 9, TOLD_SHARDS}, f2;
    struct told_group g = {1, 2}, g2;
    struct told_place p = {SLICE("https://a.example/x/"), SLICE_NONE,
                           SLICE("https://b.example/repodata.json")},
                      p2;

    (void)state;
    assert_true(told_file_decode(row(&one, &f), &f2));
    assert_memory_equal(&f.digest, &f2.digest, sizeof f.digest);
    assert_true(f2.digest_known && f2.size_bytes == 77 && f2.modified_unix_s == 1700000000 &&
                f2.source == 9 && f2.place == TOLD_SHARDS);
    assert_false(told_file_decode(slice_first(buf_slice(&one), one.n - 1), &f2));
    buf_clear(&one);
    told_group_encode(&g, &one);
    assert_true(told_group_decode(buf_slice(&one), &g2) && g2.modified_unix_s == 1 &&
                g2.since_unix_s == 2);
    assert_false(told_file_decode(buf_slice(&one), &f2));
    buf_clear(&one);
    told_place_encode(&p, &one);
    assert_true(told_place_decode(buf_slice(&one), &p2));
    assert_slice(p2.packages, "https://a.example/x/");
    assert_null(p2.shards.p);
    assert_slice(p2.index, "https://b.example/repodata.json");
    assert_false(told_place_decode(SLICE(""), &p2));
    assert_false(told_group_decode(SLICE(""), &g2));
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
        struct told_file was = {
            .digest_known = true,
            .modified_unix_s = row_of[i].was_modified,
            .source = row_of[i].was_source,
        };
        struct told_file is = was;
        is.digest.b[0] = row_of[i].other_bytes;
        is.modified_unix_s = row_of[i].is_modified;
        is.source = row_of[i].is_source;
        assert_int_equal(told_replaces(row(&one, &was), row(&other, &is)), row_of[i].replaces);
    }
}

static void a_group_moves_on(void **state)
{
    (void)state;
    for (uint64_t now = 0; now < 30; now += 10) {
        buf_clear(&one);
        buf_clear(&other);
        told_group_encode(&(struct told_group){10, 100}, &one);
        told_group_encode(&(struct told_group){now, 200}, &other);
        assert_int_equal(told_replaces(buf_slice(&one), buf_slice(&other)), now != 10);
    }
}

static void keys_are_apart(void **state)
{
    (void)state;
    told_key(&one, SLICE("a"), SLICE("x/"), TOLD_FILE, SLICE("g"));
    told_key(&other, SLICE("a"), SLICE("x/"), TOLD_GROUP, SLICE(""));
    assert_false(slice_eq(buf_slice(&one), buf_slice(&other)));
    told_key(&other, SLICE("a"), SLICE(""), TOLD_FILE, SLICE("x/g"));
    assert_false(slice_eq(buf_slice(&one), buf_slice(&other)));
    assert_int_not_equal(told_source(SLICE("repodata.json")),
                         told_source(SLICE("repodata.json.zst")));
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
