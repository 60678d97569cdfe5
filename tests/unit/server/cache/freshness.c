#include "server/cache/freshness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define NOW 784111777u /* Sun, 06 Nov 1994 08:49:37 GMT */

/* "name: value|name: value" at NOW, default 60 s. w: or NULL. */
static struct freshness read_for(const char *text, const struct lookup *w)
{
    struct http_field fields[8];
    struct slice rest = slice_str(text);
    struct freshness f;
    size_t n = 0;

    while (rest.n > 0) {
        struct slice value = slice_cut(&rest, '|');
        fields[n].name = slice_cut(&value, ':');
        fields[n++].value = slice_trim(value);
    }
    freshness_read(fields, n, w, NOW, 60, &f);
    return f;
}

static struct freshness read_fields(const char *text)
{
    return read_for(text, NULL);
}

static void counts_the_life_of_an_answer(void **state)
{
    static const struct {
        const char *fields;
        uint64_t life_s;
    } cases[] = {
        {"", 60},
        {"cache-control: max-age=5", 5},
        {"cache-control: MAX-AGE=\"5\"", 5},
        {"cache-control: max-age=5, s-maxage=9", 9},
        {"cache-control: max-age=5|cache-control: s-maxage=9", 9},
        {"cache-control: max-age=5, max-age=6", 0},
        {"cache-control: max-age=five", 0},
        {"cache-control: max-age =5", 0}, /* no blanks beside the '=' (RFC 9111 5.2) */
        {"cache-control: max-age= 5", 0},
        {"cache-control: s-maxage= 5, max-age=5", 0},
        {"cache-control: no-cache = \"x\", max-age=5", 0},
        {"cache-control: public , max-age=5 ", 5},
        {"cache-control: max-age=-1", 0},
        {"cache-control: max-age=", 0},
        {"cache-control: no-cache, max-age=5", 0},
        {"cache-control: no-cache=\"set-cookie\", max-age=5", 5},
        {"cache-control: ext=\"a, max-age=7\", max-age=5", 5},
        {"cache-control: max-age=99999999999999999999999", 10 * 365 * 86400},
        {"cache-control: max-age=50|age: 20", 30},
        {"cache-control: max-age=50|age: 70", 0},
        {"cache-control: max-age=50|age: 20, 0", 30},
        {"cache-control: max-age=50|age: 0, 20", 50},
        {"cache-control: max-age=50|age: 0|age: 20", 50},
        {"cache-control: max-age=50|age: 20;x=0", 30},
        {"cache-control: max-age=50|age: 20.5", 50},
        {"cache-control: max-age=50|age: -20", 50},
        {"age: 20", 60}, /* the default is ours: it counts from now */
        {"cache-control: max-age=50|cdn-cache-control: max-age=20", 20},
        {"cache-control: max-age=50|cdn-cache-control: max-age=90", 50},
        {"cache-control: max-age=50|cdn-cache-control: no-cache", 0},
        {"cache-control: max-age=50|cdn-cache-control: max-age=x", 50},
        {"cache-control: no-cache|cdn-cache-control: max-age=90", 0},
        {"cache-control: max-age=50|date: Sun, 06 Nov 1994 08:49:17 GMT", 30},
        {"expires: Sun, 06 Nov 1994 08:50:37 GMT|date: Sun, 06 Nov 1994 08:49:37 GMT", 60},
        {"expires: Sun, 06 Nov 1994 08:50:37 GMT|cache-control: max-age=3", 3},
        {"expires: 0", 0},
        {"expires: Sun, 06 Nov 1994 08:50:37 GMT|expires: 0", 0},
        {"expires: SUN, 06 nov 1994 08:50:37 gmt", 60},
        {"expires: Sun, 06 Nov 1994 08:50:37 GMT|date: yesterday", 60},
        {"expires: Sun, 06 Nov 1994 08:48:37 GMT", 0},
        {"last-modified: Sun, 06 Nov 1994 08:32:57 GMT", 100},
        {"last-modified: Sun, 06 Nov 1904 08:32:57 GMT", 60},
        {"last-modified: Mon, 06 Nov 1972 08:32:57 GMT", 86400},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct freshness f = read_fields(cases[i].fields);
        if (f.fresh_until_unix_s != NOW + cases[i].life_s) {
            fail_msg("%s: %d s", cases[i].fields, (int)(f.fresh_until_unix_s - NOW));
        }
    }
}

