#include "tests/harness/ask.h"

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
    while (rc == 0 && k.plan.kind == PLAN_NEED) {
        rc = ask_again(&k, &(struct fact){.rc = E_NOTFOUND});
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
        assert_int_equal(k.plan.kind, PLAN_WANT);
        assert_int_equal(k.plan.want.class, WANT_MUTABLE);
        assert_int_equal(k.plan.want.ttl_s, 300);
        assert_true(k.plan.want.swr_s > 0 && k.plan.want.neg_ttl_s <= 300);
        assert_int_equal(k.plan.want.sie_s, UINT32_MAX);
        assert_slice(k.plan.want.key, arena_fmt(&k.arena, "linux-64/%s", path[i]).p);
        assert_slice(k.plan.want.url,
                     arena_fmt(&k.arena, "https://conda.example/forge/linux-64/%s", path[i]).p);
        assert_int_equal(k.plan.want.status_maps, i == 0 ? 0 : 1);
    }
}

static void packages_and_shards_stay(void **state)
{
    (void)state;
    assert_int_equal(ask_bare("/noarch/g%2B%2B-1-0.conda"), 0);
    assert_int_equal(k.plan.want.class, WANT_IMMUTABLE);
    assert_false(k.plan.want.digest_known);
    assert_slice(k.plan.want.url, "https://conda.example/forge/noarch/g%2B%2B-1-0.conda");
    assert_int_equal(ask_bare("/noarch/shards/" ONES ".msgpack.zst"), 0);
    assert_int_equal(k.plan.want.class, WANT_IMMUTABLE);
    assert_true(k.plan.want.digest_known);
    assert_int_equal(k.plan.want.digest.b[31], 0x11);
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
        cmocka_unit_test(what_is_not_given),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
