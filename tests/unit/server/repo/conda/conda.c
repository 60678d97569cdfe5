#include "tests/harness/ask.h"

#include "server/repo/conda/reported.h"

#define ONES "1111111111111111111111111111111111111111111111111111111111111111"

static struct ask k;

static int setup(void **state)
{
    (void)state;
    ask_open(&k, "forge", "conda", "https://conda.example/forge");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ask_close(&k);
    return 0;
}

/* What rows a plan asks for, none is there. */
static int ask_bare(const char *target)
{
    int rc;

    ask_forget(&k);
    rc = ask(&k, METHOD_GET, target);
    while (rc == 0 && k.plan.kind == PLAN_DEPENDENCY) {
        rc = ask_again(&k, &(struct result){.rc = E_NOTFOUND});
    }
    return rc;
}

static void indexes_change(void **state)
{
    static const char *const path[] = {"repodata.json", "repodata.json.zst",
                                       "repodata_from_packages.json", "run_exports.json",
                                       "whatever.comes"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(path); i++) {
        assert_int_equal(ask_bare(arena_fmt(&k.arena, "/linux-64/%s?x=%zu", path[i], i).p), 0);
        assert_int_equal(k.plan.kind, PLAN_LOOKUP);
        assert_int_equal(k.plan.lookup.class, LOOKUP_MUTABLE);
        assert_int_equal(k.plan.lookup.ttl_s, 300);
        assert_true(k.plan.lookup.swr_s == SWR_LIKE_TTL && k.plan.lookup.neg_ttl_s <= 300);
        assert_int_equal(k.plan.lookup.floor_s, FLOOR_NEVER);
        assert_int_equal(k.plan.lookup.sie_s, UINT32_MAX);
        assert_slice(k.plan.lookup.key, arena_fmt(&k.arena, "linux-64/%s", path[i]).p);
        assert_slice(k.plan.lookup.url,
                     arena_fmt(&k.arena, "https://conda.example/forge/linux-64/%s", path[i]).p);
        assert_int_equal(k.plan.lookup.status_maps, i == 0 ? 0 : 1);
    }
}

static void packages_and_shards_stay(void **state)
{
    (void)state;
    assert_int_equal(ask_bare("/noarch/g%2B%2B-1-0.conda"), 0);
    assert_int_equal(k.plan.lookup.class, LOOKUP_IMMUTABLE);
    assert_false(k.plan.lookup.digest_known);
    assert_slice(k.plan.lookup.url, "https://conda.example/forge/noarch/g%2B%2B-1-0.conda");
    assert_int_equal(ask_bare("/noarch/shards/" ONES ".msgpack.zst"), 0);
    assert_int_equal(k.plan.lookup.class, LOOKUP_IMMUTABLE);
    assert_true(k.plan.lookup.digest_known);
    assert_int_equal(k.plan.lookup.digest.b[31], 0x11);
}

/* Rows that are there, by what stands behind the last NUL of their keys. */
static int ask_with(const char *target, const char *const *tail, const struct buf *row,
                    size_t count)
{
    int rc;

    ask_forget(&k);
    rc = ask(&k, METHOD_GET, target);
    while (rc == 0 && k.plan.kind == PLAN_DEPENDENCY) {
        struct result f = {.rc = E_NOTFOUND};
        for (size_t i = 0; i < count; i++) {
            struct slice key = k.plan.dependency.key;
            while (slice_find(key, '\0') >= 0) {
                (void)slice_cut(&key, '\0');
            }
            if (slice_eqs(key, tail[i])) {
                f = (struct result){.bytes = buf_slice(&row[i])};
            }
        }
        rc = ask_again(&k, &f);
    }
    return rc;
}