static void obeys_targeted_fields(void **state)
{
    static const struct {
        const char *fields;
        uint64_t life_s;
    } cases[] = {
        {"cache-control: max-age=50|cdn-cache-control: max-age=90", 90},
        {"cache-control: no-store|cdn-cache-control: max-age=90", 90},
        {"cache-control: no-cache|cdn-cache-control: max-age=90, foo=\"bar\", x;y=1", 90},
        {"expires: 0|cdn-cache-control: max-age=90", 90},
        {"cache-control: max-age=50|cdn-cache-control: max-age=20", 20},
        {"cache-control: max-age=50|cdn-cache-control: max-age=20|cdn-cache-control: max-age=30",
         30},
        {"cache-control: max-age=50|cdn-cache-control: no-cache", 0},
        {"cache-control: max-age=50|cdn-cache-control: no-cache=\"x\", max-age=90", 90},
        {"cache-control: max-age=50|cdn-cache-control: max-age=90|age: 30", 60},
        /* The first of the list that is there. */
        {"cache-control: max-age=50|cdn-cache-control: max-age=90|our-cache-control: max-age=70",
         70},
        {"our-cache-control: |cdn-cache-control: max-age=90", 90},
        /* No dictionary: as if it were not there, and no reason to be stricter. */
        {"cache-control: max-age=50|cdn-cache-control: max-age=20, &&&&&", 50},
        {"cache-control: max-age=50|cdn-cache-control: max-age= 20", 50},
        {"cache-control: max-age=50|cdn-cache-control: Max-Age=20", 50},
        /* A dictionary with a lifetime that is none. */
        {"cache-control: max-age=50|cdn-cache-control: max-age=\"90\"", 0},
        {"cache-control: max-age=50|cdn-cache-control: max-age=9.5", 0},
        {"cache-control: max-age=50|cdn-cache-control: max-age=-1", 0},
        {"cache-control: max-age=50|cdn-cache-control: max-age", 0},
        /* It says nothing of how long. */
        {"cache-control: max-age=50|cdn-cache-control: none", 60},
        {"last-modified: Sun, 06 Nov 1994 08:32:57 GMT|cdn-cache-control: none", 100},
        /* Another cache's. */
        {"cache-control: max-age=50|other-cache-control: max-age=90", 50},
    };
    const struct slice targets[] = {SLICE("our-cache-control"), SLICE("cdn-cache-control")};
    struct lookup w = {.targets = targets, .ntargets = ARRAY_LEN(targets)};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct freshness f = read_for(cases[i].fields, &w);
        if (f.fresh_until_unix_s != NOW + cases[i].life_s) {
            fail_msg("%s: %d s", cases[i].fields, (int)(f.fresh_until_unix_s - NOW));
        }
    }
    assert_false(read_for("cache-control: no-store|cdn-cache-control: max-age=9", &w).no_store);
    assert_true(read_for("cache-control: max-age=9|cdn-cache-control: no-store", &w).no_store);
    assert_true(read_for("cache-control: max-age=9|cdn-cache-control: private", &w).no_store);
    assert_false(read_for("cache-control: max-age=9|cdn-cache-control: private=?0", &w).no_store);
    assert_true(read_for("cdn-cache-control: must-revalidate, max-age=9", &w).must_revalidate);
    assert_int_equal(read_for("cdn-cache-control: stale-if-error=7", &w).sie_s, 7);
    /* Where another field is obeyed, CDN-Cache-Control counts if it is stricter, unless that one is
     * there. */
    w.ntargets = 1;
    assert_true(read_for("cache-control: max-age=9|cdn-cache-control: no-store", &w).no_store);
    assert_false(read_for("our-cache-control: max-age=9|cdn-cache-control: no-store", &w).no_store);
}

static void withholds_the_fields_that_are_named(void **state)
{
    static const struct {
        const char *control, *name;
        bool withheld;
    } cases[] = {
        {"no-cache=\"set-thing, X-Kind\", max-age=5", "x-kind", true},
        {"max-age=5, private=\"x-kind\"", "x-kind", true},
        {"no-cache=\"x-kinds\"", "x-kind", false},
        {"no-cache=x-kind", "x-kind", false},
        {"no-cache", "x-kind", false},
        {"ext=\"no-cache=x-kind\"", "x-kind", false},
        {"no-cache=\"", "x-kind", false},
        {"no-cache=\"\"", "x-kind", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_field field = {SLICE("cache-control"), slice_str(cases[i].control)};
        if (freshness_withholds(&field, 1, slice_str(cases[i].name)) != cases[i].withheld) {
            fail_msg("%s", cases[i].control);
        }
    }
}

static void reads_what_may_be_done(void **state)
{
    (void)state;
    assert_true(read_fields("cache-control: no-store").no_store);
    assert_true(read_fields("cache-control: private").no_store);
    assert_true(read_fields("cdn-cache-control: no-store").no_store);
    assert_true(read_fields("cache-control: no-store|cdn-cache-control: max-age=9").no_store);
    assert_false(read_fields("cache-control: no-store, must-understand").no_store);
    assert_true(read_fields("vary: accept, *").no_store);
    assert_false(read_fields("vary: accept").no_store);
    assert_true(read_fields("cache-control: max-age=1, must-revalidate").must_revalidate);
    assert_true(read_fields("cache-control: proxy-revalidate").must_revalidate);
    assert_int_equal(read_fields("cache-control: stale-while-revalidate=7").swr_s, 7);
    assert_int_equal(read_fields("cache-control: stale-if-error=8").sie_s, 8);
}

static void the_class_and_the_rule_decide(void **state)
{
    struct object o = {.validated_unix_s = NOW, .fresh_until_unix_s = NOW + 10};
    struct lookup w = {.class = LOOKUP_MUTABLE, .ttl_s = TTL_ORIGIN};

    (void)state;
    assert_int_equal(freshness_judge(&o, &w, NOW + 9), FRESH);
    assert_int_equal(freshness_judge(&o, &w, NOW + 10), STALE);
    w.swr_s = 5;
    assert_int_equal(freshness_judge(&o, &w, NOW + 14), STALE_OK);
    assert_int_equal(freshness_judge(&o, &w, NOW + 15), STALE);
    w.ttl_s = 100;
    assert_int_equal(freshness_judge(&o, &w, NOW + 99), FRESH);
    w.request_cache_control.refresh = true;
    assert_int_equal(freshness_judge(&o, &w, NOW + 5), STALE);
    w.floor_s = 6;
    assert_int_equal(freshness_judge(&o, &w, NOW + 5), FRESH);
    w.ttl_s = 3; /* the floor makes nothing fresh that is not */
    assert_int_equal(freshness_judge(&o, &w, NOW + 5), STALE_OK);
    w.swr_s = 0;
    assert_int_equal(freshness_judge(&o, &w, NOW + 5), STALE);
    w.class = LOOKUP_IMMUTABLE;
    assert_int_equal(freshness_judge(&o, &w, NOW + 1000000), FRESH);
    assert_int_equal(freshness_until(&o, &w), UINT64_MAX);
}

static enum verdict_fresh judged(struct request_cache_control d, uint64_t now)
{
    const struct object o = {.validated_unix_s = NOW, .fresh_until_unix_s = NOW + 60, .age_s = 30};
    const struct lookup w = {
        .class = LOOKUP_MUTABLE, .ttl_s = TTL_ORIGIN, .request_cache_control = d};

    return freshness_judge(&o, &w, now);
}

static void a_client_may_want_it_newer_or_take_it_older(void **state)
{
    struct object o = {.validated_unix_s = NOW, .fresh_until_unix_s = NOW, .must_revalidate = true};
    struct lookup w = {
        .class = LOOKUP_MUTABLE, .ttl_s = TTL_ORIGIN, .request_cache_control.max_stale_s = 50};

    (void)state;
    assert_int_equal(
        judged((struct request_cache_control){.bounded = true, .max_age_s = 40}, NOW + 10), FRESH);
    assert_int_equal(
        judged((struct request_cache_control){.bounded = true, .max_age_s = 40}, NOW + 11), STALE);
    assert_int_equal(judged((struct request_cache_control){.min_fresh_s = 40}, NOW + 20), FRESH);
    assert_int_equal(judged((struct request_cache_control){.min_fresh_s = 40}, NOW + 21), STALE);
    assert_int_equal(judged((struct request_cache_control){.max_stale_s = 5}, NOW + 64), STALE_OK);
    assert_int_equal(judged((struct request_cache_control){.max_stale_s = 5}, NOW + 65), STALE);
    assert_int_equal(judged((struct request_cache_control){.max_stale_s = UINT32_MAX}, NOW + 99999),
                     STALE_OK);
    assert_int_equal(
        judged((struct request_cache_control){.refresh = true, .max_stale_s = 5}, NOW + 62), STALE);
    assert_int_equal(freshness_judge(&o, &w, NOW + 1), STALE); /* must-revalidate goes before */
}

/* pip says max-age=0 with every page. */
static void a_client_is_not_heard_before_the_floor(void **state)
{
    const struct object o = {.validated_unix_s = NOW, .fresh_until_unix_s = NOW + 60};
    const struct request_cache_control d[] = {{.refresh = true},
                                              {.bounded = true, .max_age_s = 1},
                                              {.min_fresh_s = 1000},
                                              {.refresh = true, .max_stale_s = 100}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(d); i++) {
        struct lookup w = {.class = LOOKUP_MUTABLE,
                           .ttl_s = TTL_ORIGIN,
                           .request_cache_control = d[i],
                           .swr_s = 200,
                           .floor_s = FLOOR_NEVER};
        assert_int_equal(freshness_judge(&o, &w, NOW + 59), FRESH);
        assert_int_equal(freshness_judge(&o, &w, NOW + 60), STALE_OK);
        assert_int_equal(freshness_judge(&o, &w, NOW + 259), STALE_OK);
        assert_int_equal(freshness_judge(&o, &w, NOW + 260), STALE);
        w.floor_s = 30;
        assert_int_equal(freshness_judge(&o, &w, NOW + 29), FRESH);
        assert_int_equal(freshness_judge(&o, &w, NOW + 30), STALE);
        w.floor_s = 100;
        assert_int_equal(freshness_judge(&o, &w, NOW + 99), STALE_OK);
        assert_int_equal(freshness_judge(&o, &w, NOW + 260), STALE);
    }
}

static void stale_for_as_long_as_it_was_fresh(void **state)
{
    struct object o = {.validated_unix_s = NOW, .fresh_until_unix_s = NOW + 60};
    struct lookup w = {.class = LOOKUP_MUTABLE, .ttl_s = TTL_ORIGIN, .swr_s = SWR_LIKE_TTL};

    (void)state;
    assert_int_equal(freshness_judge(&o, &w, NOW + 59), FRESH);
    assert_int_equal(freshness_judge(&o, &w, NOW + 119), STALE_OK);
    assert_int_equal(freshness_judge(&o, &w, NOW + 120), STALE);
    w.ttl_s = 10; /* the rule's word */
    assert_int_equal(freshness_judge(&o, &w, NOW + 19), STALE_OK);
    assert_int_equal(freshness_judge(&o, &w, NOW + 20), STALE);
    w.ttl_s = 0;
    assert_int_equal(freshness_judge(&o, &w, NOW), STALE);
    w.ttl_s = TTL_ORIGIN;
    o.fresh_until_unix_s = NOW - 10; /* it was stale when it came */
    assert_int_equal(freshness_judge(&o, &w, NOW), STALE);
    o.fresh_until_unix_s = UINT64_MAX / 2;
    assert_int_equal(freshness_judge(&o, &w, NOW + 1), FRESH);
    o.fresh_until_unix_s = NOW + 60;
    o.must_revalidate = true;
    assert_int_equal(freshness_judge(&o, &w, NOW + 61), STALE);
}

static void what_must_be_asked_about_is_not_served(void **state)
{
    const struct object o = {
        .validated_unix_s = NOW, .fresh_until_unix_s = NOW + 60, .must_ask = true};
    struct lookup w = {.class = LOOKUP_MUTABLE,
                       .ttl_s = TTL_ORIGIN,
                       .swr_s = 1000,
                       .sie_s = UINT32_MAX,
                       .floor_s = FLOOR_NEVER,
                       .request_cache_control.max_stale_s = UINT32_MAX};

    (void)state;
    assert_int_equal(freshness_judge(&o, &w, NOW), STALE);
    assert_int_equal(freshness_judge(&o, &w, NOW + 61), STALE);
    assert_true(freshness_allows_stale_on_error(&o, &w, NOW));
    w.class = LOOKUP_IMMUTABLE;
    assert_int_equal(freshness_judge(&o, &w, NOW), FRESH);
}

static void trouble_allows_the_old_one_within_bounds(void **state)
{
    struct object o = {.validated_unix_s = NOW, .fresh_until_unix_s = NOW};
    struct lookup w = {.class = LOOKUP_MUTABLE, .ttl_s = TTL_ORIGIN};

    (void)state;
    assert_false(freshness_allows_stale_on_error(&o, &w, NOW));
    w.sie_s = 10;
    assert_true(freshness_allows_stale_on_error(&o, &w, NOW + 9));
    assert_false(freshness_allows_stale_on_error(&o, &w, NOW + 10));
    w.sie_s = UINT32_MAX;
    assert_true(freshness_allows_stale_on_error(&o, &w, UINT64_MAX - 1));
    o.must_revalidate = true;
    assert_false(freshness_allows_stale_on_error(&o, &w, NOW + 1));
    w.ttl_s = 1; /* a rule with a ttl of its own has taken the word */
    assert_true(freshness_allows_stale_on_error(&o, &w, NOW + 100));
}

static void delay_allows_the_old_one_unless_somebody_insists(void **state)
{
    struct object o = {.validated_unix_s = NOW, .fresh_until_unix_s = NOW};
    struct lookup w = {
        .class = LOOKUP_MUTABLE, .ttl_s = TTL_ORIGIN, .sie_s = 10, .floor_s = FLOOR_NEVER};

    (void)state;
    assert_true(freshness_allows_stale_on_delay(&o, &w, NOW + 9));
    assert_false(freshness_allows_stale_on_delay(&o, &w, NOW + 10));
    w.request_cache_control.refresh = true;
    assert_true(freshness_allows_stale_on_delay(&o, &w, NOW + 9));
    w.floor_s = 0;
    assert_false(freshness_allows_stale_on_delay(&o, &w, NOW + 9));
    w.request_cache_control.refresh = false;
    w.since_unix_s = NOW + 1; /* another of its group has changed */
    assert_false(freshness_allows_stale_on_delay(&o, &w, NOW + 9));
    w.since_unix_s = 0;
    o.must_ask = true;
    assert_false(freshness_allows_stale_on_delay(&o, &w, NOW + 9));
}

/* Who says how long an object is fresh says how long it may be stale. */
static void the_origins_stale_terms_count_with_its_ttl_alone(void **state)
{
    struct object o = {
        .validated_unix_s = NOW, .fresh_until_unix_s = NOW, .swr_s = 1000, .sie_s = 1000};
    struct lookup w = {.class = LOOKUP_MUTABLE, .ttl_s = TTL_ORIGIN};

    (void)state;
    assert_int_equal(freshness_judge(&o, &w, NOW + 999), STALE_OK);
    assert_true(freshness_allows_stale_on_error(&o, &w, NOW + 999));
    w.ruled = RULED_SWR | RULED_SIE; /* stale_while = 0s sie = 0s */
    assert_int_equal(freshness_judge(&o, &w, NOW + 1), STALE);
    assert_false(freshness_allows_stale_on_error(&o, &w, NOW + 1));
    w.ruled = 0;
    w.ttl_s = 10;
    w.sie_s = 5;
    assert_int_equal(freshness_judge(&o, &w, NOW + 10), STALE);
    assert_true(freshness_allows_stale_on_error(&o, &w, NOW + 14));
    assert_false(freshness_allows_stale_on_error(&o, &w, NOW + 15));
}

static void a_clock_set_back_makes_nothing_fresh(void **state)
{
    struct object o = {.validated_unix_s = 5000000, .fresh_until_unix_s = 5000060};
    struct lookup w = {.class = LOOKUP_MUTABLE, .ttl_s = TTL_ORIGIN};

    (void)state;
    assert_int_equal(freshness_judge(&o, &w, 5000000), FRESH);
    assert_int_equal(freshness_judge(&o, &w, 4999990), FRESH); /* two clocks never agree quite */
    assert_int_equal(freshness_judge(&o, &w, 1000000), STALE);
    w.ttl_s = 60;
    assert_int_equal(freshness_judge(&o, &w, 1000000), STALE);
    w.request_cache_control.refresh = true;
    w.floor_s = 10;
    assert_int_equal(freshness_judge(&o, &w, 1000000), STALE);
    w.class = LOOKUP_IMMUTABLE;
    assert_int_equal(freshness_judge(&o, &w, 1000000), FRESH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_origins_stale_terms_count_with_its_ttl_alone),
        cmocka_unit_test(a_clock_set_back_makes_nothing_fresh),
        cmocka_unit_test(counts_the_life_of_an_answer),
        cmocka_unit_test(obeys_targeted_fields),
        cmocka_unit_test(withholds_the_fields_that_are_named),
        cmocka_unit_test(reads_what_may_be_done),
        cmocka_unit_test(the_class_and_the_rule_decide),
        cmocka_unit_test(a_client_may_want_it_newer_or_take_it_older),
        cmocka_unit_test(a_client_is_not_heard_before_the_floor),
        cmocka_unit_test(stale_for_as_long_as_it_was_fresh),
        cmocka_unit_test(what_must_be_asked_about_is_not_served),
        cmocka_unit_test(trouble_allows_the_old_one_within_bounds),
        cmocka_unit_test(delay_allows_the_old_one_unless_somebody_insists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