static void what_indexes_reported(void **state)
{
    static const char *const tail[] = {"fa-1-0.conda", "b", "s", "g"};
    struct buf row[4] = {BUF_INIT(999), BUF_INIT(999), BUF_INIT(999), BUF_INIT(999)};
    struct reported_row f = {.kind = REPORTED_FILE, .file = {true, {{7}}, 99, 5, 1, 0}};

    (void)state;
    reported_encode(&f, &row[0]);
    reported_encode(
        &(struct reported_row){.kind = REPORTED_REPODATA,
                               .place = {SLICE("https://far.example/p/"), SLICE_NONE,
                                         SLICE("https://conda.example/forge/x/repodata.json")}},
        &row[1]);
    reported_encode(&(struct reported_row){.kind = REPORTED_REPODATA,
                                           .place = {SLICE("https://far.example/q/"),
                                                     SLICE("https://far.example/shards/"),
                                                     SLICE("https://conda.example/forge/x/list")}},
                    &row[2]);
    reported_encode(&(struct reported_row){.kind = REPORTED_GROUP, .group = {5, 1234}}, &row[3]);
    assert_int_equal(ask_with("/x/a-1-0.conda", tail, row, 1), 0);
    assert_slice(k.plan.lookup.url, "https://conda.example/forge/x/a-1-0.conda");
    assert_true(k.plan.lookup.digest_known && k.plan.lookup.digest.b[0] == 7 &&
                k.plan.lookup.size_bytes == 99 && k.plan.lookup.no_html);
    f.file.place = REPORTED_REPODATA;
    buf_clear(&row[0]);
    reported_encode(&f, &row[0]);
    assert_int_equal(ask_with("/x/a-1-0.conda", tail, row, 4), 0);
    assert_slice(k.plan.lookup.url, "https://far.example/p/a-1-0.conda");
    assert_slice(k.plan.lookup.via, "https://conda.example/forge/x/repodata.json");
    assert_slice(k.plan.lookup.key, "x/a-1-0.conda");
    assert_int_equal(ask_with("/x/a-1-0.conda", tail, row, 1), 0);
    assert_slice(k.plan.lookup.url, "https://conda.example/forge/x/a-1-0.conda");
    assert_int_equal(ask_with("/x/shards/" ONES ".msgpack.zst", tail, row, 4), 0);
    assert_slice(k.plan.lookup.url, "https://far.example/shards/" ONES ".msgpack.zst");
    assert_non_null(k.plan.lookup.reader);
    assert_int_equal(ask_with("/x/repodata.json", tail, row, 4), 0);
    assert_true(k.plan.delivery == DELIVERY_REWRITTEN && k.plan.lookup.since_unix_s == 1234);
    assert_slice(k.plan.lookup.key, "x/repodata.json?elsewhere");
    assert_int_equal(ask_with("/x/repodata.json.bz2", tail, row, 4), 0);
    assert_int_equal(k.plan.status, 404);
    assert_int_equal(ask_with("/x/run_exports.json.bz2", tail, row, 4), 0);
    assert_int_equal(k.plan.kind, PLAN_LOOKUP);
    assert_int_equal(k.plan.lookup.since_unix_s, 1234);
    assert_int_equal(ask_with("/x/repodata_shards.msgpack.zst", tail, row, 4), 0);
    assert_true(k.plan.delivery == DELIVERY_REWRITTEN && k.plan.lookup.reader == NULL);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        buf_free(&row[i]);
    }
}

static void what_is_not_given(void **state)
{
    (void)state;
    assert_int_equal(ask_bare("/noarch/repodata.jlap"), 0);
    assert_int_equal(k.plan.kind, PLAN_REPLY);
    assert_int_equal(k.plan.status, 404);
    assert_int_equal(ask(&k, METHOD_PUT, "/noarch/a-1-0.conda"), 0);
    assert_int_equal(k.plan.status, 405);
    assert_int_equal(ask(&k, METHOD_GET, "/../x"), E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indexes_change),
        cmocka_unit_test(packages_and_shards_stay),
        cmocka_unit_test(what_indexes_reported),
        cmocka_unit_test(what_is_not_given),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
